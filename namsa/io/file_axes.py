"""The axes of patterns as a file describes them, and which of them are the scan's."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Array
from namsa.io.units import angstrom_per_unit, inverse_angstrom_per_unit, mrad_per_unit

MAX_ORIGIN_ANGSTROM = 1e10  # of a scan, a metre
# numbers of axes
STACK = 3
SERIES = 5


class FileAxis(NamedTuple):
    """An axis with the coordinates origin + i · step."""

    units: str  # as the file spells them; empty if it has none
    step: float  # distance between neighbouring indices; NaN if the file has no number for it
    origin: float  # coordinate of index 0; NaN if the file has no number for it
    name: str = ""  # as the file names it; empty if it does not
    note: str = ""  # what its coordinates are not that step and origin are

    @property
    def role(self) -> str:
        """Whether it is of the scan, "s", or of the detector, "d", by its units; empty if they do
        not say it.
        """
        if mrad_per_unit(self.units) or inverse_angstrom_per_unit(self.units):
            return "d"
        if angstrom_per_unit(self.units):
            return "s"
        return ""


NO_AXIS = FileAxis("", np.nan, np.nan)
UNEVEN = 0.05  # of a step, by which coordinates may deviate from equal steps without a note
ROUNDED = 0.02  # of a step, from which the coordinates' rounding is noted


def axis_of_coordinates(coordinates: Array, size: int, units: str, name: str) -> FileAxis:
    """Returns the axis of measured or stated coordinates: the line that fits them best.

    Args:
        coordinates: One for each of `size` indices, the size + 1 edges between them, or the first
            two.
    """
    called = name or "an axis"
    values = np.asarray(coordinates, np.float64)
    note = ""
    if len(values) == size + 1 and size > 1:
        values = (values[1:] + values[:-1]) / 2
        note = f"{called}: {size + 1} coordinates are the edges of {size}; their middles are taken"
    elif len(values) not in (2, size):
        note = f"{called} has {len(values)} coordinates for {size} indices, and is not used"
        return FileAxis(units, np.nan, np.nan, name, note)
    if len(values) < 2 or not np.isfinite(values).all():
        return FileAxis(units, np.nan, np.nan, name, note)
    indices = np.arange(len(values)) - (len(values) - 1) / 2
    step = float(indices @ (values - values.mean()) / (indices @ indices))
    origin = float(values.mean()) - step * (len(values) - 1) / 2
    notes = [note] if note else []
    resolution = 0.0
    if coordinates.dtype.kind == "f":
        resolution = float(np.spacing(np.abs(coordinates).max()))
    deviation = float(np.abs(values - origin - step * np.arange(len(values))).max())
    if resolution > ROUNDED * abs(step):
        error = resolution / np.sqrt(12 * (indices @ indices))
        notes.append(
            f"{called}: coordinates are rounded to {resolution:.3g} {units}; a line through them "
            f"has the step {step:.6g} ± {error:.2g}"
        )
    if deviation > max(UNEVEN * abs(step), resolution):
        notes.append(
            f"{called}: coordinates deviate by up to {deviation:.3g} {units} from equal steps of "
            f"{step:.6g}, which are taken"
        )
    return FileAxis(units, step, origin, name, "; ".join(notes))


def origin_angstrom(axis: FileAxis) -> float:
    """Returns the coordinate of an axis' first position, Å; 0 if it is not stored as a length."""
    origin = axis.origin * (angstrom_per_unit(axis.units) or 0.0)
    if np.isfinite(origin) and abs(origin) <= MAX_ORIGIN_ANGSTROM:
        return origin
    return 0.0


def axis_order(axes: Sequence[FileAxis]) -> tuple[str, ...] | None:
    """Returns which axis is which (`namsa.io.read_options`), as their units say; `None` if they do
    not.

    Of two axes of the scan, or of the detector, the first one is y, unless their names say the
    opposite. py4DSTEM's names do not count: it calls the first one x.
    """
    scan: list[int] = []
    detector: list[int] = []
    others: list[int] = []  # the number of a frame, or of a scan in a series
    for index, axis in enumerate(axes):
        {"s": scan, "d": detector, "": others}[axis.role].append(index)
    if len(detector) != 2 or len(axes) > SERIES:
        return None
    if len(axes) == STACK:  # of frames: the one axis that is not of the detector counts them
        others = sorted(scan + others)
        scan = []
    elif len(scan) != 2 or len(others) > 1:
        return None
    names = {}
    for index in others:
        names[index] = "n" if len(axes) == STACK else "t"
    for pair, prefix in ((scan, "s"), (detector, "d")):
        if pair:
            y, x = _y_then_x(pair, axes)
            names[y] = f"{prefix}y"
            names[x] = f"{prefix}x"
    return tuple(names[index] for index in range(len(axes)))


def _y_then_x(pair: Sequence[int], axes: Sequence[FileAxis]) -> tuple[int, int]:
    """Returns the numbers of two axes, y first: the opposite order if their names end in x and
    y.
    """
    slow, fast = pair
    names = [axes[index].name for index in pair]
    is_py4dstem = any(name[:1] in ("R", "Q") for name in names)
    if not is_py4dstem and [name.strip().lower()[-1:] for name in names] == ["x", "y"]:
        return fast, slow
    return slow, fast
