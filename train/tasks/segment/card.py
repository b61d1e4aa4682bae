"""What a model card says of a network of the task segment."""

from collections.abc import Iterator, Sequence

import numpy as np

from namsa.arrays import Array, Integers
from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset

from ...apply.card import CardFacts, Evaluation, Rounding, TaskCard, share_that_differs
from ...apply.models import Model
from ...apply.weights import build_loaded
from ...experiment.experiment import Experiment
from ...reports.card_sections import Usage, undrawn
from ...reports.markdown import plain, section
from .report import score_table
from .scores import SegmentScores
from .task import Segmentation, predictor

WORDS = {
    "matrix": "matrix",
    "grain": "grain (the same crystal along another direction)",
    "phase": "phase (another crystal)",
}
LEAST_IOU = 0.5  # below which the card warns of a class


class SegmentCard(TaskCard):
    """What a model card says of a network of the task segment; `TaskCard` documents the methods."""

    def usage(self, experiment: Experiment) -> Usage:
        classes = ", ".join(WORDS[name] for name in experiment.training.segment.classes)
        return Usage(f"From a 4D-STEM scan to the class of each position: {classes}.", "segment", "LABELS.h5")

    def scores(self, facts: CardFacts) -> Iterator[str]:
        """Intersections over unions, by kind of scan and split."""
        return section(
            "Scores: intersection over union",
            "Intersection over union (IoU), TP/(TP+FP+FN), of each class, and of how many positions it is the class; "
            f"from the sum over all scans{undrawn(facts.experiment)}. The baseline calls every position matrix.",
            score_table(facts.evaluation).markdown(),
        )

    def limits(self, facts: CardFacts) -> Iterator[str]:
        evaluation = facts.evaluation
        yield (
            f"- In training {evaluation['expected_fractions'][0]:.1%} of the positions are matrix, on average. Of "
            "scans where the matrix is not the largest part, nothing has been measured."
        )
        if not evaluation["scores"].get("specimen"):
            yield (
                "- It was scored on composites alone: patterns of perfect crystals put side by side. Patterns at a "
                "real border, where the probe meets both sides, and real specimens have not been tried."
            )
        row = _last(evaluation)
        poor = [
            f"{name} {iou:.2f}"
            for name, iou in row["iou"].items()
            if iou is not None and row["fractions"][name] and iou < LEAST_IOU
        ]
        if poor:
            yield (
                f"- **Intersection over union on unseen materials: {plain(', '.join(poor))}.** Most positions that are "
                "given or have such a class are wrong: look at the probabilities beside the labels."
            )

    def dev_error(self, evaluation: Evaluation) -> float | None:
        row = (evaluation["scores"].get("composite") or evaluation["scores"]["specimen"]).get("dev")
        return row and 1 - row["mean_iou"]

    def answers(self, model: Model, dataset: Dataset, entries: Sequence[Entry]) -> Integers:
        """Returns the class that each position of a held-out scan of some samples is given."""
        task = Segmentation(model.experiment)
        predict = predictor(model.experiment, build_loaded(model, model.experiment.network))
        scans = task.held_out_scans(dataset)
        found = [task.segmented(entry, view, predict)[1] for entry in entries for view in scans(entry)[:1]]
        return np.concatenate([labels.ravel() for labels in found])

    def rounding(self, before: Array, after: Array, evaluation: Evaluation) -> Rounding:
        """Returns the fraction of the positions whose class changes, beside the fraction that is wrong."""
        change, error = share_that_differs(before, after), 1 - _last(evaluation)["accuracy"]
        words = f"{change:.2%} of {len(before):,} held-out positions get another class; {error:.1%} get a wrong one"
        return Rounding(change, error, words)


def _last(evaluation: Evaluation) -> SegmentScores:
    """The scores that the card is about: of composites of the test split, if it has samples."""
    by_source = evaluation["scores"]
    found: SegmentScores = list((by_source.get("composite") or by_source["specimen"]).values())[-1]
    return found


CARD = SegmentCard()
