"""Scans of the specimens of `specimen_cases.py`, by namsa or abTEM, with faults of the instrument.

abTEM's scans are those of another program with other physics: scattering factors of Kirkland,
potentials of finite atoms in each slice, and vibrations in which neighbours move together. namsa's
have the factors of Lobato, potentials of whole atoms, and atoms that vibrate independently.

Faults, alone and together:

detector    The point spread of the detector has tails: of an electron 0.75 stay in the pixel, 0.15
            spread over 0.7 pixels (Gaussian), 0.1 over 5 pixels (exponential).
counting    A tenth of the electrons of the brightest pixel is lost.
inelastic   A tenth of the beam has lost energy: 0.08 spread by a Lorentzian of 1.5 mrad, 0.02 over
            25 mrad (Gaussian).
drift       The positions are not affine: up to 0.6 Å along a parabola, and 0.06 Å (rms) of jitter.
focus       The focus varies by 25 Å (rms).
tails       0.15 of the source is three times as wide.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ase
import frame
import h5py
import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from reality_cases import DETECTOR, MAX_Q, ORIGIN, PIXEL_MRAD, PIXELS, STEP, Condition
from scipy.ndimage import gaussian_filter
from scipy.signal import fftconvolve
from scipy.spatial import cKDTree
from specimen_cases import BEYOND, CONFIGURATIONS, MAX_DETECTED_MRAD, SCAN, Drawn

import namsa
from namsa.base.arrays import Array
from namsa.config.instrument import Detector
from namsa.config.specimen import FrozenPhonons
from namsa.inverse.source_blur import blurred
from namsa.physics import density_target
from namsa.physics.coherence import FWHM
from namsa.physics.grid import Grid

FAULTS = ("detector", "counting", "inelastic", "drift", "focus", "tails")
VARIANTS = ("none", *FAULTS, "together")
PHYSICS = ("namsa", "abtem")
ABTEM = ("abtem==1.0.11", "pyfftw==0.15.1", "scipy")

RASTER = (SCAN[0] + 2 * BEYOND, SCAN[1] + 2 * BEYOND)
FOCAL_SPREAD = 25.0  # Å, rms
NO_TAILS = ((1.0, 1.0),)  # shares of the source, and their widths over that of the condition
TAILS = ((0.85, 1.0), (0.15, 3.0))
NEIGHBOURS_ANGSTROM = 2.5  # over which vibrations are alike
ABTEM_PIXEL = 0.1  # Å
ABTEM_SLICE = 1.5  # Å


def path_of(drawn: Drawn, physics: str, variant: str, folder: Path) -> Path:
    """Returns the file of a scan."""
    of_physics = "" if physics == "namsa" else f"-{physics}"
    of_variant = "" if variant == "none" else f"-{variant}"
    return folder / f"{drawn.name}{of_physics}{of_variant}.h5"


def write(drawn: Drawn, path: Path, physics: str = "namsa", variant: str = "none") -> None:
    """Simulates a scan and writes it with the true density at its positions.

    The source is a blur of the patterns of a raster that is larger than the scan.

    Args:
        drawn: The specimen, and how it is looked at.
        path: The file, with "patterns" and "truth".
        physics: One of `PHYSICS`.
        variant: One of `VARIANTS`.
    """
    faults = FAULTS if variant == "together" else (variant,)
    rng = np.random.default_rng(5)
    condition = drawn.condition
    positions = raster_positions(SCAN[0], STEP, BEYOND)
    if "drift" in faults:
        positions = _drifted(positions, rng)
    defoci = np.array([condition.defocus])
    weights = np.ones(1)
    if "focus" in faults:
        nodes, weights = hermegauss(5)
        weights /= weights.sum()
        defoci = condition.defocus + FOCAL_SPREAD * nodes
    simulate = _by_namsa if physics == "namsa" else _by_abtem
    patterns, density, extent = simulate(drawn, positions, defoci, weights)
    parts = TAILS if "tails" in faults else NO_TAILS
    patterns = of_source(patterns, condition.source, STEP, BEYOND, parts)
    if "inelastic" in faults:
        patterns = _spread(patterns, _inelastic_kernel())
    if "detector" in faults:
        patterns = _spread(patterns, _detector_kernel())
    patterns = counted(patterns, condition, STEP)
    if "counting" in faults:
        patterns = patterns / (1 + patterns / patterns.max() / 9)

    rows, columns = density.shape
    grid = Grid((rows, columns), extent)
    coefficients = density_target.band_limited(density.astype(np.float64), grid, MAX_Q)
    axis = ORIGIN + STEP * np.arange(SCAN[0])
    truth = density_target.at_positions(coefficients, grid, axis, axis)
    with h5py.File(path, "w") as file:
        file["patterns"] = patterns.astype(np.float32)
        file["truth"] = truth.astype(np.float32)


# ---- A scan, and the raster around it that the source needs


def raster_positions(side: int, step: float, beyond: int) -> Array:
    """Returns the positions of a raster that is larger than its scan, `(n, 2)`, Å.

    Args:
        side: Positions of the scan along each axis.
        step: Å.
        beyond: Positions of the raster beyond the scan, on each side.
    """
    axis = ORIGIN + step * (np.arange(side + 2 * beyond) - beyond)
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)


def aberrations(condition: Condition, defocus: float) -> dict[str, float]:
    """Returns the aberrations of a condition at a defocus, Å, in place of its own."""
    return {"C10": -defocus, "C12": condition.astigmatism, "phi12": 0.4}


def scattered(drawn: Drawn, max_detected_mrad: float) -> namsa.Scattering:
    """Returns the scattering of a specimen, at the pixels and slices of the default accuracy."""
    condition = drawn.condition
    return namsa.scatter(
        drawn.atoms,
        energy_ev=condition.energy_ev,
        max_angle_mrad=condition.semiangle_mrad,
        max_detected_mrad=max_detected_mrad,
        specimen_tilt_mrad=condition.tilt,
        frozen_phonons=FrozenPhonons(
            rms_angstrom=condition.vibration, configurations=CONFIGURATIONS
        ),
    )


def of_source(
    patterns: Array,
    width: float,
    step: float,
    beyond: int,
    parts: Sequence[tuple[float, float]] = NO_TAILS,
) -> Array:
    """Returns the patterns of a scan of a source that is not a point.

    Args:
        patterns: Those of `raster_positions` of a point source, `(n, dy, dx)`.
        width: Full width at half maximum of the source, Å.
        step: Å.
        beyond: Positions of the raster beyond the scan, on each side.
        parts: Share, and width over `width`, of each part of the source.

    Returns:
        `(side, side, dy, dx)`.
    """
    length = math.isqrt(len(patterns))
    raster = (length, length)
    total = np.zeros_like(patterns)
    for share, factor in parts:
        variance = (factor * width / FWHM) ** 2
        total += share * blurred(patterns, raster, (step, step), variance)
    inner = slice(beyond, -beyond)
    return total.reshape(*raster, *patterns.shape[1:])[inner, inner]


def counted(patterns: Array, condition: Condition, step: float) -> Array:
    """Returns patterns, fractions of the beam, of the dose of a condition and a step, Å."""
    assert condition.dose is not None
    electrons = condition.dose * step**2
    counts = np.random.default_rng(5).poisson(np.maximum(patterns, 0) * electrons)
    return np.asarray(counts / electrons)


def _drifted(positions: Array, rng: np.random.Generator) -> Array:
    """Returns positions with drift and jitter."""
    time = np.linspace(-1, 1, len(positions))[:, None]
    drift = 0.6 * (time**2 - 0.5) * np.array([0.6, -0.8])
    return np.asarray(positions + drift + rng.normal(scale=0.06, size=positions.shape))


# ---- Patterns of a point source, `(n, dy, dx)`, density, e/Å², and extent (y, x), Å

Simulated = tuple[Array, Array, tuple[float, float]]


def _by_namsa(drawn: Drawn, positions: Array, defoci: Array, weights: Array) -> Simulated:
    condition = drawn.condition
    scattering = scattered(drawn, MAX_DETECTED_MRAD)
    patterns = np.zeros((len(positions), PIXELS, PIXELS))
    for defocus, weight in zip(defoci, weights, strict=True):
        sample = scattering.simulate(
            semiangle_mrad=condition.semiangle_mrad,
            positions_angstrom=positions,
            aberrations=aberrations(condition, float(defocus)),
            detector=Detector(**DETECTOR),
            scan_shape=RASTER,
        )
        patterns += weight * sample.cbed
    return patterns, sample.density, scattering.grid.extent_angstrom


def _by_abtem(drawn: Drawn, positions: Array, defoci: Array, weights: Array) -> Simulated:
    condition = drawn.condition
    snapshots = _snapshots(drawn.atoms, condition.vibration)
    scan: dict[str, Any] = {
        "cell": drawn.atoms.cell.lengths().tolist(),
        "numbers": drawn.atoms.numbers.tolist(),
        "snapshots": [atoms.positions.tolist() for atoms in snapshots],
        "pixel_angstrom": ABTEM_PIXEL,
        "slice_angstrom": ABTEM_SLICE,
        "energy_ev": condition.energy_ev,
        "semiangle_mrad": condition.semiangle_mrad,
        "tilt_yx_mrad": list(condition.tilt),
        "aberrations": [aberrations(condition, float(defocus)) for defocus in defoci],
        "weights": weights.tolist(),
        "positions_yx_angstrom": positions.tolist(),
        "detector_pixels": PIXELS,
        "pixel_mrad": PIXEL_MRAD,
    }
    process = frame.start([*frame.environment(ABTEM, "abtem"), frame.WORKERS / "abtem_scan.py"])
    answer = frame.ask(process, scan)
    process.communicate()
    patterns = np.load(answer["patterns"])
    Path(answer["patterns"]).unlink()
    sample = namsa.simulate(
        snapshots,
        energy_ev=condition.energy_ev,
        semiangle_mrad=condition.semiangle_mrad,
        positions_angstrom=[(5.0, 5.0)],
        detector=Detector(shape=(3, 3), pixel_mrad=3),
    )
    return patterns, sample.density, (drawn.atoms.cell.lengths()[1], drawn.atoms.cell.lengths()[0])


def _snapshots(atoms: ase.Atoms, rms: float) -> list[ase.Atoms]:
    """Returns atoms that vibrate with their neighbours.

    Displacements are independent ones, averaged over the neighbourhood with Gaussian weights.
    """
    sides = atoms.cell.lengths()
    inside = np.mod(atoms.positions, sides)
    tree = cKDTree(inside, boxsize=sides)
    near = tree.sparse_distance_matrix(tree, 2 * NEIGHBOURS_ANGSTROM, output_type="coo_matrix")
    near.data = np.exp(-0.5 * (near.data / NEIGHBOURS_ANGSTROM) ** 2)
    weights = near.tocsr()
    weights.setdiag(1.0)
    norm = np.sqrt(np.asarray(weights.multiply(weights).sum(axis=1)))
    snapshots = []
    for seed in range(CONFIGURATIONS):
        independent = np.random.default_rng(seed).normal(scale=rms, size=atoms.positions.shape)
        moved = atoms.copy()
        moved.positions = atoms.positions + weights @ independent / norm
        snapshots.append(moved)
    return snapshots


# ---- Detector


def _spread(patterns: Array, kernel: Array) -> Array:
    """Returns patterns after a point spread; what leaves the detector is lost."""
    return np.asarray(fftconvolve(patterns, kernel[None, None], mode="same", axes=(2, 3)))


def _distance() -> Array:
    """Returns the distance of pixels from the middle one, in pixels."""
    offset = np.arange(-32, 33)
    return np.asarray(np.hypot(offset[:, None], offset))


def _shares(*parts: tuple[float, Array]) -> Array:
    """Returns a kernel: the middle pixel keeps what the given parts, each with its share, leave."""
    kernel = np.zeros((65, 65))
    kernel[32, 32] = 1 - sum(share for share, _ in parts)
    for share, profile in parts:
        kernel += share * profile / profile.sum()
    return kernel


def _detector_kernel() -> Array:
    near = gaussian_filter(np.where(_distance() == 0, 1.0, 0.0), 0.7)
    return _shares((0.15, near), (0.1, np.exp(-_distance() / 5)))


def _inelastic_kernel() -> Array:
    mrad = PIXEL_MRAD * _distance()
    return _shares((0.08, 1 / (mrad**2 + 1.5**2)), (0.02, np.exp(-0.5 * (mrad / 25) ** 2)))
