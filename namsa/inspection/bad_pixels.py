"""Hot and dead detector pixels: those that stand out from all their neighbours in the mean
pattern.
"""

from typing import NamedTuple

import numpy as np
from scipy import ndimage

from namsa.base.arrays import Booleans
from namsa.inspection.survey import Survey
from namsa.inspection.virtual_images import VirtualImages
from namsa.io.recording import Recording

FEWEST = 8  # patterns, from which the noise of a pixel is known
# of the pixels; if more stand out, the pattern is not smooth and they are not bad
LARGEST_SHARE = 0.01
SIGMAS = 6.0  # of noise, at least, by which a bad pixel stands out
# of the 24 pixels around a dead one may be as dark; more are the edge of what is lit
DARK_AROUND = 3
_AROUND = np.pad(np.zeros((1, 1), bool), 2, constant_values=True)
_NEIGHBOURS = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], bool)


class BadPixel(NamedTuple):
    """A pixel of the detector that does not measure."""

    row: int  # its row
    column: int  # its column
    kind: str  # "hot", "dead", or "missing" for one that is never finite
    sigmas: float  # how far it stands out from its neighbours, in standard deviations


def find_bad_pixels(survey: Survey, positions: int) -> list[BadPixel]:
    """Finds hot, dead and missing pixels.

    A pixel is hot if its mean exceeds those of its neighbours, all but the largest one, by more
    than `SIGMAS` standard deviations of noise and by more than the range of the neighbours; dead
    pixels fall below them likewise and have at most half the neighbours' median. A pair of bad
    pixels side by side is found, a larger cluster may not be. Dark pixels at the edge of what is
    lit, as at the band limit of a simulation, are not dead.

    Returns:
        The pixels, by row and column. Of fewer than `FEWEST` patterns, and if more than
        `LARGEST_SHARE` of the pixels stand out, only missing ones.
    """
    mean = survey.mean
    ranked = [
        ndimage.rank_filter(mean, rank, footprint=_NEIGHBOURS, mode="mirror")
        for rank in (0, 1, 3, 6, 7)
    ]
    _, low, middle, high, _ = ranked
    spread = high - low
    noise = np.sqrt(
        np.maximum(survey.variance, ndimage.median_filter(survey.variance, 3, mode="mirror"))
        / positions
    )
    if survey.whole:  # one count in all patterns is no more than chance
        lit = mean > 0
        count = max(1.0, float(np.median(survey.variance[lit] / mean[lit]))) if lit.any() else 1.0
        noise = np.hypot(noise, count / positions)
    # six numbers between them: a quarter of their range is about one deviation
    noise = np.hypot(noise, spread / 4)
    noise = np.hypot(noise, 1e-6 * float(mean.max()) + 1e-300)
    above = (mean - high) / noise
    below = (low - mean) / noise
    hot = (above > SIGMAS) & (mean - high > spread)
    dead = (below > SIGMAS / 2) & (low - mean > spread) & (mean < middle / 2)
    around = ndimage.rank_filter(mean, DARK_AROUND, footprint=_AROUND, mode="mirror")
    dead &= around > np.maximum(2 * mean, 1e-3 * middle)
    missing = survey.missing == positions
    if positions < FEWEST or (hot | dead).mean() > LARGEST_SHARE:
        hot = np.zeros_like(hot)
        dead = np.zeros_like(dead)
    kinds = np.select([missing, hot, dead], ["missing", "hot", "dead"], "")
    sigmas = np.select([missing, hot, dead], [np.inf, above, below])
    return [
        BadPixel(int(row), int(column), str(kinds[row, column]), float(sigmas[row, column]))
        for row, column in np.argwhere(kinds != "")
    ]


def bad_mask(pixels: list[BadPixel], shape: tuple[int, ...]) -> Booleans:
    """Returns which pixels are bad, `shape`."""
    mask = np.zeros(shape, bool)
    for pixel in pixels:
        mask[pixel.row, pixel.column] = True
    return mask


COUNTER_BITS = (1, 2, 4, 6, 8, 10, 12, 14, 16, 24, 32)
OFTEN = 3  # times that the largest value of a full counter must occur to count as saturation
# of the patterns in which a pixel has the scan's largest value
CLIPPED = 0.3  # from which that is no chance
TOUCHED = 0.02  # from which the pixel's mean is wrong
FEWEST_CLIPPED = 10  # counts
# steps between columns over the median one; share of the columns
FLYBACK = 8.0
MOST_FLYBACK = 0.1


def describe(
    recording: Recording, survey: Survey, bad_pixels: list[BadPixel], inside: Booleans
) -> dict[str, object]:
    """Describes a scan. Its variance over the mean is taken in the pixels `inside`, `(dy, dx)`."""
    ratio = survey.variance[inside] / np.where(survey.mean[inside] > 0, survey.mean[inside], np.inf)
    saturated = _saturation(survey)
    sums = survey.sums[~survey.lost]
    return {
        "format": recording.format,
        "shape": list(recording.shape),
        "dtype": str(recording.dtype),
        "whole_numbers": survey.whole,
        "normalised": recording.normalised,
        "sum_per_pattern": float(sums.mean()),
        "sum_per_pattern_range": [float(sums.min()), float(sums.max())],
        "lost_patterns": np.argwhere(survey.lost).tolist(),
        "largest_value": survey.top,
        "variance_over_mean": float(np.median(ratio)) if ratio.size else None,
        "saturated_values": saturated,
        "saturated_pixels": int((survey.at_top > 0).sum()) if saturated else 0,
        "missing_values": survey.losses.values,
        "negative_values": survey.negative,
        "hot_dead_pixels": [
            {
                "pixel": [pixel.row, pixel.column],
                "kind": pixel.kind,
                "sigmas": round(min(pixel.sigmas, 1e6), 1),
            }
            for pixel in bad_pixels
        ],
        "metadata": dict(recording.metadata),
    }


def _saturation(survey: Survey) -> int:
    """Returns how many values are the largest that a counter of whole bits holds; 0 if they are no
    more than chance.
    """
    full = survey.whole and survey.top in [2**bits - 1 for bits in COUNTER_BITS]
    times = int(survey.at_top.sum())
    return times if full and times >= OFTEN else 0


def clipped_pixels(survey: Survey) -> Booleans:
    """Returns the pixels whose values are cut off at the largest of the scan, be it that of a full
    counter or not, `(dy, dx)`.

    Counts of `FEWEST_CLIPPED` or more are equal in at most one of eight patterns by chance.
    """
    share = survey.at_top / max(survey.recorded, 1)
    is_clipped = (share > CLIPPED).sum() >= OFTEN
    if not is_clipped or survey.recorded < FEWEST:
        return np.zeros(share.shape, bool)
    if survey.whole and survey.top < FEWEST_CLIPPED:
        return np.zeros(share.shape, bool)
    return np.asarray(share > TOUCHED)


def flyback_columns(images: VirtualImages) -> list[int]:
    """Returns columns at the sides of the scan that differ abruptly from the others: the beam was
    flying back.
    """
    series = [images.bright, *np.moveaxis(images.deflection, -1, 0)]
    columns = images.bright.shape[1]
    flyback: set[int] = set()
    most = int(MOST_FLYBACK * columns)
    if not most:
        return []
    for means in (image.mean(axis=0) for image in series):
        steps = np.abs(np.diff(means))
        usual = float(np.median(steps))
        for n in range(most):
            if (
                usual
                and steps[n] > FLYBACK * usual
                and abs(means[: n + 1].mean() - np.median(means)) > 6 * means[most:-most].std()
            ):
                flyback.update(range(n + 1))
            if (
                usual
                and steps[-1 - n] > FLYBACK * usual
                and abs(means[-1 - n :].mean() - np.median(means)) > 6 * means[most:-most].std()
            ):
                flyback.update(range(columns - 1 - n, columns))
    return sorted(flyback)
