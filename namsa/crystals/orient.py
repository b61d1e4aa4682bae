"""The choice of a right-angled periodic cell for a crystal that is seen along a zone axis: geometry
only.

Vectors are rows. The supercell's sides are integer combinations of the crystal's a, b, c. The side
z is a multiple of [uvw], so that the zone axis lies exactly along the beam; x and y lie across it.
In most crystals no lattice vectors are exactly at right angles. The sides then keep their lengths
and the angles between them are set to 90°: a homogeneous strain that depends only on the three
cosines. With unit vectors e_i along the sides, the map is F⁻¹ = [e_x; e_y; e_z], its Gram matrix
G_ij = e_i·e_j, and its principal stretches are the eigenvalues of G to the power −1/2.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import ase
import numpy as np
from ase.geometry import minkowski_reduce

from namsa.base.arrays import Floats, Integers
from namsa.base.errors import InputError

# of the thickness; larger ones draw a warning
NOTABLE_ROUNDING = 0.1
NOTABLE_STRAIN = 0.01
EXACT = 1e-6  # lattice parameters are not known more precisely: a smaller strain counts as none
# lattice points about the origin; the second if the first have no solution
SEARCH_POINTS = (8_000, 100_000)
MAX_SIDES = 500  # the shortest vectors across the beam, from which pairs are formed
LOOSER_STRAINS = (0.05, 0.1, 0.2, 0.4)  # tried after a failed search, for the error message


@dataclass(frozen=True)
class CellFit:
    """A right-angled supercell before it is filled with atoms."""

    # Integers, `(3, 3)`; row i is the supercell's side along x, y or z in units of the crystal's a,
    # b, c.
    matrix: Integers
    # the largest |principal stretch − 1| of the deformation that makes the sides right-angled
    strain: float
    # sides (x, y, z), Å, in the order of an `ase.Atoms`
    lengths_angstrom: tuple[float, float, float]
    atoms: int  # number of atoms

    @property
    def period_angstrom(self) -> float:
        """The crystal's period along the beam, Å: the thickness is a whole number of them."""
        return self.lengths_angstrom[2] / int(np.gcd.reduce(self.matrix[2]))

    def warnings(self, thickness_angstrom: float, made_angstrom: float | None = None) -> list[str]:
        """Returns sentences about a thickness and a strain that differ much from what was asked.

        Args:
            made_angstrom: The thickness of the specimen, Å; by default that of the cell.
        """
        made = made_angstrom or self.lengths_angstrom[2]
        texts = []
        if abs(made - thickness_angstrom) > NOTABLE_ROUNDING * thickness_angstrom:
            zone = " ".join(map(str, self.matrix[2] // np.gcd.reduce(self.matrix[2])))
            texts.append(
                f"the specimen is {made:.2f} Å thick and not {thickness_angstrom:g} Å: it is a "
                f"multiple of the crystal's period along [{zone}], which is "
                f"{self.period_angstrom:.2f} Å: give a multiple"
            )
        if self.strain > NOTABLE_STRAIN:
            texts.append(
                f"the crystal is strained by {self.strain:.2%} to make its cell right-angled: a "
                "smaller max_strain takes a larger cell"
            )
        return texts


@dataclass(frozen=True)
class RectangularCells:
    """The right-angled cells of a crystal along one zone axis, before any of them is repeated to a
    size.
    """

    name: str  # crystal and zone axis, for messages
    cell: Floats  # lattice vectors of the crystal, rows of `(3, 3)`, Å
    atoms: int  # number of atoms in the crystal's cell
    zone: Integers  # zone axis [uvw] without common factors, `(3,)`
    limit: float  # largest strain
    x: Integers  # sides along x, `(n, 3)` integers in units of the crystal's a, b, c
    y: Integers  # sides along y, `(n, 3)` integers in units of the crystal's a, b, c
    strain: Floats  # strain of each cell, `(n,)`
    x_length: Floats  # length of each side along x, `(n,)`, Å
    y_length: Floats  # length of each side along y, `(n,)`, Å
    crystal_cells: Integers  # cells of the crystal in a layer of one period, `(n,)`

    @property
    def repeat_angstrom(self) -> float:
        """The crystal's period along the beam, Å."""
        return float(np.linalg.norm(self.zone @ self.cell))

    def repeats(self, thickness_angstrom: float) -> int:
        """Returns the whole number of periods, at least one, that is nearest to a thickness."""
        return max(1, int(np.floor(thickness_angstrom / self.repeat_angstrom + 0.5)))

    def resized(self, atoms: ase.Atoms) -> "RectangularCells":
        """Returns the right-angled cells of a crystal whose cell has the same shape in another
        size.
        """
        cell = np.asarray(atoms.cell, dtype=np.float64)
        scale = (np.linalg.det(cell) / np.linalg.det(self.cell)) ** (1 / 3)
        return replace(
            self,
            name=_name(atoms, self.zone),
            cell=cell,
            atoms=len(atoms),
            x_length=scale * self.x_length,
            y_length=scale * self.y_length,
        )


def fit_cell(
    atoms: ase.Atoms,  # the crystal, in a periodic cell of any shape
    *,
    zone_axis: tuple[int, int, int],  # direction [uvw] along the beam
    lateral_angstrom: tuple[float, float],  # smallest extent (y, x), Å
    # thickness, Å; the nearest whole number of periods is taken, at least one
    thickness_angstrom: float,
    max_strain: float,  # largest strain
    max_atoms: int,  # largest number of atoms
) -> CellFit:
    """Chooses the supercell of a crystal that is seen along a zone axis.

    Across the beam, the smallest nearly right-angled rectangle of lattice vectors is repeated, so
    that the sides keep to simple directions. A rectangle at the strain limit counts as twice as
    large as one without strain. Ties are decided by fewer atoms, then less strain, then the shorter
    side along x.

    Raises:
        InputError: If the zone axis, a size or the strain is meaningless, if no rectangle within
            the search keeps to `max_strain`, or if all of these need more than `max_atoms`.
    """
    cells = find_rectangular_cells(atoms, zone_axis, max_strain)
    return fit_to_size(cells, lateral_angstrom, thickness_angstrom, max_atoms)


def _check_zone_axis(zone_axis: object) -> None:
    """Raises InputError if a zone axis is not three integers that are not all 0."""
    indices = list(zone_axis) if isinstance(zone_axis, (Sequence, np.ndarray)) else []
    integers = all(isinstance(index, (int, np.integer)) for index in indices)
    if len(indices) != 3 or not integers:
        raise InputError(f"zone axis is {zone_axis!r}: give three integers, as (1, 1, 0)")
    if not any(indices):
        raise InputError(
            "zone axis [0 0 0] is no direction; give three integers, one of them not 0"
        )


def find_rectangular_cells(
    atoms: ase.Atoms, zone_axis: tuple[int, int, int], max_strain: float
) -> RectangularCells:
    """Does the first half of `fit_cell`, without width and thickness. Raises InputError if it finds
    no rectangle.
    """
    _check_zone_axis(zone_axis)
    if not 0 <= max_strain <= LOOSER_STRAINS[-1]:
        raise InputError(f"max_strain is {max_strain}; it must be in 0 to {LOOSER_STRAINS[-1]}")
    cell = np.asarray(atoms.cell, dtype=np.float64)
    if not abs(np.linalg.det(cell)) > 0:
        raise InputError(
            f"the crystal's cell {cell.tolist()} Å has no volume; give three lattice vectors"
        )
    zone = np.array(zone_axis) // np.gcd.reduce(zone_axis)
    limit = max(max_strain, EXACT)
    name = _name(atoms, zone_axis)
    for points in SEARCH_POINTS:
        x, y, strain = _rectangles(cell, zone, limit, points)
        if len(strain):
            x_length = np.linalg.norm(x @ cell, axis=1)
            y_length = np.linalg.norm(y @ cell, axis=1)
            crystal_cells = np.abs(np.cross(x, y) @ zone)
            return RectangularCells(
                name, cell, len(atoms), zone, limit, x, y, strain, x_length, y_length, crystal_cells
            )
    raise InputError(f"{name}: {_failure_message(cell, zone, limit)}")


def fit_to_size(
    cells: RectangularCells,
    lateral_angstrom: tuple[float, float],
    thickness_angstrom: float,
    max_atoms: int,
) -> CellFit:
    """Does the second half of `fit_cell`: chooses a rectangle and repeats it to a size.

    Args:
        lateral_angstrom: Smallest extent (y, x), Å.

    Raises:
        InputError: If a size is not positive or every rectangle needs more than `max_atoms`.
    """
    if not min(*lateral_angstrom, thickness_angstrom) > 0:
        raise InputError(
            f"lateral_angstrom {tuple(lateral_angstrom)} and thickness_angstrom "
            f"{thickness_angstrom} must be positive"
        )
    x = cells.x
    y = cells.y
    strain = cells.strain
    layers = cells.repeats(thickness_angstrom)
    x_length = cells.x_length
    y_length = cells.y_length
    x_repeats, y_repeats = (
        np.ceil(extent / length - 1e-9).clip(1).astype(np.int64)
        for extent, length in zip(reversed(lateral_angstrom), (x_length, y_length), strict=True)
    )
    counts = cells.crystal_cells * x_repeats * y_repeats * layers * cells.atoms
    affordable = np.flatnonzero(counts <= max_atoms)
    if not len(affordable):
        raise InputError(
            f"{cells.name}: the smallest supercell within strain {cells.limit:.3g} has "
            f"{counts.min()} atoms, max_atoms is {max_atoms}; raise specimen.max_atoms or "
            "max_strain, or make lateral_angstrom or the thickness smaller"
        )
    cost = x_length * y_length * (1 + strain / cells.limit)
    # Rounding makes equivalent directions tie on every machine; the first of them has the shorter
    # x.
    cheapest = affordable[np.round(cost[affordable] / cost[affordable].min(), 6) == 1]
    best = cheapest[np.lexsort([np.round(strain[cheapest] / EXACT), counts[cheapest]])[0]]
    return CellFit(
        np.array([x_repeats[best] * x[best], y_repeats[best] * y[best], layers * cells.zone]),
        float(strain[best]),
        (
            float(x_repeats[best] * x_length[best]),
            float(y_repeats[best] * y_length[best]),
            layers * cells.repeat_angstrom,
        ),
        int(counts[best]),
    )


def _name(atoms: ase.Atoms, zone_axis: Iterable[int]) -> str:
    """Returns crystal and zone axis, for messages."""
    return f"{atoms.symbols.formula.reduce()[0]:metal} along [{' '.join(map(str, zone_axis))}]"


def _rectangles(
    cell: Floats, zone: Integers, limit: float, points: int
) -> tuple[Integers, Integers, Floats]:
    """All right-handed (x, y, strain) with strains up to `limit`, shorter sides first; shapes (n,
    3), (n, 3), (n,).
    """
    # For each cosine c, the smallest eigenvalue of G is at most 1 − |c|, and the eigenvalue λ gives
    # the stretch 1/√λ.
    max_cosine = 1 - 1 / (1 + limit) ** 2
    beam = zone @ cell / np.linalg.norm(zone @ cell)
    sides = _sides(cell, beam, max_cosine, points)
    units = sides @ cell
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    cosines = units @ units.T
    i, j = np.nonzero(np.abs(cosines) <= max_cosine)
    handedness = np.where(np.cross(units[i], units[j]) @ beam > 0, 1, -1)
    strain = _strain(handedness * cosines[i, j], handedness * (units[j] @ beam), units[i] @ beam)
    accepted = strain <= limit
    return sides[i][accepted], (handedness[:, None] * sides[j])[accepted], strain[accepted]


def _sides(cell: Floats, beam: Floats, max_cosine: float, points: int) -> Integers:
    """The shortest lattice vectors nearly across the beam, one of each pair ±v and no multiples;
    (n, 3) integers.

    The search covers a sphere that holds about `points` lattice points.
    """
    reduced, change = minkowski_reduce(cell)
    radius = (3 * points * abs(np.linalg.det(cell)) / (4 * np.pi)) ** (1 / 3)
    reach = np.floor(radius * np.linalg.norm(np.linalg.inv(reduced), axis=0)).astype(np.int64)
    # The points form columns along the lattice vector nearest to the beam. Only those in the slab
    # across it count.
    heights = reduced @ beam
    steep = int(np.argmax(np.abs(heights)))
    flat = [axis for axis in range(3) if axis != steep]
    foot = np.moveaxis(np.indices(2 * reach[flat] + 1), 0, -1).reshape(-1, 2) - reach[flat]
    middle = -(foot @ heights[flat]) / heights[steep]
    half = max_cosine * radius / abs(heights[steep])
    box = np.empty((len(foot), int(np.ceil(2 * half)) + 2, 3), dtype=np.int64)
    box[..., flat] = foot[:, None]
    box[..., steep] = np.floor(middle - half).astype(np.int64)[:, None] + np.arange(box.shape[1])
    vectors = box.reshape(-1, 3) @ change
    cartesian = vectors @ cell
    length = np.linalg.norm(cartesian, axis=1)
    across = (length <= radius) & (length > 0) & (np.abs(cartesian @ beam) <= max_cosine * length)
    vectors = vectors[across]
    length = length[across]
    first_index = np.take_along_axis(vectors, np.argmax(vectors != 0, axis=1)[:, None], axis=1)[
        :, 0
    ]
    keep = (first_index > 0) & (np.gcd.reduce(vectors, axis=1) == 1)
    vectors = vectors[keep]
    length = length[keep]
    # Among equally long vectors the simplest indices come first, and [1 0 0] before [0 1 0].
    order = np.lexsort((*-vectors.T[::-1], np.abs(vectors).sum(axis=1), np.round(length, 6)))
    return vectors[order[:MAX_SIDES]]


def _strain(cos_xy: Floats, cos_yz: Floats, cos_zx: Floats) -> Floats:
    """Largest |principal stretch − 1| if sides with these cosines are set to right angles; shape
    (n,).
    """
    # Eigenvalues of the matrix of cosines, in closed form (Smith, Communications of the ACM 4, 168
    # (1961)).
    spread = np.sqrt((cos_xy**2 + cos_yz**2 + cos_zx**2) / 3)
    skew = cos_xy * cos_yz * cos_zx / np.maximum(spread, np.finfo(float).tiny ** (1 / 3)) ** 3
    angle = np.arccos(np.clip(skew, -1, 1)) / 3
    extremes = 1 + 2 * spread * np.cos([angle, angle + 2 * np.pi / 3])
    return np.asarray(np.abs(extremes**-0.5 - 1).max(axis=0))


def _failure_message(cell: Floats, zone: Integers, limit: float) -> str:
    """The strain that a failed search would have needed, and the remedy."""
    for looser in LOOSER_STRAINS:
        if looser > limit:
            strain = _rectangles(cell, zone, looser, SEARCH_POINTS[-1])[2]
        else:
            strain = np.empty(0)
        if len(strain):
            return (
                f"no right-angled supercell within max_strain {limit:.3g}; the best found needs "
                f"{strain.min():.3g}: raise specimen.max_strain or choose another zone axis"
            )
    return (
        f"no right-angled supercell within strain {LOOSER_STRAINS[-1]}: choose another zone axis "
        "or another cell"
    )
