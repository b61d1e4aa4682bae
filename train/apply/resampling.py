"""Checks whether a scan fits a network and resamples it to what the network was trained on.

Energy and semiangle cannot be changed. The intensity of a detector pixel is divided among the
network's pixels by area, so that no electron that lands on them is lost. Scan positions are
interpolated linearly; if the scan is much finer than the network's, neighbours within half a step
of the network's are averaged, which reduces noise and blurs little compared with the step.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse

from namsa.base.arrays import Pair
from namsa.base.errors import InputError
from namsa.io.calibration import FourDData, circle_from_ellipse

from ..experiment.conditions import Conditions
from .nearest import nearest_networks

# Relative deviations: accepted ones of energy and semiangle, and the one below which sampling
# counts as the same.
ENERGY = 0.02
SEMIANGLE = 0.05
SAME = 0.02
COARSEST = 2.0  # in steps or pixels of the network: coarser data hold too little information
_SLIP = ". Is it in rad?"
_PARTS = 4  # a pixel of a rotated detector is divided into 4×4 parts


@dataclass(frozen=True)
class ResamplingPlan:
    """The changes of a scan before the network sees it."""

    # Fraction of each pixel of the data that falls on each pixel of the network, `(network's
    # pixels, data's pixels)`.
    binning: sparse.csr_array
    # Weights of the scan's rows in the network's rows, `(network's rows, data's rows)`; rows sum to
    # 1.
    along_y: sparse.csr_array
    along_x: sparse.csr_array  # the same for columns
    step_angstrom: Pair  # distance between the network's positions, (y, x), Å
    notes: tuple[str, ...]  # one line per observation or operation

    @property
    def scan_shape(self) -> tuple[int, int]:
        """Number of the network's positions, (y, x)."""
        return self.along_y.shape[0], self.along_x.shape[0]


def check_fit(data: FourDData, conditions: Conditions, name: str, task: str = "density") -> None:
    """Checks what no resampling can change.

    Args:
        conditions: What the network was trained for.
        name: Name of the data in the message.
        task: Task of the network, of which the message names others.

    Raises:
        InputError: If the data do not fit; it names everything that does not.
    """
    faults = _faults(data, conditions)
    if len(faults) == 1 and _SLIP in faults[0]:
        raise InputError(f"{name} does not fit the network: {faults[0]}")
    if faults:
        known = nearest_networks(
            data.energy_ev, data.semiangle_mrad, task, lambda other: not _faults(data, other)
        )
        raise InputError(
            f"{name} does not fit the network: {'; '.join(faults)}: use one trained for it. {known}"
        )


def _faults(data: FourDData, conditions: Conditions) -> list[str]:
    """Returns what of the data no resampling brings to the conditions of a network."""
    faults = []
    for quantity, unit, value, trained, tolerance in (
        ("energy", "keV", data.energy_ev / 1e3, conditions.energy_ev / 1e3, ENERGY),
        ("semiangle", "mrad", data.semiangle_mrad, conditions.semiangle_mrad, SEMIANGLE),
    ):
        if abs(value / trained - 1) <= tolerance:
            continue
        fault = f"{quantity} {value:g} {unit}, trained for {trained:g} ± {100 * tolerance:g} %"
        if unit == "mrad" and abs(1e3 * value / trained - 1) <= tolerance:
            fault += f"{_SLIP} Then give {1e3 * value:g}"
        faults.append(fault)
    for quantity, unit, pair, trained_pair in (
        ("scan step", "Å", data.scan_step_angstrom, conditions.scan_step_angstrom),
        ("detector pixel", "mrad", data.pixel_mrad, conditions.pixel_mrad),
    ):
        limits = [COARSEST * trained for trained in trained_pair]
        if any(value > (1 + SAME) * limit for value, limit in zip(pair, limits, strict=True)):
            faults.append(f"{quantity} {_pair(pair)} {unit}, at most {_pair(limits)}")
    return faults


def plan_resampling(
    data: FourDData, centre: Pair, conditions: Conditions, name: str
) -> ResamplingPlan:
    """Plans how a scan with its axis at pixel (y, x) is resampled. Raises InputError if it does not
    fit.
    """
    check_fit(data, conditions, name)
    binning, notes = _binning(data, centre, conditions, name)
    size_y, size_x = data.shape[:2]
    step_y, step_x = data.scan_step_angstrom
    trained_y, trained_x = conditions.scan_step_angstrom
    along_y, y = hat_weights(size_y, step_y, trained_y)
    along_x, x = hat_weights(size_x, step_x, trained_x)
    lines = [
        f"energy {data.energy_ev / 1e3:g} keV and semiangle {data.semiangle_mrad:g} mrad fit "
        f"({conditions.energy_ev / 1e3:g}, {conditions.semiangle_mrad:g})",
        *notes,
    ]
    if (y, x) == data.scan_step_angstrom:
        lines.append(f"scan step {_pair((y, x))} Å fits ({_pair(conditions.scan_step_angstrom)})")
    else:
        lines.append(
            f"scan resampled from steps of {_pair(data.scan_step_angstrom)} Å to {_pair((y, x))} "
            f"Å: {along_y.shape[0]}×{along_x.shape[0]} positions"
        )
    return ResamplingPlan(binning, along_y, along_x, (y, x), tuple(lines))


def hat_weights(size: int, step: float, trained: float) -> tuple[sparse.csr_array, float]:
    """Returns the weights that resample one axis of a scan.

    The weights are a hat about each new position, whose half width is the old step or half the new
    one, whichever is larger. Positions stay as they are if the steps are the same to `SAME`.

    Args:
        step: Their distance, Å.
        trained: The distance that the network was trained with, Å.

    Returns:
        Weights `(new positions, size)`, and the distance of the new positions, Å.
    """
    ratio = trained / step
    if abs(ratio - 1) <= SAME:
        return sparse.eye_array(size, dtype=np.float32, format="csr"), step
    positions = np.arange(int((size - 1) / ratio + 1e-9) + 1) * ratio
    width = max(1.0, ratio / 2)
    weights = np.clip(1 - np.abs(np.arange(size) - positions[:, None]) / width, 0, None)
    return sparse.csr_array(
        (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    ), trained


def resampled(
    weights: sparse.csr_array, patterns: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Returns patterns at new positions along one axis of a scan.

    Args:
        weights: Weights of the positions in each new one, `(new positions, positions)`, whose rows
            sum to 1.
        patterns: `(positions, others, pixels)`; NaN where a pattern is lost.

    Returns:
        `(new positions, others, pixels)`; NaN where less than half of the weight is that of
            recorded patterns, which
        elsewhere stand for the lost ones.
    """
    shape = (-1, *patterns.shape[1:])
    lost = np.isnan(patterns[..., 0])
    if not lost.any():
        return (weights @ patterns.reshape(len(patterns), -1)).reshape(shape)
    kept = np.where(lost[..., None], np.float32(0), patterns).reshape(len(patterns), -1)
    share = (weights @ (~lost).astype(np.float32))[..., None]
    result = (weights @ kept).reshape(shape) / np.maximum(share, np.float32(0.5))
    result[share[..., 0] < 0.5] = np.nan
    return np.asarray(result)


def _binning(
    data: FourDData, centre: Pair, conditions: Conditions, name: str
) -> tuple[sparse.csr_array, list[str]]:
    """Returns the matrix of the detector's pixels, as in `ResamplingPlan`, and notes about it.
    Raises InputError if the detector is too small.
    """
    matrix = _pixel_overlap(data, centre, conditions)
    covered = matrix.sum(axis=1) * np.prod(data.pixel_mrad) / np.prod(conditions.pixel_mrad)
    missing = covered < 0.5
    in_reach = (_scattering_angles(conditions) < conditions.reach_mrad).ravel()
    if (missing & in_reach).any():
        reach = _least_reach_mrad(data, centre)
        raise InputError(
            f"{name} does not fit the network: its detector reaches {reach:.1f} mrad from the "
            f"optic axis at pixel ({centre[0]:.1f}, {centre[1]:.1f}), the network's "
            f"{conditions.reach_mrad:.1f} mrad: use a network with a smaller detector, or give "
            "--centre-pixels where that is not the axis"
        )
    notes = _detector_notes(data, conditions)
    if missing.any():
        notes.append(
            f"{missing.sum()} of {missing.size} network pixels, in the corners, get nothing and "
            "count as dark"
        )
    return matrix, notes


def _pixel_overlap(data: FourDData, centre: Pair, conditions: Conditions) -> sparse.csr_array:
    """Returns the fraction of each pixel of the data that falls on each pixel of the network."""
    if data.rotation_deg or data.flip or data.ellipse:
        return rotated_overlap(
            data.shape[2:],
            data.pixel_mrad,
            centre,
            data.rotation_deg,
            data.flip,
            conditions,
            data.ellipse,
        )
    along_axes = []
    for axis in range(2):
        fractions = overlap(
            data.shape[2 + axis],
            data.pixel_mrad[axis],
            centre[axis],
            conditions.detector_shape[axis],
            conditions.pixel_mrad[axis],
            conditions.first_edge[axis],
        )
        along_axes.append(fractions)
    y, x = along_axes
    return sparse.csr_array(sparse.kron(y, x, format="csr"))


def _least_reach_mrad(data: FourDData, centre: Pair) -> float:
    """Returns the distance of the optic axis from the nearest edge of the detector, mrad."""
    reaches = []
    for pixels, at, pixel_mrad in zip(data.shape[2:], centre, data.pixel_mrad, strict=True):
        reaches.append(min(at + 0.5, pixels - 0.5 - at) * pixel_mrad)
    return min(reaches)


def _detector_notes(data: FourDData, conditions: Conditions) -> list[str]:
    """Returns what was done to the detector's pixels, a line each."""
    notes = [
        *data.notes,
        f"detector pixels of {_pair(data.pixel_mrad)} mrad shared out among the network's "
        f"{'×'.join(map(str, conditions.detector_shape))} of {_pair(conditions.pixel_mrad)} mrad",
    ]
    if data.rotation_deg or data.flip:
        exchanged = " after exchanging y and x" if data.flip else ""
        notes.append(f"detector turned by {data.rotation_deg:g}°{exchanged}")
    elif not data.rotation_stated:
        notes.append("detector's rotation: not stated, taken as none; namsa inspect measures it")
    if data.ellipse:
        ratio, axis_deg = data.ellipse
        notes.append(f"detector's ellipse, {ratio:.4f} along {axis_deg:.1f}°, made a circle")
    return notes


def _scattering_angles(conditions: Conditions) -> npt.NDArray[np.float64]:
    """Returns the angle of each of the network's pixels, mrad."""
    axes = zip(conditions.detector_shape, conditions.first_edge, conditions.pixel_mrad, strict=True)
    y, x = ((np.arange(count) + edge + 0.5) * pixel for count, edge, pixel in axes)
    return np.hypot(y[:, None], x)


def in_bright_disk(conditions: Conditions) -> npt.NDArray[np.bool_]:
    """Returns whether each of the network's pixels lies in the bright disk, `(pixels,)`."""
    return (_scattering_angles(conditions) < conditions.semiangle_mrad).ravel()


def overlap(
    n: int, pixel: float, centre: float, count: int, size: float, edge: float
) -> npt.NDArray[np.float32]:
    """Returns the fraction of each pixel of one axis that falls on each pixel of another, `(count,
    n)`.

    Args:
        n: Number of pixels to be divided.
        pixel: Their size, mrad.
        centre: The optic axis in these pixels.
        count: Number of pixels that they fall on.
        size: Their size, mrad.
        edge: Outer edge of the first of them, in pixels from the optic axis.
    """
    low = (np.arange(n) - 0.5 - centre) * pixel
    edges = (np.arange(count + 1) + edge) * size
    shared = np.minimum(low + pixel, edges[1:, None]) - np.maximum(low, edges[:-1, None])
    return (np.clip(shared, 0, None) / pixel).astype(np.float32)


def rotated_overlap(
    shape: tuple[int, ...],  # pixels of the detector, (y, x)
    pixel_mrad: Pair,  # their size, (y, x), mrad
    centre: Pair,  # the optic axis, (y, x), pixels
    # rotation from the detector's frame to the scan's, degrees; see `namsa.io.calibration`
    rotation_deg: float,
    flip: bool,  # whether y and x are exchanged first
    conditions: Conditions,  # what the network was trained on
    # the bright disk's, which is made a circle before; see `namsa.io.calibration`
    ellipse: Pair | None = None,
) -> sparse.csr_array:
    """Returns the fractions of `overlap` for a rotated detector, `(network's pixels, detector's
    pixels)`.
    """
    # The middles of the parts of pixels, mrad from the optic axis.
    middles = []
    for size, at, pixel in zip(shape, centre, pixel_mrad, strict=True):
        middles.append(((np.arange(size * _PARTS) + 0.5) / _PARTS - 0.5 - at) * pixel)
    y, x = np.meshgrid(*middles, indexing="ij")
    if ellipse:
        y, x = np.tensordot(circle_from_ellipse(ellipse), np.stack([y, x]), 1)
    if flip:
        y, x = x, y
    angle = np.deg2rad(rotation_deg)
    rotated_y = y * np.cos(angle) - x * np.sin(angle)
    rotated_x = y * np.sin(angle) + x * np.cos(angle)
    pixel_y, pixel_x = conditions.pixel_mrad
    edge_y, edge_x = conditions.first_edge
    row = np.floor(rotated_y / pixel_y - edge_y).astype(np.intp).ravel()
    column = np.floor(rotated_x / pixel_x - edge_x).astype(np.intp).ravel()
    rows, columns = conditions.detector_shape
    inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
    pixels = np.arange(shape[0] * shape[1]).reshape(shape[0], shape[1])
    source = np.repeat(np.repeat(pixels, _PARTS, axis=0), _PARTS, axis=1).ravel()
    parts = np.full(int(inside.sum()), 1 / _PARTS**2, np.float32)
    target = (row * columns + column)[inside]
    matrix = sparse.coo_array(
        (parts, (target, source[inside])), shape=(rows * columns, pixels.size)
    )
    return sparse.csr_array(matrix)


def _pair(values: npt.ArrayLike) -> str:
    """Formats two numbers, or one if they are the same."""
    y, x = np.asarray(values, float)
    return f"{y:.3g}" if np.isclose(y, x) else f"{y:.3g} and {x:.3g}"
