"""The cases of `planted.py`: crystals along [001] with one vacancy, dopant or adatom, and without.

Each crystal has a tilt, a thermal vibration and thermal configurations of its own, which it keeps with its defects.
Each pair of scans, with the defect and without, has a defocus, astigmatism, coma and source of its own.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import ase
import ase.build
import numpy as np
from amount_cases import Optics, expose, on_scan
from ase.data import atomic_numbers, chemical_symbols
from reality_specimens import perovskite

import namsa

LATERAL, GAP = 11.5, 2.0  # Å: least side of a cell, free above the surface
THICKNESSES = (20.0, 60.0)  # Å
CONFIGURATIONS = 8
ACCURACY = 0.03
KINDS = ("vacancy", "dopant", "adatom", "adatom on a column")
FACE, BODY, SIMPLE = ((0.5, 0.0), (0.0, 0.5)), ((0.5, 0.5), (0.5, -0.5)), ((1.0, 0.0), (0.0, 1.0))


class Crystal(NamedTuple):
    """A crystal and what is planted into it."""

    formula: str
    make: Callable[[], ase.Atoms]
    equal: tuple[tuple[float, float], ...]  # basis (y, x) of the places that are equal in projection, in cells
    host: str  # the element of which an atom is missing or replaced
    dopant: str
    adatom: str
    hollow: tuple[float, float]  # (y, x) between the columns, in units of the cell

    def basis(self) -> list[tuple[float, float]]:
        """Returns the vectors (y, x) between equal places, Å."""
        lx, ly, _ = self.make().cell.lengths()
        return [(ly * y, lx * x) for y, x in self.equal]


def _cubic(formula: str, structure: str, edge: float) -> Callable[[], ase.Atoms]:
    return lambda: ase.build.bulk(formula, structure, a=edge, cubic=True)


QUARTER = (0.25, 0.25)
CRYSTALS = (
    Crystal("SrTiO3", lambda: perovskite("Sr", "Ti", "O", 3.905), SIMPLE, "Sr", "Ba", "Pt", QUARTER),
    Crystal("Au", _cubic("Au", "fcc", 4.078), FACE, "Au", "Ag", "Ag", QUARTER),
    Crystal("GaAs", _cubic("GaAs", "zincblende", 5.653), FACE, "Ga", "In", "Pt", (0.25, 0.0)),
    Crystal("MgO", _cubic("MgO", "rocksalt", 4.212), FACE, "Mg", "Ni", "Pt", QUARTER),
    Crystal("W", _cubic("W", "bcc", 3.165), BODY, "W", "Mo", "Ag", (0.5, 0.0)),
    Crystal("CeO2", _cubic("CeO2", "fluorite", 5.411), FACE, "Ce", "Zr", "Pt", (0.25, 0.0)),
    Crystal("KTaO3", lambda: perovskite("K", "Ta", "O", 3.989), SIMPLE, "Ta", "Nb", "Pt", QUARTER),
    Crystal("Cu", _cubic("Cu", "fcc", 3.615), FACE, "Cu", "Au", "Au", QUARTER),
    Crystal("PbTe", _cubic("PbTe", "rocksalt", 6.46), FACE, "Pb", "Sn", "Pt", QUARTER),
    Crystal("LaAlO3", lambda: perovskite("La", "Al", "O", 3.79), SIMPLE, "La", "Sr", "Pt", QUARTER),
)


@dataclass(frozen=True)
class Case:
    """A scan of a crystal with a defect, or of the same without it."""

    crystal: Crystal
    kind: str  # of the defect
    planted: bool
    thickness: float  # Å
    site: tuple[float, float]  # of the defect, (y, x), Å
    electrons: float  # that the defect adds

    @property
    def name(self) -> str:
        """The name of the case and its file."""
        state = "with" if self.planted else "without"
        return f"{self.crystal.formula}-{self.kind.replace(' ', '-')}-{self.thickness:g}-{state}"


class Specimens(NamedTuple):
    """Thermal snapshots of a crystal with a defect of each kind and, under `None`, without."""

    snapshots: dict[str | None, list[ase.Atoms]]
    sites: dict[str, tuple[float, float]]  # (y, x), Å
    electrons: dict[str, float]  # that a defect adds
    tilt_mrad: tuple[float, float]


def specimens(crystal: Crystal, seed: int) -> Specimens:
    """Returns the specimens of a crystal."""
    rng = np.random.default_rng(seed)
    cell = crystal.make()
    lx, ly, lz = cell.cell.lengths()
    counts = (*(int(np.ceil(LATERAL / side)) for side in (lx, ly)), int(np.ceil(THICKNESSES[-1] / lz)))
    atoms = cell.repeat(counts)
    atoms.positions[:, 2] += GAP
    atoms.cell[2, 2] += GAP
    middle = atoms.cell.lengths()[:2] / 2
    radius, turn = 3 * np.sqrt(rng.random()), 2 * np.pi * rng.random()
    vibration = rng.uniform(0.05, 0.09)

    numbers, places = atoms.numbers, atoms.positions
    hosts = np.flatnonzero((numbers == atomic_numbers[crystal.host]) & (places[:, 2] < THICKNESSES[0]))
    off = np.hypot(*(places[hosts, :2] - middle).T)
    replaced = int(rng.choice(hosts[off < off.min() + 0.1]))
    host, dopant, adatom = (atomic_numbers[each] for each in (crystal.host, crystal.dopant, crystal.adatom))
    whole = np.floor(middle / (lx, ly)) * (lx, ly)
    hollow = whole + np.multiply(crystal.hollow[::-1], (lx, ly))
    shakes = [vibration * rng.standard_normal((len(atoms) + 1, 3)) for _ in range(CONFIGURATIONS)]

    def snapshots(change: Callable[[ase.Atoms], ase.Atoms | None]) -> list[ase.Atoms]:
        found = []
        for shake in shakes:
            one = atoms.copy()
            one.positions += shake[:-1]
            found.append(change(one) or one)
        return found

    def without(one: ase.Atoms) -> ase.Atoms:
        del one[replaced]
        return one

    def other(one: ase.Atoms) -> None:
        one.numbers[replaced] = dopant

    def above(xy: np.ndarray) -> Callable[[ase.Atoms], ase.Atoms]:
        return lambda one: one + ase.Atoms([chemical_symbols[adatom]], [[*xy, 0.1]])

    column = places[replaced, :2]
    changes = dict(zip(KINDS, (without, other, above(hollow), above(column)), strict=True))
    sites = dict(zip(KINDS, (column, column, hollow, column), strict=True))
    return Specimens(
        {None: snapshots(lambda one: None)} | {kind: snapshots(change) for kind, change in changes.items()},
        {kind: (float(y), float(x)) for kind, (x, y) in sites.items()},
        dict(zip(KINDS, (-host, dopant - host, adatom, adatom), strict=True)),
        (radius * np.sin(turn), radius * np.cos(turn)),
    )


def cases(crystals: tuple[Crystal, ...]) -> Iterator[Case]:
    """Yields all cases of crystals."""
    for crystal in crystals:
        made = specimens(crystal, CRYSTALS.index(crystal))
        for kind in KINDS:
            for thickness in THICKNESSES:
                for planted in (True, False):
                    yield Case(crystal, kind, planted, thickness, made.sites[kind], made.electrons[kind])


def write_crystal(crystal: Crystal, optics: Optics, folder: Path) -> None:
    """Simulates the cases of a crystal whose files are not there, noiseless."""
    number = CRYSTALS.index(crystal)
    made = specimens(crystal, number)
    own = [case for case in cases((crystal,)) if not (folder / f"{case.name}.h5").exists()]
    for state in (None, *KINDS):
        wanted = [case for case in own if (case.kind == state if case.planted else state is None)]
        if not wanted:
            continue
        scattering = namsa.scatter(
            made.snapshots[state],
            energy_ev=optics.energy_ev,
            max_angle_mrad=optics.semiangle_mrad,
            max_detected_mrad=optics.pixels * optics.pixel_mrad / 2 + 1.5,
            thicknesses_angstrom=[GAP + thickness for thickness in THICKNESSES],
            specimen_tilt_mrad=made.tilt_mrad,
            accuracy=ACCURACY,
        )
        for case in wanted:
            _expose(scattering, case, optics, 100 * number + KINDS.index(case.kind)).save(folder / f"{case.name}.h5")


def _expose(scattering: namsa.Scattering, case: Case, optics: Optics, seed: int) -> namsa.Sample:
    """Returns the patterns of a scan over the whole cell; every second position of a raster that resolves them."""
    rng = np.random.default_rng(seed)
    aberrations = {"C10": rng.uniform(-30, 30), "C12": rng.uniform(0, 10), "phi12": rng.uniform(0, np.pi)}
    aberrations |= {"C21": rng.uniform(0, 200), "phi21": rng.uniform(0, 2 * np.pi)}
    depth = THICKNESSES.index(case.thickness)
    sample, patterns, step = expose(scattering, optics, aberrations, rng.uniform(0.5, 0.9), depth)
    patterns = patterns[::2, ::2].astype(np.float32)
    y, x = (2 * each * np.arange(n) for each, n in zip(step, patterns.shape, strict=False))
    return on_scan(sample, patterns.reshape(-1, *patterns.shape[2:]), (y, x), optics.max_q, case.name)
