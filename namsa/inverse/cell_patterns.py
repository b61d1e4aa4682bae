"""Ring sums of the mean pattern of a cell's columns, for a range of amounts.

The atoms of a column are evenly spaced along the beam, and displaced thermally across it. A column
whose charge is spread along the beam would not do: heavy atoms would scatter up to 1.4 times too
much.
"""

from collections.abc import Mapping

import ase
import numpy as np

from namsa.base.arrays import Floats
from namsa.inverse.columns import share_out
from namsa.inverse.repeating_cell import RepeatingCell
from namsa.inverse.rings import Known, RingMeasurement
from namsa.pacbed import position_averaged
from namsa.physics.potential import AtomList

TILT_AZIMUTH = 0.6  # rad, of the specimen's tilt
PLANE_WAVES = 64  # of the aperture that stand for all, of all cells
SLICE_ANGSTROM = 1.0
ACCURACY = 0.05  # that pixels are chosen for
AMOUNTS = np.geomspace(0.5, 2.0, 12)


def simulate(
    cell: RepeatingCell,
    electrons_per_angstrom3: float,  # mean electron density of the specimen
    known: Known,
    measurement: RingMeasurement,
    vibration: float,  # rms displacement, Å
    tilt_mrad: float = 0.0,  # of the specimen
    waves: int = PLANE_WAVES,  # plane waves of the aperture that stand for all
) -> Floats:
    """Returns the ring sums of a cell at each of `AMOUNTS`, `(amounts, rings)`."""
    beam = measurement.beam
    thickness = AMOUNTS * cell.density / electrons_per_angstrom3
    depth = int(np.ceil(thickness[-1] / SLICE_ANGSTROM)) * SLICE_ANGSTROM
    scale = electrons_per_angstrom3 / cell.density
    elements = known.elements(electrons_per_angstrom3)
    atoms = column_atoms(cell, elements, scale, depth, vibration)
    positions = np.column_stack([atoms.yx[:, ::-1], atoms.z])
    column_cell = ase.Atoms(atoms.numbers, positions, cell=[*cell.extent[::-1], depth], pbc=True)
    slice_counts = np.unique(np.maximum(1, np.round(thickness / SLICE_ANGSTROM))).astype(int)
    depths = slice_counts * SLICE_ANGSTROM
    aperture = np.pi * (1e-3 * beam.semiangle_mrad / beam.wavelength) ** 2 * np.prod(cell.extent)
    every = max(1, int(aperture / waves))
    patterns = position_averaged(
        column_cell,
        energy_ev=beam.energy_ev,
        semiangle_mrad=beam.semiangle_mrad,
        detector=measurement.detector,
        thicknesses_angstrom=depths.tolist(),
        slice_thickness_angstrom=SLICE_ANGSTROM,
        accuracy=ACCURACY,
        specimen_tilt_mrad=(tilt_mrad * np.sin(TILT_AZIMUTH), tilt_mrad * np.cos(TILT_AZIMUTH)),
        every=(every, every // 2),
        overlaps=True,  # heights are random
    )
    log_sums = np.log(patterns.reshape(len(depths), -1) @ measurement.masks)
    of_rings = [np.interp(np.log(thickness), np.log(depths), sums) for sums in log_sums.T]
    return np.exp(np.stack(of_rings, axis=-1))


def column_atoms(
    cell: RepeatingCell,
    composition: Mapping[int, float],
    scale: float,  # electrons per Å of a column over its electrons
    depth: float,  # Å
    vibration: float,  # rms displacement, Å
) -> AtomList:
    """Returns atoms, evenly spaced in their column from a random height on.

    Elements of a column take turns in proportion to their numbers.
    """
    rng = np.random.default_rng(0)
    shares = share_out(cell.electrons, composition)
    elements = np.array(list(shares))
    # atoms of each element per Å, `(columns, elements)`
    rates = np.stack(
        [electrons * scale / atomic_number for atomic_number, electrons in shares.items()], axis=1
    )
    numbers = []
    places = []
    heights = []
    for yx, column_rates in zip(cell.yx, rates, strict=True):
        total = column_rates.sum()
        z = np.arange(rng.random() / total, depth, 1 / total)
        shares_so_far = np.cumsum(column_rates) / total
        turns = np.floor(np.multiply.outer(np.arange(len(z) + 1), shares_so_far) + rng.random())
        numbers.append(elements[np.argmax(np.diff(turns, axis=0) > 0, axis=1)])
        places.append(yx + vibration * rng.standard_normal((len(z), 2)))
        heights.append(z)
    z = np.concatenate(heights)
    atomic_numbers = np.concatenate(numbers).astype(np.int64)
    return AtomList(atomic_numbers, np.concatenate(places), z, np.ones(len(z)))
