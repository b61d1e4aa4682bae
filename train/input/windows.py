"""Windows of a simulated scan: at random in training, the middle one elsewhere.

A network of layout scan may see fewer positions than a sample has. Patterns and density, which is
at the positions, are cut alike.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from namsa.base.pixels import raster_shape
from namsa.dataset.records import Record

Corner = tuple[int, int]

_HELD_OUT = 4  # stream of `held_out_positions`
# stream of random numbers, beside those of `train.input.noise` and `train.input.imperfections`
_PLACE = 3


def draw_corner(scan: Corner, window: Corner, margin: Corner, seed: int, epoch: int) -> Corner:
    """Returns the first row and column of a training window; all that leave the margin in the scan
    are as likely.
    """
    rng = np.random.default_rng([seed, epoch, _PLACE])
    y = int(rng.integers(margin[0], scan[0] - window[0] - margin[0] + 1))
    x = int(rng.integers(margin[1], scan[1] - window[1] - margin[1] + 1))
    return y, x


def draw_training_window(
    held_out: npt.NDArray[np.bool_], window: Corner, margin: Corner, seed: int, epoch: int
) -> tuple[Corner, npt.NDArray[np.int64]]:
    """Returns a window's first row and column, and which of its positions take the places of all of
    them.

    All windows that leave the margin and are not held out as a whole are equally likely. A position
    that is held out is replaced by one of the window that is not.

    Returns:
        The corner, and an index into the window's positions for each of them,
        `(window y · window x,)`.
    """
    y = slice(margin[0], held_out.shape[0] - margin[0])
    x = slice(margin[1], held_out.shape[1] - margin[1])
    windows = np.lib.stride_tricks.sliding_window_view(~held_out[y, x], window)
    corners = np.argwhere(windows.any(axis=(2, 3)))
    rng = np.random.default_rng([seed, epoch, _PLACE])
    row, column = corners[rng.integers(len(corners))]
    free = windows[row, column].ravel()
    taken = np.where(free, np.arange(free.size), rng.choice(np.flatnonzero(free), free.size))
    return (margin[0] + int(row), margin[1] + int(column)), taken


def held_out_positions(scan: Corner, fraction: float, seed: int) -> npt.NDArray[np.bool_]:
    """Returns which positions of a scan training never draws: a fraction of them, drawn from the
    sample's seed.

    At least one position is held out, and at least one is not.
    """
    positions = scan[0] * scan[1]
    count = min(max(1, round(fraction * positions)), positions - 1)
    order = np.random.default_rng([seed, _HELD_OUT]).permutation(positions)
    mask = np.zeros(positions, bool)
    mask[order[:count]] = True
    return mask.reshape(scan)


def middle(record: Record, window: Corner) -> Record:
    """Returns the middle window of a sample; the sample itself if the window is its whole scan."""
    scan = raster_shape(record.header["provenance"], len(record.cbed))
    corner = ((scan[0] - window[0]) // 2, (scan[1] - window[1]) // 2)
    return cut(record, corner, window)


def cut(record: Record, corner: Corner, window: Corner) -> Record:
    """Returns a sample of a part of the scan, at whose positions its density is, from a first row
    and column on.
    """
    provenance = record.header["provenance"]
    scan = raster_shape(provenance, len(record.cbed))
    if window == scan:
        return record
    y = slice(corner[0], corner[0] + window[0])
    x = slice(corner[1], corner[1] + window[1])
    positions = record.positions_angstrom.reshape(*scan, 2)[y, x]
    cbed = record.cbed.reshape(*scan, *record.cbed.shape[1:])[y, x]
    step = provenance["density_sampling_angstrom"]
    scan_origin = provenance["density_origin_angstrom"]
    origin = [scan_origin[0] + corner[0] * step[0], scan_origin[1] + corner[1] * step[1]]
    by_depth = record.density_by_depth
    if by_depth is not None:
        by_depth = by_depth[:, y, x]
    kept = provenance | {"scan_shape": list(window), "density_origin_angstrom": origin}
    return replace(
        record,
        header={"arrays": record.header["arrays"], "provenance": kept},
        cbed=cbed.reshape(-1, *cbed.shape[2:]),
        density=record.density[..., y, x],
        positions_angstrom=positions.reshape(-1, 2),
        density_by_depth=by_depth,
    )
