"""From a crystal's lattice and a zone axis to a right-angled periodic cell with the beam along +z: geometry only.

Vectors are rows. A supercell's sides are integer combinations of the crystal's a, b, c: z a whole number of [uvw], so
that the zone axis lies exactly along the beam, x and y across it. In most crystals no lattice vectors stand exactly
at right angles. The sides then keep their lengths and the angles between them are bent to 90°: a homogeneous strain
that depends on the three cosines alone. With unit vectors e_i along the sides, the map is F⁻¹ = [e_x; e_y; e_z], its
Gram matrix G_ij = e_i·e_j, and its principal stretches are the eigenvalues of G to the power −1/2.
"""

from dataclasses import dataclass

import ase
import numpy as np
import numpy.typing as npt
from ase.geometry import minkowski_reduce

from namsa.errors import InputError

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

EXACT = 1e-6  # lattice parameters are not known better: a smaller strain counts as none
SEARCH_POINTS = (8_000, 100_000)  # lattice points about the origin; the second where the first have no solution
MAX_SIDES = 500  # the shortest vectors across the beam, of which pairs are formed
LOOSER = (0.05, 0.1, 0.2, 0.4)  # strains tried, where a search fails, to say how near it came


@dataclass(frozen=True)
class Fit:
    """A right-angled supercell.

    matrix: (3, 3) integers; row i is the supercell's side along x, y, z in terms of the crystal's a, b, c
    strain: the largest |principal stretch − 1| of the deformation that makes the sides right-angled
    lengths_angstrom: (x, y, z), as in an ase.Atoms
    atoms: how many it holds
    """

    matrix: Integers
    strain: float
    lengths_angstrom: tuple[float, float, float]
    atoms: int


@dataclass(frozen=True)
class Rectangles:
    """The right-angled cells of a crystal along [uvw], of which `fit` tiles one: they depend on no size.

    x, y: (n, 3) integers, in terms of the crystal's a, b, c; strain: (n,) of each, none above `limit`
    name: of crystal and zone axis, for messages
    """

    name: str
    cell: Floats
    atoms: int
    zone: Integers
    limit: float
    x: Integers
    y: Integers
    strain: Floats

    @property
    def repeat_angstrom(self) -> float:
        """The crystal's period along the beam."""
        return float(np.linalg.norm(self.zone @ self.cell))

    def repeats(self, thickness_angstrom: float) -> int:
        """The whole number of periods, at least one, nearest to a thickness."""
        return max(1, int(np.floor(thickness_angstrom / self.repeat_angstrom + 0.5)))


def fit_cell(
    atoms: ase.Atoms,
    zone_axis: tuple[int, int, int],
    lateral_angstrom: tuple[float, float],
    thickness_angstrom: float,
    max_strain: float,
    max_atoms: int,
) -> Fit:
    """The supercell of a crystal seen along [uvw], at least `lateral_angstrom` = (y, x) wide.

    The thickness is the whole number of repeats, at least one, nearest to the wanted. Across the beam the smallest
    nearly right-angled rectangle of lattice vectors is tiled, so that sides keep to simple directions; one strained
    to the limit counts as twice as large as one that needs no strain. Ties go to fewer atoms, less strain, and the
    shorter side along x.

    Raises InputError for a zone axis, size or strain without meaning, where no rectangle within reach keeps to
    `max_strain`, and where all that do need more than `max_atoms`.
    """
    return fit(rectangles(atoms, zone_axis, max_strain), lateral_angstrom, thickness_angstrom, max_atoms)


def rectangles(atoms: ase.Atoms, zone_axis: tuple[int, int, int], max_strain: float) -> Rectangles:
    """The first half of `fit_cell`: what depends on neither width nor thickness."""
    if not any(zone_axis):
        raise InputError("zone axis [0 0 0] is no direction; give three integers, one of them not 0")
    if not 0 <= max_strain <= LOOSER[-1]:
        raise InputError(f"max_strain is {max_strain}; it must be in 0 to {LOOSER[-1]}")
    cell = np.asarray(atoms.cell, dtype=np.float64)
    if not abs(np.linalg.det(cell)) > 0:
        raise InputError(f"the crystal's cell {cell.tolist()} Å has no volume; give three lattice vectors")
    zone = np.array(zone_axis) // np.gcd.reduce(zone_axis)
    limit = max(max_strain, EXACT)
    name = f"{atoms.symbols.formula.reduce()[0]:metal} along [{' '.join(map(str, zone_axis))}]"
    for points in SEARCH_POINTS:
        x, y, strain = _rectangles(cell, zone, limit, points)
        if len(strain):
            return Rectangles(name, cell, len(atoms), zone, limit, x, y, strain)
    raise InputError(f"{name}: {_near_miss(cell, zone, limit)}")


def fit(found: Rectangles, lateral_angstrom: tuple[float, float], thickness_angstrom: float, max_atoms: int) -> Fit:
    """The second half of `fit_cell`."""
    if not min(*lateral_angstrom, thickness_angstrom) > 0:
        raise InputError(
            f"lateral_angstrom {tuple(lateral_angstrom)} and thickness_angstrom {thickness_angstrom} must be positive"
        )
    x, y, strain, layers = found.x, found.y, found.strain, found.repeats(thickness_angstrom)
    x_length, y_length = np.linalg.norm(x @ found.cell, axis=1), np.linalg.norm(y @ found.cell, axis=1)
    x_repeats, y_repeats = (
        np.ceil(wanted / length - 1e-9).astype(np.int64)
        for wanted, length in zip(reversed(lateral_angstrom), (x_length, y_length), strict=True)
    )
    counts = np.abs(np.cross(x, y) @ found.zone) * x_repeats * y_repeats * layers * found.atoms
    affordable = np.flatnonzero(counts <= max_atoms)
    if not len(affordable):
        raise InputError(
            f"{found.name}: the smallest supercell within strain {found.limit:.3g} has {counts.min()} atoms, max_atoms "
            f"is {max_atoms}; raise specimen.max_atoms or max_strain, or make lateral_angstrom or the thickness smaller"
        )
    cost = x_length * y_length * (1 + strain / found.limit)
    # Rounded, so that equivalent directions tie on every machine; of these the first has the shorter x.
    keys = (np.round(strain / EXACT), counts, np.round(cost / cost[affordable].min(), 6))
    best = affordable[np.lexsort([key[affordable] for key in keys])[0]]
    return Fit(
        np.array([x_repeats[best] * x[best], y_repeats[best] * y[best], layers * found.zone]),
        float(strain[best]),
        (
            float(x_repeats[best] * x_length[best]),
            float(y_repeats[best] * y_length[best]),
            layers * found.repeat_angstrom,
        ),
        int(counts[best]),
    )


def _rectangles(cell: Floats, zone: Integers, limit: float, points: int) -> tuple[Integers, Integers, Floats]:
    """All right-handed (x, y, strain) with strains up to `limit`, shorter sides first; shapes (n, 3), (n, 3), (n,)."""
    # The eigenvalues of G reach at least 1 ± |cosine| for each of its cosines, and 1 + c gives the stretch 1/√(1 + c).
    max_cosine = 1 - 1 / (1 + limit) ** 2
    beam = zone @ cell / np.linalg.norm(zone @ cell)
    sides = _sides(cell, beam, max_cosine, points)
    units = sides @ cell
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    across = units @ units.T
    i, j = np.nonzero(np.abs(across) <= max_cosine)
    handed = np.where(np.cross(units[i], units[j]) @ beam > 0, 1, -1)
    strain = _strain(handed * across[i, j], handed * (units[j] @ beam), units[i] @ beam)
    good = strain <= limit
    return sides[i][good], (handed[:, None] * sides[j])[good], strain[good]


def _sides(cell: Floats, beam: Floats, max_cosine: float, points: int) -> Integers:
    """The shortest lattice vectors nearly across the beam, one of each pair ±v and no multiples; (n, 3) integers.

    `points` is about how many lattice points the sphere holds that is searched.
    """
    reduced, change = minkowski_reduce(cell)
    radius = (3 * points * abs(np.linalg.det(cell)) / (4 * np.pi)) ** (1 / 3)
    reach = np.floor(radius * np.linalg.norm(np.linalg.inv(reduced), axis=0)).astype(np.int64)
    # Of each column of points, along the lattice vector nearest to the beam, only those in the slab across it.
    heights = reduced @ beam
    steep = int(np.argmax(np.abs(heights)))
    flat = [axis for axis in range(3) if axis != steep]
    foot = np.moveaxis(np.indices(2 * reach[flat] + 1), 0, -1).reshape(-1, 2) - reach[flat]
    middle, half = -(foot @ heights[flat]) / heights[steep], max_cosine * radius / abs(heights[steep])
    box = np.empty((len(foot), int(np.ceil(2 * half)) + 2, 3), dtype=np.int64)
    box[..., flat] = foot[:, None]
    box[..., steep] = np.floor(middle - half).astype(np.int64)[:, None] + np.arange(box.shape[1])
    vectors = box.reshape(-1, 3) @ change
    cartesian = vectors @ cell
    length = np.linalg.norm(cartesian, axis=1)
    across = (length <= radius) & (length > 0) & (np.abs(cartesian @ beam) <= max_cosine * length)
    vectors, length = vectors[across], length[across]
    leading = np.take_along_axis(vectors, np.argmax(vectors != 0, axis=1)[:, None], axis=1)[:, 0]
    keep = (leading > 0) & (np.gcd.reduce(vectors, axis=1) == 1)
    vectors, length = vectors[keep], length[keep]
    # Of equally long ones the simplest indices first, and [1 0 0] before [0 1 0].
    order = np.lexsort((*-vectors.T[::-1], np.abs(vectors).sum(axis=1), np.round(length, 6)))
    return vectors[order[:MAX_SIDES]]


def _strain(cos_xy: Floats, cos_yz: Floats, cos_zx: Floats) -> Floats:
    """Largest |principal stretch − 1| where sides with these cosines are bent to right angles; shape (n,)."""
    gram = np.tile(np.eye(3), (len(cos_xy), 1, 1))
    for cosine, (i, j) in zip((cos_xy, cos_yz, cos_zx), ((0, 1), (1, 2), (2, 0)), strict=True):
        gram[:, i, j] = gram[:, j, i] = cosine
    return np.abs(np.linalg.eigvalsh(gram) ** -0.5 - 1).max(axis=1)


def _near_miss(cell: Floats, zone: Integers, limit: float) -> str:
    """How near a failed search came, and what to do."""
    for looser in LOOSER:
        strain = _rectangles(cell, zone, looser, SEARCH_POINTS[-1])[2] if looser > limit else np.empty(0)
        if len(strain):
            return (
                f"no right-angled supercell within max_strain {limit:.3g}; the best found needs {strain.min():.3g}: "
                "raise specimen.max_strain or choose another zone axis"
            )
    return f"no right-angled supercell within strain {LOOSER[-1]}: choose another zone axis or another cell"
