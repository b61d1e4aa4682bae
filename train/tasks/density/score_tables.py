"""Scores of densities, and what samples are, as HTML."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from ...measure.groups import measured
from ...reports.report_tables import number
from .results import ComparedScores, MetricName, Scores


class Metric(NamedTuple):
    """How a score is written."""

    key: MetricName  # key of the score; see `train.reports.results.Scores`
    title: str  # its name in the report
    unit: str  # its unit; empty without one
    digits: str  # format specification of the number
    more_is_better: bool  # whether a larger value is better
    meaning: str  # an explanation in a few words

    def text(self, scores: Scores) -> str:
        """Returns the number with its unit."""
        return self.with_unit(scores[self.key])

    def with_unit(self, value: float | None) -> str:
        """Returns `value` with the unit."""
        return number(value, self.digits) + (self.unit and f"\u00a0{self.unit}")


SSIM = Metric("ssim", "SSIM", "", "z.3f", True, "structural similarity, 1 is perfect")
PEARSON = Metric("pearson", "Pearson", "", "z.3f", True, "correlation of the pixels, 1 is perfect")
PSNR = Metric("psnr", "PSNR", "dB", "z.1f", True, "peak signal to noise; the peak is the truth's range")
MAE = Metric("mae", "MAE", "e/Å²", ".2f", False, "mean absolute error")
R_FACTOR = Metric("r_factor", "R", "", "z.3f", False, "Σ|error| / Σ|truth|, 0 is perfect")
HUBER = Metric("huber", "Huber", "", ".3g", False, "training loss with the initial δ")
COMPARED = (SSIM, PEARSON, MAE, R_FACTOR)


def in_unit(metric: Metric, unit: str) -> Metric:
    """Returns how a score is written where images are in `unit`, or are standardised if that is empty."""
    return metric._replace(unit=unit, digits=metric.digits if unit else ".3f") if metric is MAE else metric


def compared_head(unit: str) -> tuple[str, ...]:
    """Returns the headings of `compared`."""
    return tuple(metric.title + (f", {unit}" if unit and metric is MAE else "") for metric in COMPARED)


def compared(row: ComparedScores) -> list[str]:
    """Returns the cells of `COMPARED`: each score of the network, followed by that of the mean image."""
    mean_image = row["mean_predictor"]
    return [
        f"{number(row[metric.key], metric.digits)} <small>{number(mean_image[metric.key], metric.digits)}</small>"
        for metric in COMPARED
    ]


def ratio_or_difference(metric: Metric, network: float | None, mean_image: float | None) -> str:
    """Returns the network's score relative to the mean image's: a ratio of errors or a difference of scores."""
    if network is None or mean_image is None:
        return "–"
    if metric.more_is_better:
        difference = metric.with_unit(abs(network - mean_image))
        return f"{difference} {'higher' if network >= mean_image else 'lower'}"
    if min(network, mean_image) <= 0:
        return "–"
    ratio = max(network, mean_image) / min(network, mean_image)
    return f"{ratio:.1f} times {'larger' if network >= mean_image else 'smaller'}"


def zone_axis(indices: Sequence[int]) -> str:
    """Returns Miller indices in crystallographic notation, with a bar for the minus."""
    return "[" + "".join(str(index) if index >= 0 else f"{-index}\u0304" for index in indices) + "]"


def conditions_text(conditions: Mapping[str, str | float]) -> str:
    """Returns the conditions of a sample as HTML: its kind, then its quantities with their units."""
    words = (
        value.replace("_", " ") if isinstance(value, str) else measured(name, number(float(f"{value:.3g}"), ",g"))
        for name, value in conditions.items()
    )
    return escape(", ".join(words))


def space_group(symbol: str) -> str:
    """Returns a Hermann–Mauguin symbol such as P4_2/mnm or Fm-3m with its subscripts and bars."""
    barred = re.sub(r"-(\d)", "\\1\u0304", escape(symbol))
    return re.sub(r"_(\d)", r"<sub>\1</sub>", barred)
