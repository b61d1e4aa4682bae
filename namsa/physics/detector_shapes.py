"""Shapes of virtual detectors: which pixels of a pattern a segment, a polygon or a function of the
angle holds.

A shape is an array of weights (dy, dx), or (m, dy, dx) of m segments, from 0 to 1. A pixel belongs
to a segment or a polygon if its centre does. Angles are (y, x) in mrad from the optic axis, and an
azimuth turns from +x towards +y.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array, Booleans, Floats
from namsa.base.errors import InputError
from namsa.base.pixels import PixelGrid
from namsa.physics.virtual_detectors import ring_pixels

MOST_SEGMENTS = 360

WeightFunction = Callable[[Floats, Floats], npt.ArrayLike]
"""Weights (dy, dx) as a function of the angles y (dy, 1) and x (1, dx) of the pixels, mrad."""


def segments(
    angles: PixelGrid,
    shape: Sequence[int],
    inner_mrad: float,
    outer_mrad: float,
    count: int = 4,
    rotation_deg: float = 0.0,
) -> Booleans:
    """Returns the segments of a ring, as those of a detector for differential phase contrast.

    Together they are the ring of `namsa.annular`. Segment 0 begins at the azimuth `rotation_deg`,
    and the next ones follow from +x towards +y.

    Args:
        angles: The positions of the pixels, mrad.
        shape: Pixels (dy, dx) of a pattern.
        inner_mrad: Inner angle, mrad.
        outer_mrad: Outer angle, mrad.
        count: Number of segments, 1 to `MOST_SEGMENTS`, of equal width.
        rotation_deg: Azimuth of the first edge, degrees.

    Returns:
        Masks (count, dy, dx).

    Raises:
        InputError: If the ring is none or empty, or the number of segments is out of its range.

    Example:
        >>> weights = namsa.segments(sample.angles, sample.cbed.shape[1:], 10, 20, count=4)
        >>> weights.shape[0]
        4
        >>> namsa.detect(sample.cbed, sample.angles, weights).shape
        (20, 4)
    """
    if not isinstance(count, (int, np.integer)) or not 1 <= count <= MOST_SEGMENTS:
        raise InputError(
            f"count is {count!r}; give a whole number of 1 to {MOST_SEGMENTS} segments"
        )
    if not math.isfinite(rotation_deg):
        raise InputError(f"rotation_deg is {rotation_deg}; give a finite angle in degrees")
    ring = ring_pixels(angles, shape, inner_mrad, outer_mrad)
    y, x = angles.coordinates(shape)
    turn = np.arctan2(y[:, None], x[None, :]) - math.radians(rotation_deg)
    # Rounding puts a pixel whose centre lies on an edge into the segment that begins there.
    position = np.floor(np.round(turn / (2 * np.pi) * count, 9)).astype(np.int64) % count
    masks = np.zeros((count, *ring.shape), dtype=bool)
    for index in range(count):
        masks[index] = ring & (position == index)
    return masks


def polygon(angles: PixelGrid, shape: Sequence[int], corners_mrad: npt.ArrayLike) -> Booleans:
    """Returns the pixels whose centres lie within a polygon.

    Args:
        angles: The positions of the pixels, mrad.
        shape: Pixels (dy, dx) of a pattern.
        corners_mrad: Corners (m, 2) as (y, x), mrad, in order; the last is joined to the first.

    Returns:
        Mask (dy, dx).

    Raises:
        InputError: If the corners are no polygon, or no pixel lies in it.

    Example:
        >>> corners = [(0, 0), (0, 20), (20, 20)]
        >>> inside = namsa.polygon(sample.angles, sample.cbed.shape[1:], corners)
        >>> namsa.detect(sample.cbed, sample.angles, inside).shape
        (20,)
    """
    from matplotlib.path import Path  # Matplotlib is loaded where it is needed

    corners = np.asarray(corners_mrad, dtype=np.float64)
    if corners.ndim != 2 or corners.shape[1] != 2 or len(corners) < 3:
        raise InputError(
            f"corners_mrad has shape {corners.shape}; give three corners (y, x) or more, (m, 2)"
        )
    if not np.isfinite(corners).all():
        raise InputError("corners_mrad must be finite")
    y, x = angles.coordinates(shape)
    centres = np.stack(np.meshgrid(y, x, indexing="ij"), axis=-1).reshape(-1, 2)
    inside = Path(corners).contains_points(centres).reshape(len(y), len(x))
    if not inside.any():
        raise InputError(
            f"no detector pixel lies in the polygon: its corners span y {corners[:, 0].min():g} to "
            f"{corners[:, 0].max():g} and x {corners[:, 1].min():g} to {corners[:, 1].max():g} "
            f"mrad, the pixels y {y[0]:.4g} to {y[-1]:.4g} and x {x[0]:.4g} to {x[-1]:.4g} mrad"
        )
    return inside


def detect(patterns: Array, angles: PixelGrid, weights: npt.ArrayLike | WeightFunction) -> Floats:
    """Returns what detectors of any shape record of each pattern.

    Args:
        patterns: Patterns (n, dy, dx).
        angles: The positions of the pixels, mrad.
        weights: Weights (dy, dx) of one detector or (m, dy, dx) of m ones, or a function of the
            angles (y, x) of the pixels, mrad, that returns them.

    Returns:
        Weighted sums of the pixels, (n,) for one detector and (n, m) for several.

    Raises:
        InputError: If the weights are not finite, or do not have the shape of a pattern.

    Example:
        >>> ring = namsa.segments(sample.angles, sample.cbed.shape[1:], 10, 20, count=1)
        >>> namsa.detect(sample.cbed, sample.angles, ring).shape
        (20, 1)
    """
    shape = patterns.shape[1:]
    if callable(weights):
        y, x = angles.coordinates(shape)
        weights = _of_all_pixels(weights(y[:, None], x[None, :]), shape)
    shapes = np.asarray(weights)
    if shapes.dtype.kind not in "biuf" or shapes.ndim not in (2, 3) or shapes.shape[-2:] != shape:
        raise InputError(
            f"weights are {shapes.dtype} of shape {shapes.shape}; give real numbers of the "
            f"shape of a pattern, {tuple(shape)}, or (m, {shape[0]}, {shape[1]}) for m detectors"
        )
    shapes = shapes.astype(np.float64)
    if not np.isfinite(shapes).all():
        raise InputError("weights must be finite")
    sums = np.empty((len(patterns), *shapes.shape[:-2]))
    for index, pattern in enumerate(patterns):
        # One pattern at a time: no copy of the stack.
        sums[index] = np.tensordot(shapes, np.asarray(pattern, np.float64), 2)
    return sums


def _of_all_pixels(weights: npt.ArrayLike, shape: tuple[int, ...]) -> npt.ArrayLike:
    """Returns weights for each pixel of a pattern (dy, dx), of those that depend on y or x alone;
    others as they are.
    """
    values = np.asarray(weights)
    if values.ndim != 2 or any(
        count not in (1, pixels) for count, pixels in zip(values.shape, shape, strict=True)
    ):
        return weights
    return np.broadcast_to(values, shape)
