"""The specimens of `specimens.py` and `flags.py`: one of each kind for each draw.

None is a perfect crystal along the beam but that of the kind "tilted". Crystal, thickness, tilt,
source, focus and dose are drawn. No crystal is one that the networks for 200 kV have learnt, which
the bench checks.
"""

from collections.abc import Callable
from typing import NamedTuple

import ase
import ase.build
import numpy as np
from ase.spacegroup import crystal
from reality_cases import ENERGY_EV, SEMIANGLE_MRAD, Condition
from reality_specimens import perovskite, random_packing, reordered, repeated, without_overlaps

SCAN = (26, 26)
LATERAL = 14.5  # Å, of the cell, at least; the scan takes 10.4 Å from 2 Å on
MIDDLE = 7.0  # Å, of the scan
VIBRATION = 0.08  # Å
MAX_DETECTED_MRAD = 72.0  # the detector's corners
CONFIGURATIONS = 2  # of the vibrations
BEYOND = 3  # positions around the scan, for the source
CARBON = 0.1  # atoms per Å³
CLOSEST = 1.3  # Å, of atoms of carbon
BOND = 1.6  # Å; atoms that a boundary brings closer are one

PEROVSKITES = {
    "KTaO3": 3.989,
    "BaZrO3": 4.19,
    "BaSnO3": 4.116,
    "SrHfO3": 4.08,
    "KMgF3": 3.99,
    "RbCaF3": 4.45,
}
ROCKSALTS = {"CaO": 4.81, "SrO": 5.16, "TiN": 4.24, "VN": 4.14, "NbC": 4.47, "ScN": 4.50}
ROCKSALTS |= {"CdO": 4.695, "PbSe": 6.12}
ZINCBLENDES = {"GaSb": 6.096, "AlSb": 6.136, "ZnTe": 6.10, "BP": 4.538, "InSb": 6.479}
FLUORITES = {"CeO2": 5.411, "ThO2": 5.597, "BaF2": 6.2, "CdF2": 5.388}
ELEMENTS = {"Ta": 3.30, "Nb": 3.30}

Rng = np.random.Generator


class Drawn(NamedTuple):
    """A drawn specimen and how it is looked at."""

    name: str
    formula: str  # that is told
    atoms: ase.Atoms
    thickness: float  # that is told, Å
    condition: Condition


def host(rng: Rng, thickness: float, along_110: bool = True) -> tuple[str, ase.Atoms]:
    """Returns a formula and its crystal, in a right-angled cell of about the thickness."""
    kind = rng.choice(["perovskite", "rocksalt", "zincblende", "fluorite", "element"])
    if kind == "perovskite":
        formula = str(rng.choice(list(PEROVSKITES)))
        a, b, x = ase.formula.Formula(formula).count()
        unit = perovskite(a, b, x, PEROVSKITES[formula])
    elif kind == "fluorite":
        formula = str(rng.choice(list(FLUORITES)))
        unit = ase.build.bulk(formula, "fluorite", a=FLUORITES[formula], cubic=True)
    elif kind == "element":
        formula = str(rng.choice(list(ELEMENTS)))
        unit = ase.build.bulk(formula, "bcc", a=ELEMENTS[formula], cubic=True)
    else:
        table = ROCKSALTS if kind == "rocksalt" else ZINCBLENDES
        formula = str(rng.choice(list(table)))
        unit = ase.build.bulk(formula, kind, a=table[formula], cubic=True)
    if along_110 and rng.random() < 0.4:
        turned = ase.build.make_supercell(unit, [[0, 0, 1], [1, -1, 0], [1, 1, 0]])
        sides = turned.cell.lengths()
        unit = ase.Atoms(
            turned.numbers, turned.get_scaled_positions() * sides, cell=sides, pbc=True
        )
    atoms = repeated(unit, thickness, LATERAL)
    return formula, atoms


def edge(rng: Rng, thickness: float) -> tuple[str, ase.Atoms]:
    """Returns a crystal that ends within the scan; the rest is vacuum."""
    formula, atoms = host(rng, thickness)
    place = MIDDLE + rng.uniform(-1, 2)
    return formula, atoms[atoms.positions[:, 0] < place]


def step(rng: Rng, thickness: float) -> tuple[str, ase.Atoms]:
    """Returns a crystal half of which is thinner by a fifth to a half."""
    formula, atoms = host(rng, thickness)
    height = atoms.cell.lengths()[2] * rng.uniform(0.5, 0.8)
    thin = atoms.positions[:, 1] > MIDDLE + rng.uniform(-2, 2)
    return formula, atoms[~(thin & (atoms.positions[:, 2] > height))]


def planted(rng: Rng, thickness: float) -> tuple[str, ase.Atoms]:
    """Returns a crystal three of whose columns are of an element that the formula does not have."""
    formula, atoms = host(rng, thickness)
    columns = columns_of(atoms)
    from_middle = np.abs(atoms.positions[:, :2] - MIDDLE).max(axis=1)
    seen = np.unique(columns[from_middle < 4])
    numbers = atoms.numbers.copy()
    for column in rng.choice(seen, 3, replace=False):
        of_column = columns == column
        heavier = numbers[of_column].mean() < 35
        numbers[of_column] = rng.choice([30, 40, 50]) if heavier else rng.choice([12, 22, 30])
    return formula, ase.Atoms(numbers, atoms.positions, cell=atoms.cell, pbc=True)


def antisites(rng: Rng, thickness: float) -> tuple[str, ase.Atoms]:
    """Returns a crystal a tenth of whose atoms are exchanged, at random depths."""
    formula, atoms = host(rng, thickness)
    chosen = np.flatnonzero(rng.random(len(atoms)) < 0.1)
    numbers = atoms.numbers.copy()
    numbers[chosen] = rng.permutation(numbers[chosen])
    if len(np.unique(numbers)) == 1:  # an element: vacancies
        return formula, atoms[np.setdiff1d(np.arange(len(atoms)), chosen)]
    return formula, ase.Atoms(numbers, atoms.positions, cell=atoms.cell, pbc=True)


def on_carbon(rng: Rng, thickness: float) -> tuple[str, ase.Atoms]:
    """Returns a crystal that covers half of the scan, on 15 to 35 Å of amorphous carbon."""
    formula, atoms = host(rng, thickness)
    lx, ly, lz = atoms.cell.lengths()
    depth = rng.uniform(15, 35)
    sides = np.array([lx, ly, depth - 2])
    film = random_packing("C", sides, round(CARBON * sides.prod()), CLOSEST, rng)
    particle = atoms[atoms.positions[:, 0] < MIDDLE + rng.uniform(0, 4)]
    below = film.positions + np.array([0, 0, lz + 1])
    positions = np.concatenate([particle.positions, below])
    numbers = np.concatenate([particle.numbers, film.numbers])
    return formula, ase.Atoms(numbers, positions, cell=[lx, ly, lz + depth], pbc=True)


def tilted(rng: Rng, thickness: float) -> tuple[str, ase.Atoms]:
    """Returns a perfect crystal; the condition tilts it."""
    return host(rng, thickness)


def boundary(rng: Rng, thickness: float) -> tuple[str, ase.Atoms]:
    """Returns two grains, one of them turned about the beam by any angle."""
    formula, atoms = host(rng, thickness, along_110=False)
    angle = rng.uniform(8, 37)
    side = 18.0
    large = atoms.repeat((3, 3, 1))
    large.positions[:, :2] -= large.cell.lengths()[:2] / 2
    turned = large.copy()
    turned.rotate(angle, "z")
    left = large[large.positions[:, 0] < 0]
    right = turned[turned.positions[:, 0] >= 0]
    both = left + right
    both.positions[:, :2] += MIDDLE
    inside = (both.positions[:, :2] > 0).all(axis=1) & (both.positions[:, :2] < side).all(axis=1)
    both = both[inside]
    both.set_cell([side, side, atoms.cell.lengths()[2]])
    both.pbc = True
    return formula, without_overlaps(both, BOND)


def layered(rng: Rng, thickness: float) -> tuple[str, ase.Atoms]:
    """Returns layers of SnO, or ZnF2 (rutile), from the side, without 5 % of the atoms."""
    if rng.random() < 0.5:
        cell = [4.703, 4.703, 3.134, 90, 90, 90]
        places = [(0, 0, 0), (0.303, 0.303, 0)]
        unit = crystal(["Zn", "F"], places, spacegroup=136, cellpar=cell)
        formula = "ZnF2"
    else:
        cell = [3.80, 3.80, 4.84, 90, 90, 90]
        layers = [(0, 0.5, 0.238), (0, 0, 0)]
        unit = crystal(["Sn", "O"], layers, spacegroup=129, setting=1, cellpar=cell)
        formula = "SnO"
    atoms = repeated(reordered(unit, (1, 2, 0)), thickness, LATERAL)
    return formula, atoms[rng.random(len(atoms)) > 0.05]


def film(rng: Rng, thickness: float) -> tuple[str, ase.Atoms]:
    """Returns amorphous carbon, which is to be flagged."""
    sides = np.array([LATERAL, LATERAL, thickness])
    return "C", random_packing("C", sides, round(CARBON * sides.prod()), CLOSEST, rng)


def bent(rng: Rng, thickness: float) -> tuple[str, ase.Atoms]:
    """Returns a crystal bent by 4 to 8 mrad from face to face, with relaxed faces.

    Within 3 Å of both faces each column is displaced by 0.15 Å (rms) along each axis.
    """
    formula, atoms = host(rng, thickness)
    height = atoms.cell.lengths()[2]
    curvature = 1e-3 * rng.uniform(4, 8) / height
    from_middle = atoms.positions[:, 2] - height / 2
    columns = columns_of(atoms)
    moved = rng.normal(scale=0.15, size=(2, columns.max() + 1, 3))
    for face, near in enumerate((from_middle < 3 - height / 2, from_middle > height / 2 - 3)):
        atoms.positions[near] += moved[face][columns[near]]
    atoms.positions[:, 0] += curvature * from_middle**2 / 2
    atoms.wrap(pbc=(True, True, False))
    return formula, atoms


def thick(rng: Rng, thickness: float) -> tuple[str, ase.Atoms]:
    """Returns a crystal of 250 to 350 Å, which is to be flagged."""
    return host(rng, thickness + rng.uniform(215, 260))


# The number of a kind is that of its draws.
ALL: tuple[Callable[[Rng, float], tuple[str, ase.Atoms]], ...] = (
    *(edge, step, planted, antisites, on_carbon, tilted, boundary, layered),
    *(film, bent, thick),
)
NUMBERS = {kind.__name__.removeprefix("on_"): number for number, kind in enumerate(ALL)}
OUTSIDE = ("film", "thick")
KINDS = tuple(name for name in NUMBERS if name not in OUTSIDE)


def columns_of(atoms: ase.Atoms) -> np.ndarray:
    """Returns a number for each atom that all atoms of a column have, `(n,)`."""
    rounded = np.round(atoms.positions[:, :2], 1)
    return np.unique(rounded, axis=0, return_inverse=True)[1].ravel()


def draw(
    seed: int, kind: str, energy_ev: float = ENERGY_EV, semiangle_mrad: float = SEMIANGLE_MRAD
) -> Drawn:
    """Draws a specimen of a kind and the conditions of its scan by a beam."""
    number = NUMBERS[kind]
    rng = np.random.default_rng([seed, number])
    thickness = float(rng.uniform(35, 90))
    formula, atoms = ALL[number](rng, thickness)
    tilt = rng.uniform(3, 5) if kind == "tilted" else rng.uniform(0, 3)
    azimuth = rng.uniform(0, 2 * np.pi)
    condition = Condition(
        defocus=float(rng.uniform(-30, 30)),
        astigmatism=float(rng.uniform(0, 8)),
        source=float(rng.uniform(0.5, 0.9)),
        tilt=(float(tilt * np.sin(azimuth)), float(tilt * np.cos(azimuth))),
        vibration=VIBRATION,
        dose=float(10 ** rng.uniform(4, 6)),
        energy_ev=energy_ev,
        semiangle_mrad=semiangle_mrad,
    )
    of_beam = "" if energy_ev == ENERGY_EV else f"-{energy_ev / 1e3:g}kv"
    name = f"{seed}-{kind}{of_beam}"
    return Drawn(name, formula, atoms, float(atoms.cell.lengths()[2]), condition)
