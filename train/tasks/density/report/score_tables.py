"""Scores of densities, and conditions of samples, as texts of the report."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from namsa.figures.document import Text, small, subscript

from ....measure.groups import measured
from ....reports.words import number
from ..results import ComparedScores, MetricName, Scores


class Metric(NamedTuple):
    """Notation of a score."""

    key: MetricName  # key of the score; see `train.tasks.density.results.Scores`
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
        text = number(value, self.digits)
        return f"{text}\u00a0{self.unit}" if self.unit else text


SSIM = Metric("ssim", "SSIM", "", "z.3f", True, "structural similarity, 1 is perfect")
PEARSON = Metric("pearson", "Pearson", "", "z.3f", True, "correlation of the pixels, 1 is perfect")
PSNR = Metric(
    "psnr", "PSNR", "dB", "z.1f", True, "peak signal to noise; the peak is the truth's range"
)
MAE = Metric("mae", "MAE", "e/Å²", ".2f", False, "mean absolute error")
R_FACTOR = Metric("r_factor", "R", "", "z.3f", False, "Σ|error| / Σ|truth|, 0 is perfect")
HUBER = Metric("huber", "Huber", "", ".3g", False, "training loss with the initial δ")
COMPARED = (SSIM, PEARSON, MAE, R_FACTOR)


def in_unit(metric: Metric, unit: str) -> Metric:
    """Returns how a score is written where images are in `unit`, or are standardised if that is
    empty.
    """
    if metric is MAE:
        return metric._replace(unit=unit, digits=metric.digits if unit else ".3f")
    return metric


def compared_head(unit: str) -> list[str]:
    """Returns the headings of `compared`."""
    head = []
    for metric in COMPARED:
        with_unit = unit and metric is MAE
        head.append(f"{metric.title}, {unit}" if with_unit else metric.title)
    return head


def compared(row: ComparedScores) -> list[Text]:
    """Returns the cells of `COMPARED`: each score of the network, followed by that of the mean
    image.
    """
    cells: list[Text] = []
    for metric in COMPARED:
        network = number(row[metric.key], metric.digits)
        mean_image = number(row["mean_predictor"][metric.key], metric.digits)
        cells.append((f"{network} ", small(mean_image)))
    return cells


def ratio_or_difference(metric: Metric, network: float | None, mean_image: float | None) -> str:
    """Returns the network's score relative to the mean image's: a ratio of errors or a difference
    of scores.
    """
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
    """Returns the conditions of a sample: its kind, then its quantities with their units."""
    words = []
    for name, value in conditions.items():
        if isinstance(value, str):
            words.append(value.replace("_", " "))
        else:
            words.append(measured(name, number(float(f"{value:.3g}"), ",g")))
    return ", ".join(words)


def space_group(symbol: str) -> Text:
    """Returns a Hermann–Mauguin symbol such as P4_2/mnm or Fm-3m with its subscripts and bars."""
    barred = re.sub(r"-(\d)", "\\1\u0304", symbol)
    parts: list[Text] = []
    # Texts and the digits that are subscripts alternate.
    for index, text in enumerate(re.split(r"_(\d)", barred)):
        parts.append(subscript(text) if index % 2 else text)
    return parts
