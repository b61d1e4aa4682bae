"""The scans of `rivals.py`: defocused and finely sampled, as ptychography wants them.

The specimens are of the kinds of `specimen_cases.py`. Those of the search for settings and those
that are shown are of different crystals, and none is one that the network has learnt, which the
bench checks.
"""

from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
from reality_cases import ORIGIN, Condition
from specimen_cases import ALL, NUMBERS, VIBRATION, Drawn
from specimen_scans import aberrations, counted, of_source, raster_positions, scattered

from namsa.base.arrays import Array, Floats
from namsa.base.pixels import PixelGrid
from namsa.config.instrument import Detector
from namsa.physics import density_target
from namsa.physics.grid import Grid
from namsa.samples.sample import Sample

PIXELS = 63  # of the detector along an axis; odd, so that the optic axis is on a pixel
PIXEL_MRAD = 2.0
STEP = 0.3  # Å
SIDE = 34  # positions along an axis: 10 Å
BEYOND = 4
SOURCE = 0.6  # Å, full width at half maximum
ASTIGMATISM = 6.0  # Å
MAX_DETECTED_MRAD = 92.0  # the detector's corners


class Case(NamedTuple):
    """A scan.

    Attributes:
        kind: Key of `specimen_cases.NUMBERS`.
        seed: Of the specimen's random numbers.
        thickness: About, Å.
        c10: At the entrance, Å; overfocus is positive.
        nominal_c10: What the rivals begin with, Å.
        dose: Electrons per Å².
    """

    kind: str
    seed: int
    thickness: float
    c10: float
    nominal_c10: float
    dose: float


SHOWN = {
    "light": Case("step", 23, 45.0, 100.0, 120.0, 1e6),
    "planted": Case("planted", 6, 45.0, 100.0, 120.0, 1e6),
    "boundary": Case("boundary", 11, 65.0, 90.0, 110.0, 1e5),
    "boundary-far": Case("boundary", 11, 65.0, 150.0, 130.0, 1e5),
    "layered": Case("layered", 1, 95.0, -120.0, -100.0, 3e5),
}
DEVELOPMENT = {
    "antisites": Case("antisites", 10, 55.0, 120.0, 140.0, 3e5),
    "perfect": Case("tilted", 21, 80.0, -110.0, -90.0, 1e5),
}


class Truth(NamedTuple):
    """Fourier coefficients of a field, whose band is not limited, and the grid they belong to."""

    values: Floats
    grid: Grid

    def at(self, pixels: PixelGrid, shape: tuple[int, int], max_q: float) -> Floats:
        """Returns the field under the window of a band, at pixels of the scan's frame."""
        limited = density_target.band_limited(self.values, self.grid, max_q)
        y, x = pixels.coordinates(shape)
        return density_target.at_positions(limited, self.grid, ORIGIN + y, ORIGIN + x)


class Written(NamedTuple):
    """A scan as it was written."""

    patterns: Array  # (sy, sx, dy, dx), fractions of the beam
    density: Truth  # e/Å²
    potential: Truth  # V·Å
    thickness: float  # Å
    formula: str


def drawn(name: str, case: Case) -> Drawn:
    """Returns the specimen of a case and how it is looked at."""
    formula, atoms = ALL[NUMBERS[case.kind]](np.random.default_rng(case.seed), case.thickness)
    condition = Condition(
        defocus=-case.c10,
        astigmatism=ASTIGMATISM,
        source=SOURCE,
        vibration=VIBRATION,
        dose=case.dose,
    )
    return Drawn(name, formula, atoms, float(atoms.cell.lengths()[2]), condition)


def simulated(specimen: Drawn, side: int) -> tuple[Sample, Array]:
    """Simulates a scan and counts its electrons.

    The source is a blur of the patterns of a raster that is larger than the scan.

    Returns:
        The sample, with the patterns of the larger raster without a source, and the counts
        (side, side, dy, dx), fractions of the beam.
    """
    condition = specimen.condition
    sample = scattered(specimen, MAX_DETECTED_MRAD).simulate(
        semiangle_mrad=condition.semiangle_mrad,
        positions_angstrom=raster_positions(side, STEP, BEYOND),
        aberrations=aberrations(condition, condition.defocus),
        detector=Detector(shape=(PIXELS, PIXELS), pixel_mrad=PIXEL_MRAD),
        scan_shape=(side + 2 * BEYOND, side + 2 * BEYOND),
    )
    patterns = of_source(sample.cbed.astype(np.float64), condition.source, STEP, BEYOND)
    return sample, counted(patterns, condition, STEP).astype(np.float32)


def file_of(name: str, side: int, folder: Path) -> Path:
    """Returns the file of a scan."""
    return folder / f"{name}-{side}.h5"


def written(name: str, case: Case, side: int, folder: Path) -> Written:
    """Returns a scan of side × side positions, which is simulated once."""
    specimen = drawn(name, case)
    path = file_of(name, side, folder)
    if not path.exists():
        sample, patterns = simulated(specimen, side)
        with h5py.File(path, "w") as file:
            file["patterns"] = patterns
            file["density"] = sample.density
            file["potential"] = sample.projected_potential
            file["extent"] = sample.provenance["extent_angstrom"]
    with h5py.File(path) as file:
        extent_y, extent_x = file["extent"][()]
        fields = {}
        for field in ("density", "potential"):
            values = file[field][()].astype(np.float64)
            rows, columns = values.shape
            fields[field] = Truth(values, Grid((rows, columns), (extent_y, extent_x)))
        patterns = file["patterns"][()]
    return Written(
        patterns, fields["density"], fields["potential"], specimen.thickness, specimen.formula
    )
