"""The cases of `amount.py`: crystals at converged pixels and slices, each under a condition of its
own, all at once.

The scan is larger than the cell, which repeats. A file holds the patterns, what a microscope's file
says about them, and as density the true one at the positions, band-limited as a network's target
is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import ase
import ase.build
import numpy as np
from ase.data import atomic_numbers
from ase.formula import Formula
from ase.spacegroup import crystal

import namsa
from namsa.config.instrument import Detector
from namsa.config.specimen import FrozenPhonons
from namsa.physics import density_target
from namsa.physics.grid import Grid

# Å
STEP = 0.4
SCAN = (40, 40)
LATERAL = 11.5
Position = tuple[float, ...]  # three fractions of the cell


class Optics(NamedTuple):
    """A microscope that networks were trained for."""

    energy_ev: float
    semiangle_mrad: float
    pixels: int  # along a side of the detector
    pixel_mrad: float
    max_q: float  # 1/Å, of the density


@dataclass(frozen=True)
class Case:
    """A specimen, and the seed of the conditions it is looked at under."""

    formula: str
    make: Callable[[], ase.Atoms]
    thickness: float  # Å, about
    seed: int

    def atoms(self) -> ase.Atoms:
        """Returns the specimen."""
        cell = self.make()
        lx, ly, lz = cell.cell.lengths()
        return cell.repeat(
            (
                int(np.ceil(LATERAL / lx)),
                int(np.ceil(LATERAL / ly)),
                max(1, round(self.thickness / lz)),
            )
        )

    def true_thickness(self) -> float:
        """Returns the thickness, Å."""
        return float(self.atoms().cell.lengths()[2])

    def conditions(self) -> tuple[np.random.Generator, tuple[float, float], float]:
        """Returns the random numbers of the other conditions, the specimen's tilt, mrad, and its
        vibration, Å.
        """
        rng = np.random.default_rng(self.seed)
        radius = 5 * np.sqrt(rng.random())
        turn = 2 * np.pi * rng.random()
        return rng, (radius * np.sin(turn), radius * np.cos(turn)), rng.uniform(0.04, 0.1)

    def vibration(self) -> float:
        """Returns the rms thermal displacement along one axis, Å."""
        return self.conditions()[2]


def _crystal(
    symbols: list[str], places: Sequence[Position], group: int, *sides: float, **options: int
) -> ase.Atoms:
    a, b, c = sides * 3 if len(sides) == 1 else sides
    return crystal(symbols, places, spacegroup=group, cellpar=[a, b, c, 90, 90, 90], **options)


def _cubic(formula: str, structure: str, a: float) -> ase.Atoms:
    return ase.build.bulk(formula, structure, a=a, cubic=True)


def _along_110(cell: ase.Atoms) -> ase.Atoms:
    """Returns the right-angled cell of a cubic crystal along [110]."""
    turned = ase.build.make_supercell(cell, [[0, 0, 1], [1, -1, 0], [1, 1, 0]])
    sides = turned.cell.lengths()
    atoms = ase.Atoms(turned.numbers, turned.get_scaled_positions() * sides, cell=sides, pbc=True)
    return atoms


def _ybco() -> ase.Atoms:
    places = [
        (0.5, 0.5, 0.5),
        (0.5, 0.5, 0.1843),
        (0, 0, 0),
        (0, 0, 0.3556),
        (0, 0.5, 0),
        (0.5, 0, 0.3773),
    ]
    places += [(0, 0.5, 0.3789), (0, 0, 0.1584)]
    return _crystal(["Y", "Ba", "Cu", "Cu", "O", "O", "O", "O"], places, 47, 3.82, 3.885, 11.68)


def _spinel() -> ase.Atoms:
    return _crystal(
        ["Mg", "Al", "O"], [(1 / 8,) * 3, (1 / 2,) * 3, (0.2624,) * 3], 227, 8.083, setting=2
    )


TUNED = (  # on which settings were chosen
    Case(
        "SrTiO3",
        lambda: _crystal(["Sr", "Ti", "O"], [(0, 0, 0), (0.5,) * 3, (0.5, 0.5, 0)], 221, 3.905),
        60,
        1,
    ),
    Case("GaAs", lambda: _cubic("GaAs", "zincblende", 5.653), 90, 2),
    Case("Au", lambda: _cubic("Au", "fcc", 4.078), 40, 3),
    Case("MgO", lambda: _cubic("MgO", "rocksalt", 4.212), 75, 4),
    Case("Si", lambda: _along_110(_cubic("Si", "diamond", 5.431)), 105, 5),
    Case("PbTe", lambda: _cubic("PbTe", "rocksalt", 6.46), 50, 6),
)
CHECKS = (  # written down before the settings were chosen, and looked at once
    Case(
        "MgAl2O4",
        lambda: _crystal(
            ["Mg", "Al", "O"], [(1 / 8,) * 3, (1 / 2,) * 3, (0.2624,) * 3], 227, 8.083, setting=2
        ),
        60,
        11,
    ),
    Case("Pt", lambda: _cubic("Pt", "fcc", 3.924), 50, 12),
    Case("W", lambda: _cubic("W", "bcc", 3.165), 70, 13),
    Case("YBa2Cu3O7", _ybco, 60, 14),
    Case(
        "LaAlO3",
        lambda: _crystal(["La", "Al", "O"], [(0, 0, 0), (0.5,) * 3, (0.5, 0.5, 0)], 221, 3.79),
        80,
        15,
    ),
    Case("Ag", lambda: _along_110(_cubic("Ag", "fcc", 4.086)), 55, 16),
    Case("CaF2", lambda: _cubic("CaF2", "fluorite", 5.463), 100, 17),
    Case("InAs", lambda: _along_110(_cubic("InAs", "zincblende", 6.058)), 35, 18),
    Case(
        "TiO2",
        lambda: _crystal(["Ti", "O"], [(0, 0, 0), (0.305, 0.305, 0)], 136, 4.594, 4.594, 2.959),
        20,
        19,
    ),
    Case("CeO2", lambda: _along_110(_cubic("CeO2", "fluorite", 5.411)), 85, 20),
    Case("Al", lambda: _cubic("Al", "fcc", 4.05), 120, 21),
    Case(
        "KTaO3",
        lambda: _crystal(["K", "Ta", "O"], [(0, 0, 0), (0.5,) * 3, (0.5, 0.5, 0)], 221, 3.989),
        110,
        22,
    ),
)
LISTS = {"tuned": TUNED, "checks": CHECKS}


def elements(formula: str) -> dict[int, int]:
    """Returns the number of atoms of each atomic number."""
    return {atomic_numbers[symbol]: n for symbol, n in Formula(formula).count().items()}


def write_case(case: Case, optics: Optics, path: Path) -> None:
    """Simulates a case."""
    rng, tilt, vibration = case.conditions()
    scattering = namsa.scatter(
        case.atoms(),
        energy_ev=optics.energy_ev,
        max_angle_mrad=optics.semiangle_mrad,
        max_detected_mrad=optics.pixels * optics.pixel_mrad / 2 + 1.5,
        specimen_tilt_mrad=tilt,
        frozen_phonons=FrozenPhonons(rms_angstrom=vibration, configurations=3),
        seed=case.seed,
    )
    aberrations = {
        "C10": rng.uniform(-60, 60),
        "C12": rng.uniform(0, 20),
        "phi12": rng.uniform(0, np.pi),
    }
    aberrations |= {
        "C21": rng.uniform(0, 300),
        "phi21": rng.uniform(0, 2 * np.pi),
        "C30": rng.uniform(-1e4, 1e4),
    }
    dose = np.exp(rng.uniform(np.log(1e4), np.log(3e5))) * STEP**2
    record(
        expose(scattering, optics, aberrations, rng.uniform(0.4, 1.0)),
        dose,
        rng,
        optics.max_q,
        path,
    )


def record(
    exposed: tuple[namsa.Sample, np.ndarray, np.ndarray],  # as `expose` returns it
    electrons: float,  # of a pattern
    rng: np.random.Generator,
    max_q: float,  # 1/Å, of the density
    path: Path,
) -> None:
    """Writes a scan of `SCAN` positions with counting noise."""
    sample, patterns, step = exposed
    fine = patterns.shape[:2]
    rows, columns = (2 * np.arange(n) % whole for n, whole in zip(SCAN, fine, strict=True))
    patterns = patterns[np.ix_(rows, columns)]
    patterns = (
        (rng.poisson(patterns * electrons) / electrons)
        .astype(np.float32)
        .reshape(-1, *sample.cbed.shape[1:])
    )
    y, x = (2 * each * np.arange(n) for each, n in zip(step, SCAN, strict=True))
    on_scan(sample, patterns, (y, x), max_q, path.stem).save(path)


def expose(
    scattering: namsa.Scattering,
    optics: Optics,
    aberrations: dict[str, float],
    source_size_angstrom: float,
    depth: int = -1,  # number of the thickness
) -> tuple[namsa.Sample, np.ndarray, np.ndarray]:
    """Returns a scan of the whole cell in half of `STEP`, its patterns `(sy, sx, dy, dx)` and its
    step (y, x), Å.

    The raster is twice as fine as the scans that are taken from it, so that it resolves the source.
    """
    extent = np.array(scattering.grid.extent_angstrom)
    fine = 2 * np.round(extent / STEP).astype(int)
    step = extent / fine
    y, x = (each * np.arange(n) for each, n in zip(step, fine, strict=True))
    sample = scattering.simulate(
        depth,
        semiangle_mrad=optics.semiangle_mrad,
        positions_angstrom=np.stack(np.meshgrid(y, x, indexing="ij"), axis=-1).reshape(-1, 2),
        aberrations=aberrations,
        source_size_angstrom=source_size_angstrom,
        detector=Detector(shape=(optics.pixels,) * 2, pixel_mrad=optics.pixel_mrad),
        scan_shape=(int(fine[0]), int(fine[1])),
    )
    return sample, sample.cbed.reshape(*fine, *sample.cbed.shape[1:]), step


def on_scan(
    sample: namsa.Sample,
    patterns: np.ndarray,  # `(sy·sx, dy, dx)`
    rows_and_columns: tuple[np.ndarray, np.ndarray],  # positions, `(sy,)` and `(sx,)`, Å
    max_q: float,  # 1/Å, of the density
    name: str,
) -> namsa.Sample:
    """Returns a sample with other patterns and, at their positions, the band-limited density."""
    y, x = rows_and_columns
    ly, lx = sample.provenance["extent_angstrom"]
    rows, columns = sample.density.shape
    grid = Grid((rows, columns), (ly, lx))
    coefficients = density_target.band_limited(sample.density.astype(np.float64), grid, max_q)
    added = {
        "id": name,
        "positions_angstrom": np.stack(np.meshgrid(y, x, indexing="ij"), axis=-1)
        .reshape(-1, 2)
        .tolist(),
        "scan_shape": [len(y), len(x)],
        "density_sampling_angstrom": [float(y[1]), float(x[1])],
        "density_origin_angstrom": [0.0, 0.0],
        "density_max_q_per_angstrom": max_q,
    }
    truth = density_target.at_positions(coefficients, grid, y, x).astype(np.float32)
    return replace(sample, cbed=patterns, density=truth, provenance=sample.provenance | added)
