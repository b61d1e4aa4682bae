"""The step of the scan from a lattice that shows in its images: peaks of Fourier transforms against
known ones.
"""

import itertools
from dataclasses import dataclass

import ase
import numpy as np
from scipy import ndimage

from namsa.base.arrays import Floats
from namsa.crystals.symmetry import ZoneAxis, simplest_zone_axes
from namsa.inspection.spectra import frequencies, windowed_transform
from namsa.physics.grid import hann_window

AXES = 6  # zone axes that are tried if none is named
MOST_PEAKS = 12
STRENGTH = 100.0  # power of a peak over the median at frequencies of about the same size
RANGE = 0.12  # by which the step may be wrong
LEAST_ERROR = 5e-4  # of the step: the window moves the peaks of others
FIT = 0.03  # by which the ratio of two lengths, and angles in rad, may differ from the crystal's
WEAKEST = 0.02  # structure factor, of the strongest one, with which a reflection counts


@dataclass(frozen=True)
class StepFit:
    """Step of the scan from a lattice."""

    factors: Floats  # True step over the assumed one, (y, x)
    errors: Floats  # their standard errors
    peaks: int  # number of peaks that the lattice explains
    peaks_in_images: int  # number of all peaks
    described: str  # the lattice, for people


def find_peaks(images: Floats) -> Floats:
    """Finds the frequencies of lattices that images `(m, sy, sx)`, scaled to the same variance,
    have in common.

    Returns:
        Frequencies of the strongest peaks, one of each pair k and −k, strongest first, `(n, 2)`,
        cycles per step.
    """
    _, sy, sx = images.shape
    spread = images.std(axis=(1, 2), keepdims=True)
    scaled = images[spread.ravel() > 0] / spread[spread > 0][:, None, None]
    if not len(scaled) or min(sy, sx) < 12:
        return np.empty((0, 2))
    power = (np.abs(windowed_transform(scaled)) ** 2).sum(axis=0)
    ky, kx = frequencies((sy, sx))
    size = np.hypot(ky, kx)
    rings = np.round(size * min(sy, sx) / 3).astype(int)
    background = ndimage.median(power, rings, range(rings.max() + 1))[rings]
    peak = (power == ndimage.maximum_filter(power, 5, mode="wrap")) & (
        power > STRENGTH * background
    )
    peak &= (size > 2.5 / min(sy, sx)) & (size < 0.48) & ((ky > 0) | ((ky == 0) & (kx > 0)))
    rows, columns = np.nonzero(peak)
    order = np.argsort(-power[rows, columns])[:MOST_PEAKS]
    return np.array(
        [
            _refined(scaled, ky[row, 0], kx[0, column])
            for row, column in zip(rows[order], columns[order], strict=True)
        ]
    ).reshape(-1, 2)


def _refined(images: Floats, ky: float, kx: float) -> tuple[float, float]:
    """Returns the frequency of the largest power near (ky, kx), to a thousandth of 1/size."""
    _, sy, sx = images.shape
    values = (images - images.mean(axis=(1, 2), keepdims=True)) * hann_window((sy, sx))
    reach = 1.0
    for _ in range(4):
        offsets = np.linspace(-reach, reach, 11)
        fy = ky + offsets / sy
        fx = kx + offsets / sx
        rows = np.exp(-2j * np.pi * np.outer(fy, np.arange(sy)))
        columns = np.exp(-2j * np.pi * np.outer(np.arange(sx), fx))
        power = (np.abs(rows @ values @ columns) ** 2).sum(axis=0)
        y, x = np.unravel_index(power.argmax(), power.shape)
        ky = float(fy[y])
        kx = float(fx[x])
        reach = reach / 5
    return ky, kx


def step_from_spacing(
    peaks: Floats, step_angstrom: tuple[float, float], spacing_angstrom: float
) -> StepFit | None:
    """Scales the assumed step (y, x), Å, so that the strongest peak near a known spacing, Å, has
    it.

    Returns:
        The fit, or `None` if no peak is within `RANGE` of the spacing.
    """
    spacings = np.array([1 / np.hypot(*(peak / step_angstrom)) for peak in peaks])
    near = np.flatnonzero(np.abs(spacings / spacing_angstrom - 1) < RANGE)
    if not len(near):
        return None
    factors = spacing_angstrom / spacings[near]
    same = factors[np.abs(factors / factors[0] - 1) < FIT]
    error = max(float(same.std(ddof=1) / np.sqrt(len(same))) if len(same) > 1 else 0.0, 0.003)
    return StepFit(
        np.full(2, same.mean()),
        np.full(2, error),
        len(same),
        len(peaks),
        f"spacing of {spacing_angstrom:g} Å",
    )


def step_from_crystal(
    peaks: Floats,
    step_angstrom: tuple[float, float],
    atoms: ase.Atoms,
    zone_axis: ZoneAxis | None = None,
) -> StepFit | None:
    """Fits the lattice of a crystal along a zone axis to the peaks.

    Args:
        zone_axis: Its zone axis along the beam; by default the simplest ones are tried.

    Returns:
        The fit that explains most peaks with the step nearest to the assumed one, or `None` if none
        explains two peaks in different directions.
    """
    measured = peaks / np.asarray(step_angstrom)
    best: tuple[tuple[int, float], StepFit] | None = None
    for axis in [zone_axis] if zone_axis else simplest_zone_axes(atoms, AXES):
        reflections = _reflections(
            atoms, axis, float(np.hypot(*measured.T).max(initial=0)) * (1 + RANGE)
        )
        for first, second in itertools.permutations(range(min(len(measured), 4)), 2):
            fit = _match(measured, first, second, reflections)
            if fit is None:
                continue
            factors, errors, explained = fit
            rank = (explained, -float(np.abs(np.log(factors)).max()))
            if best is None or rank > best[0]:
                text = f"lattice along [{' '.join(map(str, axis))}]"
                best = rank, StepFit(factors, errors, explained, len(peaks), text)
    return None if best is None else best[1]


def _reflections(atoms: ase.Atoms, axis: ZoneAxis, largest: float) -> Floats:
    """Returns the reflections of a zone as vectors across it, `(n, 2)`, 1/Å, without the weak
    ones.
    """
    reciprocal = np.asarray(atoms.cell.reciprocal())
    beam = np.asarray(axis) @ np.asarray(atoms.cell)
    beam = beam / np.linalg.norm(beam)
    limits = np.ceil(largest * np.asarray(atoms.cell.lengths())).astype(int)
    indices = np.array(list(itertools.product(*(range(-n, n + 1) for n in limits))))
    indices = indices[(indices @ np.asarray(axis) == 0) & (np.abs(indices).sum(axis=1) > 0)]
    vectors = indices @ reciprocal
    kept = np.linalg.norm(vectors, axis=1) <= largest
    indices = indices[kept]
    vectors = vectors[kept]
    phases = np.exp(2j * np.pi * indices @ atoms.get_scaled_positions(wrap=False).T)
    strength = np.abs(phases @ atoms.numbers)
    across = np.linalg.svd(beam[None])[2][1:]
    if np.linalg.det(np.vstack([across, beam])) < 0:
        across = across[::-1]
    strong = strength > WEAKEST * atoms.numbers.sum()
    return np.asarray(vectors[strong] @ across.T)


def _match(
    measured: Floats, first: int, second: int, reflections: Floats
) -> tuple[Floats, Floats, int] | None:
    """Returns factors of the step, their errors and the number of peaks explained, for two peaks
    taken as a basis.
    """
    a = measured[first]
    b = measured[second]
    if abs(a[0] * b[1] - a[1] * b[0]) < 0.2 * np.hypot(*a) * np.hypot(*b) or not len(reflections):
        return None
    lengths = np.hypot(*reflections.T)
    near = [np.flatnonzero(np.abs(np.hypot(*v) / lengths - 1) < RANGE) for v in (a, b)]
    best = None
    for i, j in itertools.product(*near):
        pair = np.stack([reflections[i], reflections[j]], axis=1)
        if abs(np.linalg.det(pair)) < 1e-9:
            continue
        linear = np.stack([a, b], axis=1) @ np.linalg.inv(pair)
        metric = linear @ linear.T
        scale = np.sqrt(np.abs(np.linalg.det(linear)))
        if np.abs(metric / scale**2 - np.eye(2)).max() > 2 * FIT:
            continue
        predicted = reflections @ linear.T
        distance = np.hypot(*np.moveaxis(measured[:, None] - predicted, -1, 0))
        nearest = distance.argmin(axis=1)
        good = distance[np.arange(len(measured)), nearest] < FIT * np.hypot(*measured.T)
        rank = (int(good.sum()), -abs(float(np.log(scale))))
        if best is None or rank > best[0]:
            best = rank, reflections[nearest[good]], measured[good]
    if best is None:
        return None
    (explained, _), known, seen = best
    linear = np.linalg.lstsq(known, seen, rcond=None)[0].T
    residuals = seen - known @ linear.T
    variance = (residuals**2).sum() / max(2 * len(seen) - 4, 1) + 1e-8 * float((seen**2).mean())
    error = np.sqrt(variance / np.linalg.eigvalsh(known.T @ known)[0])
    factors = np.sqrt(np.diag(linear @ linear.T))
    return factors, np.full(2, float(np.hypot(error, LEAST_ERROR))), explained
