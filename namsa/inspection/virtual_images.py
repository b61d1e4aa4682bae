"""Virtual images of a scan: each is a weighted sum of detector pixels, so that one sparse matrix
makes them all.

The bright disk is divided into square patches. The image of a patch is the bright-field image for
the beam's tilt at the patch; these images are what `namsa.inspection.tilted` aligns. Bright and
dark field show where the scan reaches beyond the specimen.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from namsa.base.arrays import Floats
from namsa.inspection.disk import Disk, distances, stretch
from namsa.inspection.survey import Piece

BLOCK = 4  # scan positions along each axis of a block
LEAST = 0.01  # of the blocks, at least 2, that must be vacuum
DARKEST = 0.05  # dark field of vacuum over the median one, at most
PATCHES_ACROSS = 13  # the bright disk
LEAST_PATCHES_ACROSS = 5
IMAGE_BYTES = 256 * 2**20  # of the images of all patches
DARK_FROM = 1.1  # inner radius of the dark field, in radii of the disk
MARGIN = 0.5  # pixels between the patches and the edge of the disk, besides the width of the edge


@dataclass(frozen=True)
class VirtualImages:
    """Images of a scan, and the patches of the bright disk that some belong to."""

    bright: Floats  # sum of each pattern in the bright disk, `(sy, sx)`
    dark: Floats  # sum outside, `(sy, sx)`
    # Centre of mass of each pattern from the disk's centre, `(sy, sx, 2)`, pixels (y, x), with the
    # disk's ellipse made a circle.
    deflection: Floats
    patches: npt.NDArray[np.float32]  # sum over each patch, `(m, sy, sx)`, float32
    places: npt.NDArray[np.intp]  # row and column of each patch in the raster of patches, `(m, 2)`
    tilts: Floats  # centre of each patch from the disk's centre, as `deflection`, `(m, 2)`
    pitch: Floats  # matrix from a difference of places to a difference of tilts, `(2, 2)`


def virtual_images(
    # rows, columns and patterns without bad pixels of pieces that cover the scan once
    parts: Iterable[Piece],
    shape: tuple[int, int, int, int],  # the scan's shape (sy, sx, dy, dx)
    disk: Disk,  # the bright disk
) -> VirtualImages:
    """Computes the virtual images of a scan."""
    sy, sx, dy, dx = shape
    r = distances((dy, dx), disk.parameters).ravel()
    places, members, size = _patches(shape, disk)
    inverse = stretch(-disk.parameters[3], -disk.parameters[4])
    y, x = np.meshgrid(
        *(np.arange(n) - at for n, at in zip((dy, dx), disk.centre, strict=True)), indexing="ij"
    )
    v = inverse @ np.stack([y.ravel(), x.ravel()])
    linear = np.stack([np.ones(dy * dx), *v, r < disk.radius, r >= DARK_FROM * disk.radius])
    weights = linear.astype(np.float32)
    inner = np.unique(members.indices)  # pixels of the patches
    of_inner = members[:, inner].astype(np.float32)
    images = np.zeros((5, sy, sx))
    patches = np.zeros((len(places), sy, sx), np.float32)
    for rows, columns, patterns in parts:
        sides = patterns.shape[:2]
        flat = patterns.reshape(-1, dy * dx)
        images[:, rows, columns] = (flat @ weights.T).T.reshape(5, *sides)
        patches[:, rows, columns] = (of_inner @ np.ascontiguousarray(flat[:, inner].T)).reshape(
            -1, *sides
        )
    total = np.where(images[0] > 0, images[0], 1.0)
    return VirtualImages(
        bright=images[3],
        dark=images[4],
        deflection=np.moveaxis(images[1:3] / total, 0, -1),
        patches=patches,
        places=places,
        tilts=np.asarray((members @ v.T) / np.maximum(members.sum(axis=1), 1)[:, None]),
        pitch=inverse * size,
    )


class _Patches(NamedTuple):
    """Squares of pixels that lie inside the disk."""

    places: npt.NDArray[np.intp]  # row and column of each among all squares, `(n, 2)`
    members: sparse.csr_array  # 1 at the pixels of each, `(n, dy · dx)`
    size: int  # pixels along a side


def _patches(shape: tuple[int, int, int, int], disk: Disk) -> _Patches:
    """Returns the patches of a detector."""
    sy, sx, dy, dx = shape
    most = int(np.sqrt(IMAGE_BYTES / (sy * sx * 4) * 4 / np.pi))
    across = int(np.clip(most, LEAST_PATCHES_ACROSS, PATCHES_ACROSS))
    size = max(1, round(2 * disk.radius / across))
    corner = [round(at) - size // 2 for at in disk.centre]  # of the patch in the middle
    row, column = (
        np.floor_divide(np.arange(n) - at, size) for n, at in zip((dy, dx), corner, strict=True)
    )
    inside = distances((dy, dx), disk.parameters) < disk.radius - MARGIN - disk.parameters[5]
    key = (row[:, None] - row.min()) * (column.max() - column.min() + 1) + (column - column.min())
    is_full = np.bincount(key[inside], minlength=key.max() + 1) == size * size
    numbers = np.flatnonzero(is_full)
    order = np.full(len(is_full), -1)
    order[numbers] = np.arange(len(numbers))
    of = order[key].ravel()
    pixels = np.flatnonzero(of >= 0)
    members = sparse.csr_array(
        (np.ones(len(pixels)), (of[pixels], pixels)), shape=(len(numbers), dy * dx)
    )
    places = np.stack(np.divmod(numbers, column.max() - column.min() + 1), axis=1)
    return _Patches(places, members, size)


def vacuum_intensity(sums: Floats, bright: Floats, dark: Floats) -> tuple[float, float] | None:
    """Returns the beam's intensity, where there is vacuum, from each pattern's sum, bright and dark
    part, `(sy, sx)`.

    Vacuum scatters nothing: blocks of positions in which the dark field is below `DARKEST` of its
    median over the scan, and in which the bright field is higher than at nine tenths of all
    positions, count as vacuum.

    Returns:
        The mean sum over the vacuum and its standard error, from the scatter of the blocks; `None`
        without vacuum.
    """
    rows, columns = (n // BLOCK for n in sums.shape)
    if rows * columns < 8:
        return None
    total, inner, outer = (_blocks(image, rows, columns) for image in (sums, bright, dark))
    share = outer / np.where(total > 0, total, 1)
    empty = (share < DARKEST * np.median(share)) & (inner >= np.quantile(bright, 0.9) * 0.99)
    if empty.sum() < max(2, LEAST * empty.size):
        return None
    return float(total[empty].mean()), float(total[empty].std(ddof=1) / np.sqrt(empty.sum()))


def _blocks(image: Floats, rows: int, columns: int) -> Floats:
    """Returns the means over blocks, `(rows, columns)`."""
    trimmed = image[: rows * BLOCK, : columns * BLOCK]
    return np.asarray(trimmed.reshape(rows, BLOCK, columns, BLOCK).mean(axis=(1, 3)))
