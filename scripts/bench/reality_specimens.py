"""The specimens of `reality_cases.py`, made with ase; none is made by the code that makes training
data.
"""

from collections.abc import Callable, Sequence

import ase
import ase.build
import numpy as np
from ase.spacegroup import crystal

LATERAL = 25.0  # Å, at least; the scan takes 18.8 Å
GOLD = 4.078  # Å, edge of its cell
BOND = 1.5  # Å; atoms that a boundary brings closer are one


def perovskite(a: str, b: str, x: str, edge: float) -> ase.Atoms:
    """Returns the cubic perovskite ABX3, its edge in Å."""
    half = 0.5
    places = [(0, 0, 0), (half,) * 3, (half, half, 0)]
    return crystal([a, b, x], places, spacegroup=221, cellpar=[edge] * 3 + [90] * 3)


def titanate(thickness: float, lateral: float = LATERAL) -> ase.Atoms:
    """Returns SrTiO3 along [001], of at least `lateral` and about `thickness`, Å."""
    return repeated(perovskite("Sr", "Ti", "O", 3.905), thickness, lateral)


def repeated(cell: ase.Atoms, thickness: float, lateral: float = LATERAL) -> ase.Atoms:
    """Returns a right-angled cell repeated to at least `lateral` and about `thickness`, Å."""
    lx, ly, lz = cell.cell.lengths()
    return cell.repeat(
        (int(np.ceil(lateral / lx)), int(np.ceil(lateral / ly)), max(1, round(thickness / lz)))
    )


def reordered(cell: ase.Atoms, axes: Sequence[int]) -> ase.Atoms:
    """Returns a right-angled cell whose x, y and z are the given axes of another."""
    order = list(axes)
    sides = cell.cell.lengths()[order]
    return ase.Atoms(cell.numbers, cell.positions[:, order], cell=sides, pbc=True)


def interface(thickness: float) -> ase.Atoms:
    """Returns SrTiO3 beside BaTiO3 on the same lattice, whose titanium is off the centre, in half
    of the cell each.
    """
    atoms = titanate(thickness)
    right = atoms.positions[:, 0] >= atoms.cell.lengths()[0] / 2 - 0.1
    symbols = np.array(atoms.get_chemical_symbols())
    atoms.positions[right & (symbols == "Ti"), 1] += 0.08
    symbols[right & (symbols == "Sr")] = "Ba"
    return ase.Atoms(symbols, atoms.positions, cell=atoms.cell, pbc=True)


def vacancies(thickness: float) -> ase.Atoms:
    """Returns SrTiO3 in which some columns of strontium have vacancies, and some have lanthanum."""
    atoms = titanate(thickness)
    rng = np.random.default_rng(1)
    symbols = np.array(atoms.get_chemical_symbols())
    columns = np.round(atoms.positions[:, :2] / 3.905).astype(int) @ [1, 100]
    of_sr = rng.permutation(np.unique(columns[symbols == "Sr"]))
    some = rng.random(len(atoms))
    symbols[(symbols == "Sr") & np.isin(columns, of_sr[:8]) & (some < 0.6)] = "La"
    keep = ~((symbols == "Sr") & np.isin(columns, of_sr[8:16]) & (some < 0.4))
    return ase.Atoms(symbols[keep], atoms.positions[keep], cell=atoms.cell, pbc=True)


def boundary(thickness: float) -> ase.Atoms:
    """Returns two grains of gold with Σ5 (310) tilt boundaries, the beam along the common [001]."""
    unit = ase.build.bulk("Au", "fcc", a=GOLD, cubic=True)
    rotated = ase.build.make_supercell(unit, [[3, 1, 0], [-1, 3, 0], [0, 0, 1]])
    rotated.rotate(-np.degrees(np.arctan2(1, 3)), "z", rotate_cell=True)
    rotated.set_cell(rotated.cell.lengths(), scale_atoms=False)
    rotated.wrap()
    atoms = repeated(rotated, thickness, LATERAL)
    length = atoms.cell.lengths()[0]
    left = atoms[(atoms.positions[:, 0] > 0.3) & (atoms.positions[:, 0] < length / 2 - 0.3)]
    right = left.copy()
    right.positions[:, 0] = length - right.positions[:, 0]
    on_planes = atoms[
        (atoms.positions[:, 0] <= 0.3) | (abs(atoms.positions[:, 0] - length / 2) <= 0.3)
    ]
    return without_overlaps(left + on_planes + right, BOND)


def amorphous(
    symbol: str, per_cubic_angstrom: float, closest: float, seed: int
) -> Callable[[float], ase.Atoms]:
    """Returns the function that puts atoms at random places, no two closer than `closest`, Å."""

    def make(thickness: float) -> ase.Atoms:
        sides = np.array([LATERAL, LATERAL, thickness])
        count = round(per_cubic_angstrom * sides.prod())
        return random_packing(symbol, sides, count, closest, np.random.default_rng(seed))

    return make


def diamond_110(symbol: str, edge: float) -> ase.Atoms:
    """Returns the right-angled cell of a crystal of diamond's structure along [110]."""
    unit = ase.build.bulk(symbol, "diamond", a=edge, cubic=True)
    turned = ase.build.make_supercell(unit, [[0, 0, 1], [1, -1, 0], [1, 1, 0]])
    sides = turned.cell.lengths()
    return ase.Atoms(turned.numbers, turned.get_scaled_positions() * sides, cell=sides, pbc=True)


def carbon_on_silicon(thickness: float) -> ase.Atoms:
    """Returns silicon along [110] under 20 Å of amorphous carbon on the side of the beam."""
    silicon = repeated(diamond_110("Si", 5.431), thickness - 20)
    lx, ly, lz = silicon.cell.lengths()
    box = np.array([lx, ly, 18.0])  # 1 Å free on both sides
    layer = random_packing("C", box, round(0.1 * box.prod()), 1.3, np.random.default_rng(3))
    positions = np.concatenate(
        [layer.positions + np.array([0, 0, 1]), silicon.positions + np.array([0, 0, 20])]
    )
    return ase.Atoms(
        [*layer.numbers, *silicon.numbers], positions, cell=[lx, ly, lz + 20], pbc=True
    )


def rutile(thickness: float) -> ase.Atoms:
    """Returns TiO2 along [001]."""
    cell = [4.594, 4.594, 2.959, 90, 90, 90]
    return repeated(
        crystal(["Ti", "O"], [(0, 0, 0), (0.305, 0.305, 0)], spacegroup=136, cellpar=cell),
        thickness,
    )


def aluminate(thickness: float) -> ase.Atoms:
    """Returns LaAlO3 along [001]."""
    return repeated(perovskite("La", "Al", "O", 3.79), thickness)


def edge_of_aluminate(thickness: float) -> ase.Atoms:
    """Returns LaAlO3 along [001] that fills 55 % of the cell along x; the rest is vacuum."""
    atoms = aluminate(thickness)
    return atoms[atoms.positions[:, 0] < 0.55 * atoms.cell.lengths()[0]]


def silicon_with_vacancies(thickness: float) -> ase.Atoms:
    """Returns silicon along [110] without 6 % of its atoms."""
    atoms = repeated(diamond_110("Si", 5.431), thickness)
    return atoms[np.random.default_rng(7).random(len(atoms)) > 0.06]


def cubic(formula: str, structure: str, edge: float) -> Callable[[float], ase.Atoms]:
    """Returns the function that makes a cubic crystal along [001], its edge in Å."""
    return lambda thickness: repeated(
        ase.build.bulk(formula, structure, a=edge, cubic=True), thickness
    )


def aluminium_nitride(thickness: float) -> ase.Atoms:
    """Returns AlN (wurtzite) along [001]."""
    cell = ase.build.bulk("AlN", "wurtzite", a=3.112, c=4.982, u=0.382, orthorhombic=True)
    return repeated(cell, thickness)


SPECIMENS: dict[str, Callable[[float], ase.Atoms]] = {
    "SrTiO3": titanate,
    "SrTiO3/BaTiO3": interface,
    "SrTiO3, vacancies and La": vacancies,
    "GaAs": cubic("GaAs", "zincblende", 5.653),
    "Au": cubic("Au", "fcc", GOLD),
    "Au, Σ5 boundary": boundary,
    "amorphous carbon": amorphous("C", 0.1, 1.3, seed=2),  # 2.0 g/cm³
    "amorphous carbon on Si": carbon_on_silicon,
    "CaF2": cubic("CaF2", "fluorite", 5.463),
    "Cu": cubic("Cu", "fcc", 3.615),
    "TiO2": rutile,
    "InAs": cubic("InAs", "zincblende", 6.058),
    "amorphous Si": amorphous("Si", 0.05, 2.0, seed=4),  # 2.3 g/cm³
    "MgO": cubic("MgO", "rocksalt", 4.212),
    "Ge [110]": lambda thickness: repeated(diamond_110("Ge", 5.658), thickness),
    "Fe": cubic("Fe", "bcc", 2.866),
    "CsPbBr3": lambda thickness: repeated(perovskite("Cs", "Pb", "Br", 5.87), thickness),
    "LaAlO3": aluminate,
    "LaAlO3, edge": edge_of_aluminate,
    "PbTe": cubic("PbTe", "rocksalt", 6.46),
    "W": cubic("W", "bcc", 3.165),
    "AlN": aluminium_nitride,
    "SiC": cubic("SiC", "zincblende", 4.36),
    "NaCl": cubic("NaCl", "rocksalt", 5.64),
    "Si [110], vacancies": silicon_with_vacancies,
}


def random_packing(
    symbol: str, sides: np.ndarray, count: int, closest: float, rng: np.random.Generator
) -> ase.Atoms:
    """Returns `count` atoms at random places in a periodic box, no two closer than `closest`, Å."""
    cells = np.floor(sides / closest).astype(
        int
    )  # an atom's neighbours lie in its own and the next cells
    grid: dict[tuple[int, ...], list[np.ndarray]] = {}
    placed: list[np.ndarray] = []
    offsets = np.stack(np.meshgrid(*[[-1, 0, 1]] * 3, indexing="ij"), -1).reshape(-1, 3)
    while len(placed) < count:
        position = rng.random(3) * sides
        home = np.minimum((position / sides * cells).astype(int), cells - 1)
        near = []
        for offset in offsets:
            for other in grid.get(tuple((home + offset) % cells), ()):
                near.append(other)
        apart = np.array(near).reshape(-1, 3) - position
        apart -= sides * np.round(apart / sides)
        if not near or (apart**2).sum(axis=1).min() >= closest**2:
            grid.setdefault(tuple(home), []).append(position)
            placed.append(position)
    return ase.Atoms([symbol] * count, np.array(placed), cell=sides, pbc=True)


def without_overlaps(atoms: ase.Atoms, closest: float) -> ase.Atoms:
    """Returns the atoms without the second of each pair that is closer than `closest`, Å."""
    from ase.neighborlist import neighbor_list

    first, second = neighbor_list("ij", atoms, closest)
    dropped: set[int] = set()
    for i, j in sorted(zip(first.tolist(), second.tolist(), strict=True)):
        if i < j and i not in dropped:
            dropped.add(j)
    return atoms[[index for index in range(len(atoms)) if index not in dropped]]
