"""Cells of a scan that repeat, and the columns of atoms in them."""

from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Floats
from namsa.base.errors import InputError
from namsa.base.pixels import PixelGrid
from namsa.inverse.columns import Columns, find_columns
from namsa.inverse.lattice import average_over_lattice
from namsa.inverse.rings import Known, RingMeasurement
from namsa.physics.optics import wavelength_angstrom

PART_ANGSTROM = 20.0  # side of a part of the scan in which columns are looked for, at most
CELL_ANGSTROM = (10.0, 15.0)  # sides of the cell in it that repeats best
MOST_PARTS = 2  # along each axis
_EDGES = 101  # places of a cell's edge that are tried
_COMMON_POSITIONS = 4  # that an image and its translation have in common, at least


class RepeatingCell(NamedTuple):
    """The columns of a cell of the scan that repeats."""

    yx: Floats  # from the cell's corner on, `(n, 2)`, Å
    electrons: Floats  # `(n,)`
    extent: tuple[float, float]  # sides (y, x), Å
    density: float  # mean density, e/Å²
    rings: Floats  # measured ring sums, averaged over the cell, `(rings,)`
    left: float  # of `Columns`


def find_cells(
    density: Floats,  # `(sy, sx)`, e/Å², on the positions of the scan; NaN where it is not known
    rings: Floats,  # sums of the patterns over the rings, `(sy, sx, rings)`
    pixels: PixelGrid,  # of both, Å
    measurement: RingMeasurement,
    known: Known,
) -> list[RepeatingCell]:
    """Returns cells of the scan with their columns.

    Raises:
        InputError: If the scan is too small or has no columns.
    """
    pixel_mrad = measurement.detector.pixel_mrad or 1.0
    # reciprocal pixels of the cell are finer than those of the detector
    needed = 1e3 * wavelength_angstrom(measurement.beam.energy_ev) / pixel_mrad
    least_side = max(CELL_ANGSTROM[0], needed)
    grid = PixelGrid(pixels.step, (0.0, 0.0))
    elements = known.elements(known.electrons_per_angstrom3)
    cells = []
    for view in _views((density.shape[0], density.shape[1]), pixels):
        image = density[view]
        if not np.isfinite(image).all() or not image.std():
            continue
        mean = average_over_lattice(image, grid)
        columns = find_columns(mean, grid, elements, measurement.max_q, known.vibration_angstrom)
        cell = _cell(mean, rings[view], grid, columns, least_side)
        if len(cell.electrons) and (cell.rings > 0).all():
            cells.append(cell)
    if not cells:
        raise InputError(
            "pacbed: no part of the density has columns of atoms, which the amount is measured from"
        )
    return cells


def _views(shape: tuple[int, int], pixels: PixelGrid) -> list[tuple[slice, slice]]:
    """Returns up to two parts of a scan along each axis, evenly spread, of `PART_ANGSTROM`."""
    rows = _ranges(shape[0], pixels.step[0])
    columns = _ranges(shape[1], pixels.step[1])
    views = []
    for row_range in rows:
        for column_range in columns:
            views.append((row_range, column_range))
    return views


def _ranges(length: int, step: float) -> list[slice]:
    """Returns the parts of one axis."""
    size = min(length, round(PART_ANGSTROM / step))
    count = max(1, min(MOST_PARTS, length // size))
    ranges = []
    for index in range(count):
        start = int((index + 0.5) / count * (length - size))
        ranges.append(slice(start, start + size))
    return ranges


def _cell(
    image: Floats, rings: Floats, grid: PixelGrid, columns: Columns, least_side: float
) -> RepeatingCell:
    """Returns the part of an image that repeats best along both axes.

    Its edges are where columns are farthest from both, so that a column at an edge is not counted
    twice or left out.
    """
    corner = np.empty(2)
    extent = np.empty(2)
    view = []
    for axis, (length, step) in enumerate(zip(image.shape, grid.step, strict=True)):
        side = step * _period(np.moveaxis(image, axis, 0), least_side / step, step)
        edge = _farthest_edge(columns.yx[:, axis], length, step, side)
        extent[axis] = side
        corner[axis] = edge
        start = max(int(np.ceil(edge / step)), 0)
        stop = int(np.ceil(edge / step)) + round(side / step)
        view.append(slice(start, stop))
    inside = np.all((columns.yx >= corner) & (columns.yx < corner + extent), axis=1)
    electrons = columns.electrons[inside]
    # of the columns: a network's background is no atoms
    density = float(electrons.sum() / extent.prod())
    return RepeatingCell(
        columns.yx[inside] - corner,
        electrons,
        (float(extent[0]), float(extent[1])),
        density,
        np.nanmean(rings[tuple(view)], axis=(0, 1)),
        columns.left,
    )


def _farthest_edge(places: Floats, length: int, step: float, side: float) -> float:
    """Returns the edge of a cell, Å, whose both sides are farthest from columns.

    Args:
        places: Of the columns along the axis, Å.
        length: Positions of the image along it.
        side: Length of the cell along it, Å.
    """
    edges = step * (np.linspace(0, length - side / step, _EDGES) - 0.5)
    both_edges = np.stack([edges, edges + side])[..., None]
    distance = np.abs(both_edges - places).min(axis=(0, 2), initial=np.inf)
    return float(edges[distance.argmax()])


def _period(lines: Floats, least: float, step: float) -> float:
    """Returns the distance along the first axis at which an image repeats best, in pixels.

    Args:
        lines: The image.
        least: The smallest distance, pixels.
        step: Size of a pixel, Å.

    Raises:
        InputError: If the image is too small.
    """
    length = len(lines)
    low = int(np.ceil(least))
    if length < low:
        raise InputError(
            f"the scan is {length * step:.1f} Å wide, and pacbed needs {least * step:.1f} Å or more"
        )
    longest = round(max(CELL_ANGSTROM[1] / step, 1.3 * least))
    high = min(length - _COMMON_POSITIONS, longest)
    misfits = {}
    for distance in range(low - 1, high + 2):
        misfits[distance] = float(np.mean((lines[distance:] - lines[:-distance]) ** 2))
    best = min(range(low, high + 1), key=lambda distance: misfits[distance], default=low)
    misfit_before = misfits.get(best - 1, np.inf)
    at_best = misfits.get(best, np.inf)
    after = misfits.get(best + 1, np.inf)
    curvature = misfit_before - 2 * at_best + after
    if not np.isfinite(curvature) or at_best > min(misfit_before, after) or not curvature:
        return float(best)
    return best + 0.5 * (misfit_before - after) / curvature
