"""The patterns that a page holds, binned to its limit of size.

They are 16-bit floats; those of a pattern share a power of two.

A 16-bit float keeps 11 bits of every number, over twelve decades below the brightest pixel of a
pattern: counts up to 2048 are exact, and the image of a virtual detector has an error far below
that of counting.
"""

import base64
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.pixels import PixelGrid, binned

MAX_TILE_PIXELS = 256  # of a pattern, along an axis
MIN_TILE_PIXELS = 24  # below this, positions are left out in place of finer pixels
MAX_PAGE_BYTES = 40_000_000
LEAST_PAGE_BYTES = 2_000_000
# of a page without patterns: its text, and the images that do not grow with the scan
PAGE_BYTES = 800_000
POSITION_BYTES = 200  # of a page, per position: coordinates, values and pixels of maps
MAX_SHOWN_PIXELS = 2**26  # of all patterns, which a browser unpacks to 2 bytes each
PIXEL_BYTES = 8 / 3  # of a page, per pixel: 2 bytes in base64, if they cannot be compressed
PACKING = 1  # level of zlib: higher ones take three times as long for a page that is 5 % smaller
RESERVE = 1.25  # over the compressed size of a sample


class TilePlan(NamedTuple):
    """Reduction of a scan's patterns to what a page holds."""

    binning: int  # so many pixels of the detector along each axis become one
    every: int  # one in so many positions along each axis of the scan is taken


@dataclass(frozen=True)
class Tiles:
    """Patterns as a page holds them."""

    halves: npt.NDArray[np.float16]  # pixels over the pattern's power of two, `(m, h, w)`, float16
    exponents: npt.NDArray[np.int16]  # exponents of these powers, `(m,)`, integers
    grid: PixelGrid  # the pixels, mrad or pixels of the detector

    def values(self, span: slice = slice(None)) -> npt.NDArray[np.float32]:
        """Returns the patterns of a part, as the page's script computes with them, `(k, h, w)`."""
        return np.ldexp(self.halves[span].astype(np.float32), self.exponents[span, None, None])

    def packed(self) -> str:
        """Returns the halves as text: all low bytes, then all high bytes, deflated, in base64."""
        planes = np.ascontiguousarray(self.halves, "<f2").view(np.uint8).reshape(-1, 2)
        pack = zlib.compressobj(PACKING)
        low = pack.compress(planes[:, 0].tobytes())
        high = pack.compress(planes[:, 1].tobytes())
        return base64.b64encode(low + high + pack.flush()).decode()


PixelBytes = Callable[[int], float]  # from a binning to the bytes of a page per pixel that is left


def incompressible(_: int) -> float:
    """Returns the most bytes of a page that a pixel takes."""
    return PIXEL_BYTES


def sampled_pixel_bytes(patterns: Array) -> PixelBytes:
    """Returns the bytes of a page per pixel, as some patterns `(k, dy, dx)` can be compressed."""

    def pixel_bytes(binning: int) -> float:
        halves, exponents = as_halves(binned(patterns, binning))
        size = len(Tiles(halves, exponents, PixelGrid((1, 1), (0, 0))).packed())
        return min(PIXEL_BYTES, RESERVE * size / halves.size)

    return pixel_bytes


def plan_tiles(
    scan: Sequence[int],  # positions along each axis of the scan, or their number
    detector: Sequence[int],  # pixels of the detector, (y, x)
    max_bytes: int,  # largest size of the page
    other_bytes: int = 0,  # size of what else the page holds beside its usual content
    pixel_bytes: PixelBytes = incompressible,  # bytes of the page per pixel
) -> TilePlan:
    """Chooses the least reduction that a page can hold.

    The detector's pixels are reduced first, then the positions.

    Raises:
        InputError: If `max_bytes` is below `LEAST_PAGE_BYTES`, or if nothing is left for patterns.
    """
    needed = max(LEAST_PAGE_BYTES, PAGE_BYTES + 2 * other_bytes)
    if max_bytes < needed:
        raise InputError(
            f"a page of {max_bytes / 1e6:g} MB has no room for patterns: give "
            f"{math.ceil(needed / 1e6)} MB or more"
        )
    room = max_bytes - PAGE_BYTES - other_bytes
    longest = max(detector)
    coarsest = max(1, min(longest // MIN_TILE_PIXELS, *detector))
    binning = min(-(-longest // MAX_TILE_PIXELS), *detector)
    every = 1
    per_pixel = pixel_bytes(binning)

    def fits() -> bool:
        positions = float(np.prod([-(-n // every) for n in scan]))
        pixels = (detector[0] // binning) * (detector[1] // binning)
        return (
            positions * pixels <= MAX_SHOWN_PIXELS
            and positions * (per_pixel * pixels + POSITION_BYTES) <= room
        )

    while not fits():
        if binning < coarsest:
            binning += 1
            per_pixel = pixel_bytes(binning)
        else:
            every += 1
    return TilePlan(binning, every)


def thinned_grid(scan: PixelGrid, plan: TilePlan) -> PixelGrid:
    """Returns the pixels of the positions that are shown."""
    return PixelGrid([step * plan.every for step in scan.step], scan.origin)


def as_halves(
    patterns: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.float16], npt.NDArray[np.int16]]:
    """Returns patterns `(k, h, w)` as `Tiles` hold them: halves, and the exponent of each."""
    peaks = np.abs(patterns).max(axis=(1, 2))
    # the peak becomes 2^14 to 2^15
    exponents = np.where(peaks > 0, np.frexp(peaks)[1] - 15, 0).astype(np.int16)
    return np.ldexp(patterns, -exponents[:, None, None]).astype(np.float16), exponents


def reduction_note(plan: TilePlan, scan: Sequence[int], detector: Sequence[int]) -> str:
    """Returns what was binned and left out, for the reader of the page; empty for nothing."""
    notes = []
    if plan.binning > 1:
        notes.append(
            f"{plan.binning} × {plan.binning} of their {detector[0]} × {detector[1]} pixels are "
            "shown as one."
        )
    if plan.every > 1:
        shown = int(np.prod([-(-n // plan.every) for n in scan]))
        along = " along y and x." if len(scan) > 1 else "."
        notes.append(
            f"{shown} of {int(np.prod(scan))} positions are shown, one in {plan.every}{along}"
        )
    return " ".join(notes)
