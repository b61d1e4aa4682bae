"""Whether a scan fits what a network was trained for, and the matrices that bring it there.

The energy and the semiangle cannot be changed. A detector's pixels are shared out by area among the network's, so that
no electron is lost that lands there; positions between those that were scanned are interpolated linearly, and of a
much finer scan the neighbours within half a step of the network's are averaged: less noise, and a blur that is small
beside the step.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import sparse

from namsa.errors import InputError
from namsa.io.foreign import Patterns
from train.experiment.conditions import Conditions

Pair = tuple[float, float]

ENERGY, SEMIANGLE, SAME = 0.02, 0.05, 0.02  # relative: what does no harm, and what counts as the same sampling
COARSEST = 2.0  # of the network's step or pixel: coarser data hold too little
_PARTS = 4  # a turned pixel is shared out in 4×4 parts


@dataclass(frozen=True)
class Plan:
    """What is done to a scan before the network sees it.

    binning: (network's pixels, data's pixels), the part of each that lands on each
    down, along: (network's positions, data's positions) along y and x, rows that sum to 1
    step_angstrom: between the network's positions
    said: a line about each thing that was found or is done
    """

    binning: sparse.csr_array
    down: sparse.csr_array
    along: sparse.csr_array
    step_angstrom: Pair
    said: tuple[str, ...]


def check(data: Patterns, trained: Conditions, path: Path) -> None:
    """Raises InputError that names everything in which `data` does not fit and nothing can be done about."""
    faults = []
    for name, unit, found, wanted, tolerance in (
        ("energy", "keV", data.energy_ev / 1e3, trained.energy_ev / 1e3, ENERGY),
        ("semiangle", "mrad", data.semiangle_mrad, trained.semiangle_mrad, SEMIANGLE),
    ):
        if abs(found / wanted - 1) > tolerance:
            faults.append(f"{name} {found:g} {unit}, trained for {wanted:g} ± {100 * tolerance:g} %")
    for name, unit, pair, limits in (
        ("scan step", "Å", data.scan_step_angstrom, trained.scan_step_angstrom),
        ("detector pixel", "mrad", data.pixel_mrad, trained.pixel_mrad),
    ):
        if any(found > COARSEST * wanted for found, wanted in zip(pair, limits, strict=True)):
            faults.append(f"{name} {_pair(pair)} {unit}, at most {_pair([COARSEST * limit for limit in limits])}")
    if faults:
        raise InputError(f"{path} does not fit the network: {'; '.join(faults)}: use one trained for it")


def plan(data: Patterns, centre: Pair, trained: Conditions, path: Path) -> Plan:
    """How `data`, with the optic axis at `centre` (pixels), becomes what the network takes. Raises as `check`."""
    check(data, trained, path)
    binning, said = _binning(data, centre, trained, path)
    (down, y), (along, x) = (
        hat(size, found, wanted)
        for size, found, wanted in zip(data.shape, data.scan_step_angstrom, trained.scan_step_angstrom, strict=False)
    )
    lines = [
        f"energy {data.energy_ev / 1e3:g} keV and semiangle {data.semiangle_mrad:g} mrad fit "
        f"({trained.energy_ev / 1e3:g}, {trained.semiangle_mrad:g})",
        *said,
    ]
    if (y, x) == data.scan_step_angstrom:
        lines.append(f"scan step {_pair((y, x))} Å fits ({_pair(trained.scan_step_angstrom)})")
    else:
        lines.append(
            f"scan resampled from steps of {_pair(data.scan_step_angstrom)} Å to {_pair((y, x))} Å: "
            f"{down.shape[0]}×{along.shape[0]} positions"
        )
    return Plan(binning, down, along, (y, x), tuple(lines))


def hat(size: int, step: float, wanted: float) -> tuple[sparse.csr_array, float]:
    """Weights (positions `wanted` apart, `size` positions `step` apart) and the step they lead to.

    A hat about each new position, as wide to either side as the old step or half the new one, whichever is more.
    """
    ratio = wanted / step
    if abs(ratio - 1) <= SAME:
        return sparse.eye_array(size, dtype=np.float32, format="csr"), step
    at = np.arange(int((size - 1) / ratio + 1e-9) + 1) * ratio
    width = max(1.0, ratio / 2)
    weights = np.clip(1 - np.abs(np.arange(size) - at[:, None]) / width, 0, None)
    return sparse.csr_array((weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)), wanted


def _binning(data: Patterns, centre: Pair, trained: Conditions, path: Path) -> tuple[sparse.csr_array, list[str]]:
    if data.rotation_deg or data.flip:
        matrix = turned(data.shape[2:], data.pixel_mrad, centre, data.rotation_deg, data.flip, trained)
    else:
        rows = zip(data.shape[2:], data.pixel_mrad, centre, trained.detector_shape, trained.pixel_mrad, strict=True)
        y, x = (
            overlap(n, pixel, at, count, size, edge)
            for (n, pixel, at, count, size), edge in zip(rows, trained.first_edge, strict=True)
        )
        matrix = sparse.csr_array(sparse.kron(y, x, format="csr"))
    said = [
        f"detector pixels of {_pair(data.pixel_mrad)} mrad shared out among the network's "
        f"{'×'.join(map(str, trained.detector_shape))} of {_pair(trained.pixel_mrad)} mrad"
    ]
    if data.rotation_deg or data.flip:
        said.append(f"detector turned by {data.rotation_deg:g}°{' after exchanging y and x' * data.flip}")
    covered = matrix.sum(axis=1) * np.prod(data.pixel_mrad) / np.prod(trained.pixel_mrad)
    missing = covered < 0.5
    if (missing & (_angles(trained) < trained.reach_mrad).ravel()).any():
        reach = min(
            min(at + 0.5, n - 0.5 - at) * pixel
            for n, at, pixel in zip(data.shape[2:], centre, data.pixel_mrad, strict=True)
        )
        raise InputError(
            f"{path} does not fit the network: its detector reaches {reach:.1f} mrad from the optic axis at pixel "
            f"({centre[0]:.1f}, {centre[1]:.1f}), the network's {trained.reach_mrad:.1f} mrad: use a network with a "
            "smaller detector, or give --centre-pixels where that is not the axis"
        )
    if missing.any():
        said.append(f"{missing.sum()} of {missing.size} network pixels, in the corners, get nothing and count as dark")
    return matrix, said


def _angles(trained: Conditions) -> npt.NDArray[np.float64]:
    y, x = (
        (np.arange(count) + first + 0.5) * pixel
        for count, first, pixel in zip(trained.detector_shape, trained.first_edge, trained.pixel_mrad, strict=True)
    )
    return np.hypot(y[:, None], x)


def bright(trained: Conditions) -> npt.NDArray[np.bool_]:
    """Which of the network's pixels, in one row, lie in the bright disk."""
    return (_angles(trained) < trained.semiangle_mrad).ravel()


def overlap(n: int, pixel: float, centre: float, count: int, size: float, edge: float) -> npt.NDArray[np.float32]:
    """(count, n): the part of each of `n` pixels, with the optic axis at `centre`, that lies on each of `count`."""
    low = (np.arange(n) - 0.5 - centre) * pixel
    edges = (np.arange(count + 1) + edge) * size
    shared = np.minimum(low + pixel, edges[1:, None]) - np.maximum(low, edges[:-1, None])
    return (np.clip(shared, 0, None) / pixel).astype(np.float32)


def turned(
    shape: tuple[int, ...], pixel: Pair, centre: Pair, rotation_deg: float, flip: bool, trained: Conditions
) -> sparse.csr_array:
    """As `overlap` for both axes, of a detector that is turned; see `namsa.io.foreign`."""
    fine = [
        ((np.arange(n * _PARTS) + 0.5) / _PARTS - 0.5 - at) * size
        for n, at, size in zip(shape, centre, pixel, strict=True)
    ]
    y, x = np.meshgrid(*fine, indexing="ij")
    if flip:
        y, x = x, y
    angle = np.deg2rad(rotation_deg)
    y, x = y * np.cos(angle) - x * np.sin(angle), y * np.sin(angle) + x * np.cos(angle)
    row, column = (
        np.floor(along / size - first).astype(np.intp).ravel()
        for along, size, first in zip((y, x), trained.pixel_mrad, trained.first_edge, strict=True)
    )
    rows, columns = trained.detector_shape
    there = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
    pixels = np.arange(shape[0] * shape[1]).reshape(shape[0], shape[1])
    source = np.repeat(np.repeat(pixels, _PARTS, axis=0), _PARTS, axis=1).ravel()
    parts = np.full(int(there.sum()), 1 / _PARTS**2, np.float32)
    matrix = sparse.coo_array(
        (parts, ((row * columns + column)[there], source[there])), shape=(rows * columns, pixels.size)
    )
    return sparse.csr_array(matrix)


def _pair(values: npt.ArrayLike) -> str:
    y, x = np.asarray(values, float)
    return f"{y:.3g}" if np.isclose(y, x) else f"{y:.3g} and {x:.3g}"
