"""The model card of a network of the task segment."""

from collections.abc import Sequence
from typing import cast

import numpy as np

from namsa.base.arrays import Array, Integers
from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset
from namsa.figures.document import DocumentSection, Paragraph, Text, strong

from ...apply.models import Model
from ...apply.weights import build_loaded
from ...experiment.experiment import Experiment
from ...reports.card_sections import Usage, undrawn
from ..card import CardFacts, Evaluation, Rounding, TaskCard, share_that_differs
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
    """The model card of a network of the task segment; `TaskCard` documents the methods."""

    def usage(self, experiment: Experiment) -> Usage:
        classes = ", ".join(WORDS[name] for name in experiment.training.segment.classes)
        return Usage(
            f"From a 4D-STEM scan to the class of each position: {classes}.", "segment", "LABELS.h5"
        )

    def scores(self, facts: CardFacts) -> DocumentSection:
        """Intersections over unions, by kind of scan and split."""
        text = (
            "Intersection over union (IoU), TP/(TP+FP+FN), of each class, and of how many "
            f"positions it is the class; from the sum over all scans{undrawn(facts.experiment)}. "
            "The baseline calls every position matrix."
        )
        table = score_table(facts.evaluation).of_card()
        return DocumentSection("Scores: intersection over union", (Paragraph(text), table))

    def limits(self, facts: CardFacts) -> Sequence[Text]:
        evaluation = facts.evaluation
        limits: list[Text] = [
            f"In training {evaluation['expected_fractions'][0]:.1%} of the positions are matrix, "
            "on average. Of scans where the matrix is not the largest part, nothing has been "
            "measured."
        ]
        if not evaluation["scores"].get("specimen"):
            limits.append(
                "It was scored on composites alone: patterns of perfect crystals put side by "
                "side. Patterns at a real border, where the probe meets both sides, and real "
                "specimens have not been tried."
            )
        row = _last(evaluation)
        poor = []
        for name, iou in row["iou"].items():
            if iou is not None and row["fractions"][name] and iou < LEAST_IOU:
                poor.append(f"{name} {iou:.2f}")
        if poor:
            limits.append(
                (
                    strong(f"Intersection over union on held-out materials: {', '.join(poor)}."),
                    " Most positions that are given or have such a class are wrong: look at the "
                    "probabilities beside the labels.",
                )
            )
        return limits

    def dev_error(self, evaluation: Evaluation) -> float | None:
        row = (evaluation["scores"].get("composite") or evaluation["scores"]["specimen"]).get("dev")
        return row and 1 - row["mean_iou"]

    def answers(self, model: Model, dataset: Dataset, entries: Sequence[Entry]) -> Integers:
        """Returns the class that each position of a held-out scan of some samples is given."""
        task = Segmentation(model.experiment)
        predict = predictor(model.experiment, build_loaded(model, model.experiment.network))
        scans = task.held_out_scans(dataset)
        classes = []
        for entry in entries:
            for view in scans(entry)[:1]:
                _, labels, _ = task.segmented(entry, view, predict)
                classes.append(labels.ravel())
        return np.concatenate(classes)

    def rounding(self, before: Array, after: Array, evaluation: Evaluation) -> Rounding:
        """Returns the fraction of the positions whose class changes, beside the fraction that is
        wrong.
        """
        change = share_that_differs(before, after)
        error = 1 - _last(evaluation)["accuracy"]
        words = (
            f"{change:.2%} of {len(before):,} held-out positions get another class; {error:.1%} "
            "get a wrong one"
        )
        return Rounding(change, error, words)


def _last(evaluation: Evaluation) -> SegmentScores:
    """The scores that the card is about: of composites of the test split, if it has samples."""
    by_source = evaluation["scores"]
    by_split = by_source.get("composite") or by_source["specimen"]
    *_, (_, scores) = by_split.items()
    return cast(SegmentScores, scores)


CARD = SegmentCard()
