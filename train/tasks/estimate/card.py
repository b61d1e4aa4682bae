"""The model card of a network of the task estimate."""

from collections.abc import Mapping, Sequence

import numpy as np

from namsa.base.arrays import Array
from namsa.base.text import plural
from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset
from namsa.figures.document import DocumentSection, Paragraph, Table, Text, strong

from ...apply.models import Model
from ...apply.weights import build_loaded
from ...experiment.experiment import Experiment
from ...input.windows import middle
from ...reports.card_sections import Usage, undrawn
from ...reports.held_out import unseen
from ...reports.words import fixed
from ..card import CardFacts, Evaluation, OnSample, Packed, Rounding, TaskCard
from ..splits import last
from .calibrate import EstimateCalibration, calibrate_estimates
from .quantities import QUANTITIES
from .report import score_table
from .scores import QuantityScores
from .task import Estimation, predictor


class EstimateCard(TaskCard):
    """The model card of a network of the task estimate, whose errors are calibrated for the packed
    weights; `TaskCard` documents the methods.
    """

    def usage(self, experiment: Experiment) -> Usage:
        names = experiment.training.estimate.quantities
        *titles, last_title = [QUANTITIES[name].title for name in names]
        listed = f"{', '.join(titles)} and {last_title}" if titles else last_title
        checks = {QUANTITIES[name].varied: "what it answers" for name in names}
        return Usage(
            f"From a 4D-STEM scan to its {listed}, with their errors.",
            "estimate",
            "ESTIMATES.h5",
            windows="in windows side by side",
            checks=checks,
        )

    def sections(self, facts: CardFacts) -> Sequence[DocumentSection]:
        """Scores, and what the errors cover."""
        return self.scores(facts), _errors(facts.measured)

    def scores(self, facts: CardFacts) -> DocumentSection:
        """Errors of each quantity beside those of the median, by split."""
        text = (
            f"Of the middle windows of samples {unseen(facts.evaluation['run'])}"
            f"{undrawn(facts.experiment)}. "
            "The baseline is the median of the training samples."
        )
        table = score_table(facts.evaluation).of_card()
        return DocumentSection("Scores: mean absolute errors", (Paragraph(text), table))

    def limits(self, facts: CardFacts) -> Sequence[Text]:
        limits: list[Text] = [
            "Of a scan whose thickness, defocus or tilt is beyond these ranges it gives values "
            "within them or near: it does not tell that a scan is beyond."
        ]
        split, scores = last(facts.evaluation["by_split"])
        poor = []
        for name, row in scores.items():
            if row["mae"] >= row["baseline_mae"]:
                poor.append(QUANTITIES[name].title)
        if poor:
            sentence = (
                f"On the {split} split the median of the training samples is as near or nearer: "
                f"{', '.join(poor)}."
            )
            limits.append((strong(sentence), " The network has learnt nothing of that."))
        return limits

    def dev_error(self, evaluation: Evaluation) -> float | None:
        scores = evaluation["by_split"].get("dev")
        return scores and _mean_error(scores, evaluation)

    def answers(self, model: Model, dataset: Dataset, entries: Sequence[Entry]) -> Array:
        """Returns the quantities of some samples in units of half their ranges, `(n, k)`."""
        experiment = model.experiment
        (*scan, dy, dx), _ = experiment.window_shapes()
        predict = predictor(experiment, build_loaded(model, experiment.network))
        windows = [
            middle(dataset.read(entry.id), (scan[0], scan[1])).patterns() for entry in entries
        ]
        values, _ = predict(np.stack(windows).reshape(-1, *scan, dy, dx))
        halves = [(high - low) / 2 for low, high in Estimation(experiment).ranges.values()]
        return np.asarray(values / halves)

    def rounding(self, before: Array, after: Array, evaluation: Evaluation) -> Rounding:
        """Returns the mean change of the estimates, beside their mean error, in units of half the
        ranges.
        """
        change = float(np.abs(after - before).mean())
        error = _mean_error(last(evaluation["by_split"])[1], evaluation)
        words = (
            f"the estimates change by {change:.2g} of half a range (mean); the mean error is "
            f"{error:.3g} of it"
        )
        return Rounding(change, error, words)

    def measure(self, packed: Packed, on_sample: OnSample) -> EstimateCalibration:
        """Calibrates the errors, and writes them into the folder."""
        return calibrate_estimates(packed.model, packed.dataset, on_sample)


def _mean_error(scores: Mapping[str, QuantityScores], evaluation: Evaluation) -> float:
    """The mean over the quantities of a split's errors, in units of half their ranges."""
    errors = []
    for name, row in scores.items():
        low, high = evaluation["ranges"][name]
        errors.append(row["mae"] / ((high - low) / 2))
    return float(np.mean(errors))


def _errors(calibration: EstimateCalibration) -> DocumentSection:
    """Calibration of the errors, and what they cover."""
    test = calibration.get("test", {})
    rows = []
    for name, factors in calibration["quantities"].items():
        cells = [
            QUANTITIES[name].title,
            f"{factors['uncertainty_factor']:.3g}",
            f"{factors['two_sigma_factor']:.3g}",
        ]
        for coverages in (calibration["dev"], test):
            coverage = coverages.get(name)
            cells.append(fixed(coverage["coverage_68"] if coverage else None, 2))
            cells.append(fixed(coverage["coverage_95"] if coverage else None, 2))
        rows.append(cells)
    text = (
        "One standard deviation of a window’s error is a multiple of what the network says. The "
        f"factor was chosen on {plural(calibration['windows'], 'window')} of the dev split, as "
        "simulated and with drawn dose and imperfections, so that 68.27% of the errors are within "
        "it. Two standard deviations stand for a second multiple, within which 95.45% are."
    )
    headings = ("dev, one σ", "dev, two σ", "test, one σ", "test, two σ")
    head = ("", "factor", "two σ, in σ", *headings)
    return DocumentSection("Errors", (Paragraph(text), Table(head, rows, text_columns=1)))


CARD = EstimateCard()
