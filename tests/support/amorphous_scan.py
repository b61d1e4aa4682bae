"""A simulated scan of a thin layer of atoms at random places, and what a detector with known faults
records of it.
"""

import ase
import numpy as np
from scipy import ndimage

import namsa
from namsa.config.instrument import Detector
from namsa.inspection.disk import Disk
from namsa.inspection.orientation import frame_matrix
from namsa.io.calibration import circle_from_ellipse

ENERGY_EV = 200e3
SEMIANGLE_MRAD = 20.0
PIXEL_MRAD = 1.25
SCAN = (22, 26)
STEP = (1.6, 1.4)
SOURCE = 57  # pixels of the simulated detector
DETECTOR = (50, 46)


def simulate(c10: float, seed: int = 0, c12: float = 0.0, phi12: float = 0.0) -> np.ndarray:
    """Returns patterns `(sy, sx, SOURCE, SOURCE)` of 80 carbon and 12 gold atoms within 3 Å; only a
    part is scanned.
    """
    rng = np.random.default_rng(seed)
    size = np.array([44.0, 42.0, 3.0])  # x, y, z
    atoms = ase.Atoms("C80Au12", rng.random((92, 3)) * size, cell=size, pbc=True)
    return patterns(atoms, 2.0, STEP, (180, 192), 3.0, {"C10": c10, "C12": c12, "phi12": phi12})


def patterns(
    atoms: ase.Atoms,
    start: float,
    step: tuple[float, float],
    grid_shape: tuple[int, int],
    slice_thickness_angstrom: float,
    aberrations: dict[str, float],
) -> np.ndarray:
    """Returns patterns `(sy, sx, SOURCE, SOURCE)` of a scan that starts at (start, start), Å."""
    scan = namsa.Scan(shape=SCAN, step_angstrom=step, origin_angstrom=(start, start))
    detector = Detector(shape=(SOURCE, SOURCE), pixel_mrad=PIXEL_MRAD)
    sample = namsa.simulate(
        atoms,
        energy_ev=ENERGY_EV,
        semiangle_mrad=SEMIANGLE_MRAD,
        aberrations=aberrations,
        scan=scan,
        detector=detector,
        grid_shape=grid_shape,
        slice_thickness_angstrom=slice_thickness_angstrom,
    )
    return sample.cbed.reshape(*SCAN, SOURCE, SOURCE)


def glass(size: tuple[float, float, float], seed: int) -> ase.Atoms:
    """Returns carbon atoms in a cell of sides (x, y, z), Å, up to 1.1 Å off the points of a grid of
    about 2.5 Å.
    """
    counts = [round(side / 2.5) for side in size]
    points = (
        np.stack(np.meshgrid(*map(np.arange, counts), indexing="ij"), axis=-1).reshape(-1, 3) * 2.5
    )
    places = points + np.random.default_rng(seed).uniform(-1.1, 1.1, points.shape)
    return ase.Atoms(
        f"C{len(places)}", places * np.divide(size, np.multiply(counts, 2.5)), cell=size, pbc=True
    )


def record(
    patterns: np.ndarray,
    *,
    shift: tuple[float, float] = (0.0, 0.0),
    rotation_deg: float = 0.0,
    flip: bool = False,
    ellipse: tuple[float, float] | None = None,
    slope: np.ndarray | None = None,
    electrons: float = 1e5,
    seed: int = 0,
) -> np.ndarray:
    """Returns the counts `(sy, sx, *DETECTOR)` of patterns `(sy, sx, SOURCE, SOURCE)` on a detector
    in another frame.

    The frame is that of the scan where nothing is given.
    """
    matrix = frame_matrix(rotation_deg, flip) @ (
        np.eye(2) if ellipse is None else circle_from_ellipse(ellipse)
    )
    positions = patterns.shape[:2]
    rng = np.random.default_rng(seed)
    counts = np.zeros((*positions, *DETECTOR), np.uint16)
    for place in np.ndindex(*positions):
        centre = (np.array(DETECTOR) - 1) / 2 + shift
        if slope is not None:
            centre = centre + slope @ (np.array(place) - (np.array(positions) - 1) / 2)
        offset = (SOURCE - 1) / 2 - matrix @ centre
        seen = ndimage.affine_transform(
            patterns[place], matrix, offset, DETECTOR, order=1, mode="constant"
        )
        counts[place] = rng.poisson(np.maximum(seen, 0) * electrons)
    return counts


def disk_pattern(shape: tuple[int, int], disk: Disk, counts: float, seed: int) -> np.ndarray:
    """Returns a pattern of a disk that is brighter on one side, with a diffuse background and
    noise.
    """
    parts = 4
    v = np.stack(
        np.meshgrid(*((np.arange(n * parts) + 0.5) / parts - 0.5 for n in shape), indexing="ij")
    )
    v = v - np.array(disk.centre)[:, None, None]
    v = np.tensordot(circle_from_ellipse((disk.ratio, disk.axis_deg)), v, 1)
    r = np.hypot(*v)
    fine = (r < disk.radius) * (1 + 0.2 * v[0] / disk.radius) + 0.05 * np.exp(-r / disk.radius)
    pattern = ndimage.gaussian_filter(
        fine.reshape(shape[0], parts, shape[1], parts).mean(axis=(1, 3)), 0.4
    )
    return np.random.default_rng(seed).poisson(pattern / pattern.sum() * counts).astype(float)
