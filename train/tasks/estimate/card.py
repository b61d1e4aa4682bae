"""What a model card says of a network of the task estimate."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset
from namsa.text import plural

from ...apply.card import CardFacts, Evaluation, OnSample, Packed, Rounding, TaskCard
from ...apply.models import Model
from ...apply.weights import build_loaded
from ...experiment.experiment import Experiment
from ...input.windows import middle
from ...reports.card_sections import Usage, undrawn
from ...reports.markdown import number, plain, section, table
from ..splits import last
from .calibrate import EstimateCalibration, calibrate_estimates
from .quantities import QUANTITIES
from .report import score_table
from .task import Estimation, predictor


class EstimateCard(TaskCard):
    """What a model card says of a network of the task estimate. Errors are calibrated for the packed weights."""

    def usage(self, experiment: Experiment) -> Usage:
        titles = [QUANTITIES[name].title for name in experiment.training.estimate.quantities]
        listed = f"{', '.join(titles[:-1])} and {titles[-1]}" if titles[1:] else titles[0]
        answer = f"From a 4D-STEM scan to its {listed}, with their errors."
        quantities = experiment.training.estimate.quantities
        checks = dict.fromkeys((QUANTITIES[name].varied for name in quantities), "what it answers")
        return Usage(answer, "estimate", "ESTIMATES.h5", windows="in windows side by side", checks=checks)

    def sections(self, facts: CardFacts) -> Iterable[Iterable[str]]:
        """Scores, and what the errors cover."""
        return self.scores(facts), _errors(facts.measured)

    def scores(self, facts: CardFacts) -> Iterator[str]:
        """Errors of each quantity beside those of the median, by split."""
        return section(
            "Scores: mean absolute errors",
            f"Of the middle windows of samples that training never saw{undrawn(facts.experiment)}. The baseline is "
            "the median of the training samples.",
            score_table(facts.evaluation).markdown(),
        )

    def limits(self, facts: CardFacts) -> Iterator[str]:
        yield (
            "- Of a scan whose thickness, defocus or tilt is beyond these ranges it gives values within them or near: "
            "it does not tell that a scan is beyond."
        )
        split, scores = last(facts.evaluation["by_split"])
        poor = [QUANTITIES[name].title for name, row in scores.items() if row["mae"] >= row["baseline_mae"]]
        if poor:
            yield (
                f"- **On the {plain(split)} split the median of the training samples is as near or nearer: "
                f"{', '.join(poor)}.** The network has learnt nothing of that."
            )

    def dev_error(self, evaluation: Evaluation) -> float | None:
        scores = evaluation["by_split"].get("dev")
        return scores and _mean_error(scores, evaluation)

    def answers(self, model: Model, dataset: Dataset, entries: Sequence[Entry]) -> npt.NDArray[Any]:
        """Returns the quantities of some samples in units of half their ranges, `(n, k)`."""
        experiment = model.experiment
        (*scan, dy, dx), _ = experiment.window_shapes()
        predict = predictor(experiment, build_loaded(model, experiment.network))
        windows = [middle(dataset.read(entry.id), (scan[0], scan[1])).patterns() for entry in entries]
        values, _ = predict(np.stack(windows).reshape(-1, *scan, dy, dx))
        halves = [(high - low) / 2 for low, high in Estimation(experiment).ranges.values()]
        return np.asarray(values / halves)

    def rounding(self, before: npt.NDArray[Any], after: npt.NDArray[Any], evaluation: Evaluation) -> Rounding:
        """Returns the mean change of the estimates, beside their mean error, in units of half the ranges."""
        change = float(np.abs(after - before).mean())
        error = _mean_error(last(evaluation["by_split"])[1], evaluation)
        words = f"the estimates change by {change:.2g} of half a range (mean); the mean error is {error:.3g} of it"
        return Rounding(change, error, words)

    def measure(self, packed: Packed, on_sample: OnSample) -> EstimateCalibration:
        """Calibrates the errors, and writes them into the folder."""
        return calibrate_estimates(packed.model, packed.dataset, on_sample)


def _mean_error(scores: Any, evaluation: Evaluation) -> float:
    """The mean over the quantities of a split's errors, in units of half their ranges."""
    halves = {name: (high - low) / 2 for name, (low, high) in evaluation["ranges"].items()}
    return float(np.mean([row["mae"] / halves[name] for name, row in scores.items()]))


def _errors(calibration: EstimateCalibration) -> Iterator[str]:
    """How the errors were calibrated, and what they cover."""
    splits = {"dev": calibration["dev"], "test": calibration.get("test", {})}
    head = [f"{split}, {words}" for split in splits for words in ("one σ", "two σ")]
    rows = []
    for name, factors in calibration["quantities"].items():
        covered: list[float | None] = []
        for found in splits.values():
            covered += [found[name]["coverage_68"], found[name]["coverage_95"]] if found else [None, None]
        multiples = (f"{factors['uncertainty_factor']:.3g}", f"{factors['two_sigma_factor']:.3g}")
        rows.append((QUANTITIES[name].title, *multiples, *(number(each, 2) for each in covered)))
    return section(
        "Errors",
        "One standard deviation of a window’s error is a multiple of what the network says. The factor was chosen on "
        f"{plural(calibration['windows'], 'window')} of the dev split, as simulated and with drawn dose and "
        "imperfections, so that 68.27% of the errors are within it. Two standard deviations stand for a second "
        "multiple, within which 95.45% are.",
        table(("", "factor", "two σ, in σ", *head), rows),
    )


CARD = EstimateCard()
