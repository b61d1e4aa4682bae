"""The kinds of specimens, and how one is made of a crystal.

A specimen of any kind is atoms in a right-angled periodic cell, in Å with x first; the beam enters
at z = 0. What a kind draws is drawn from the specimen's seed, in a fixed order, and is the same on
every machine.
"""

from collections.abc import Callable, Mapping

import ase
import numpy as np

from namsa.base.errors import InputError
from namsa.config.specimen import KINDS
from namsa.crystals.crystal_source import CrystalSource, crystal_of
from namsa.crystals.displacements import isotropic
from namsa.crystals.kinds import amorphous, halves, inclusions, layers, points
from namsa.crystals.kinds.draws import Draws
from namsa.crystals.kinds.interface import interface
from namsa.crystals.kinds.overlaps import wrapped
from namsa.crystals.orient import CellFit, RectangularCells, find_rectangular_cells, fit_to_size
from namsa.crystals.sites import check_atoms
from namsa.crystals.supercell import Supercell, fill_cell

AXES = ("x", "y")


def surface(crystal: ase.Atoms, atoms: ase.Atoms, draws: Draws) -> ase.Atoms:
    """Removes the atoms of part of the cell across the beam, which becomes vacuum with a surface on
    either side.

    Parameters: `axis` across the surfaces, `vacuum` (part of the cell, drawn from 0.2 to 0.6),
    `start` (where it begins, as a part of the cell).
    """
    axis = draws.choice("axis", AXES)
    width = draws.uniform("vacuum", (0.2, 0.6), (0.0, 1.0))
    start = draws.uniform("start", (0.0, 1.0), (0.0, 1.0))
    return _without(atoms, _within(atoms, axis, start, width))


def step(crystal: ase.Atoms, atoms: ase.Atoms, draws: Draws) -> ase.Atoms:
    """Removes the atoms below a depth in part of the cell: that part is thinner, with a step on
    either side.

    The beam enters at depth 0, and the step is at the exit side. A sample that is cut off above
    `depth_angstrom` shows nothing of it.

    Parameters: `axis` across the steps, `width` (part of the cell that is thinner, drawn from 0.3
    to 0.7), `start` (where it begins, as a part of the cell), `depth_angstrom` of what stays of it
    (drawn from 0.1 to 0.8 of the thickness).
    """
    thickness = float(atoms.cell.lengths()[2])
    axis = draws.choice("axis", AXES)
    width = draws.uniform("width", (0.3, 0.7), (0.0, 1.0))
    start = draws.uniform("start", (0.0, 1.0), (0.0, 1.0))
    depth = draws.uniform("depth_angstrom", (0.1 * thickness, 0.8 * thickness), (0.0, thickness))
    return _without(atoms, _within(atoms, axis, start, width) & (atoms.positions[:, 2] >= depth))


def _within(atoms: ase.Atoms, axis: str, start: float, width: float) -> np.ndarray:
    """Returns which atoms are in a part of the periodic cell, `(n,)`."""
    sides = np.asarray(atoms.cell.lengths())
    index = AXES.index(axis)
    fraction = wrapped(atoms.positions, sides)[:, index] / sides[index]
    return (fraction - start) % 1 < width


def _without(atoms: ase.Atoms, removed: np.ndarray) -> ase.Atoms:
    """Returns the atoms that are not removed. Raises InputError if there are none."""
    if removed.all():
        raise InputError("the cut leaves no atom: make the vacuum narrower, or the cell larger")
    return atoms[~removed]


_OF_LOW_INDEX = ("twin", "boundary")
WITH_PARTNER = ("interface", "precipitate", *layers.WITH_LAYER)
# What makes a kind of a crystal and the cell that it fills.
_MAKE: dict[str, Callable[[ase.Atoms, ase.Atoms, Draws], ase.Atoms]] = {
    "vacancies": points.vacancies,
    "substitution": points.substitution,
    "twin": halves.twin,
    "boundary": halves.boundary,
    "surface": surface,
    "step": step,
    "amorphous_layer": amorphous.amorphous_layer,
    "amorphous": amorphous.amorphous,
    "doped_layer": layers.doped_layer,
    "vacuum": layers.vacuum,
}


def make_specimen(
    crystal: CrystalSource,
    kind: str,
    *,
    zone_axis: tuple[int, int, int],
    lateral_angstrom: tuple[float, float],
    thickness_angstrom: float,
    partner: CrystalSource | None = None,
    parameters: Mapping[str, object] | None = None,
    seed: int = 0,
    max_strain: float = 0.02,
    max_atoms: int = 200_000,
) -> Supercell:
    """Makes a specimen of one kind in a right-angled periodic cell.

    `namsa.crystals.orient.fit_cell` describes how the cell is chosen; twins and boundaries choose
    among fewer cells.

    Args:
        crystal: The crystal, in a periodic cell of any shape; a material, or the path of a file
            that `namsa.read_crystal` reads, stands for its conventional cell.
        kind: "crystal", "vacancies", "substitution", "interface", "twin", "boundary", "grain",
            "precipitate", "surface", "step", "amorphous_layer", "amorphous", "stack", "cap",
            "buried_layer", "doped_layer" or "vacuum".
        zone_axis: Direction [uvw] of the crystal that lies along the beam.
        lateral_angstrom: Smallest extent (y, x), Å.
        thickness_angstrom: Thickness along the beam, Å, rounded to whole periods of the crystal,
            one at least.
        partner: The second crystal of the kinds of `WITH_PARTNER`.
        parameters: Values of the kind's parameters, by name, in place of drawn ones.
        seed: Seed of everything that is drawn.
        max_strain: Largest strain that making the cell right-angled may take.
        max_atoms: Largest number of atoms.

    Returns:
        The specimen; `parameters` of it are those that were drawn or given.

    Raises:
        InputError: If an argument is meaningless, no cell keeps to `max_strain` and `max_atoms`,
            the partner does not fit, or the crystal has no specimen of this kind.

    Example:
        >>> specimen = namsa.make_specimen(
        ...     bulk("Si", cubic=True),
        ...     "vacancies",
        ...     zone_axis=(0, 0, 1),
        ...     lateral_angstrom=(20, 20),
        ...     thickness_angstrom=20,
        ...     seed=1,
        ... )
        >>> len(specimen.atoms) < 512
        True
    """
    if kind not in KINDS:
        raise InputError(f"kind is {kind}; it must be one of {', '.join(KINDS)}")
    host = crystal_of(crystal)
    second = None if partner is None else crystal_of(partner)
    cells = find_rectangular_cells(host, zone_axis, max_strain)
    cells = cells_of_kind(cells, host, kind, Draws(seed, parameters))
    fit = fit_to_size(cells, lateral_angstrom, thickness_angstrom, max_atoms)
    check_size(fit, kind, max_atoms)
    return fill_specimen(host, kind, fit, zone_axis, max_strain, Draws(seed, parameters), second)


def cells_of_kind(
    cells: RectangularCells, crystal: ase.Atoms, kind: str, draws: Draws
) -> RectangularCells:
    """Returns the rectangles that a specimen of a kind may have.

    Args:
        cells: The rectangles of the crystal along the zone axis.
        draws: The parameters, of which none was drawn yet.

    Raises:
        InputError: If there are none.
    """
    if kind not in _OF_LOW_INDEX:
        return cells
    return halves.low_index_cells(
        cells, crystal, halves.draw_plane(draws) if kind == "boundary" else 0
    )


def check_size(fit: CellFit, kind: str, max_atoms: int) -> None:
    """Raises InputError if a specimen in the cell may have more than `max_atoms`."""
    if (most := most_atoms(fit, kind)) > max_atoms:
        raise InputError(
            f"a specimen of the kind {kind} has up to {most} atoms in this cell, max_atoms is "
            f"{max_atoms}; raise specimen.max_atoms, or make lateral_angstrom or the thickness "
            "smaller"
        )


def most_atoms(fit: CellFit, kind: str) -> int:
    """Returns a number of atoms that a specimen in a cell does not exceed, but for those of a
    partner.
    """
    if not kind.startswith("amorphous"):
        return fit.atoms
    return max(
        fit.atoms,
        int(amorphous.MOST_ATOMS_PER_CUBIC_ANGSTROM * float(np.prod(fit.lengths_angstrom))),
    )


def fill_specimen(
    crystal: ase.Atoms,
    kind: str,
    fit: CellFit,  # the cell, one of `cells_of_kind` repeated to a size
    zone_axis: tuple[int, int, int],  # direction [uvw] along the beam
    max_strain: float,  # largest strain that making a partner's cell right-angled may take
    draws: Draws,  # the parameters, of which none was drawn yet
    partner: ase.Atoms | None = None,  # the second crystal of the kinds of `WITH_PARTNER`
) -> Supercell:
    """Fills the chosen cell with a specimen's atoms. Raises InputError for a meaningless parameter
    or partner.
    """
    if kind != "crystal":  # parts are turned and mirrored
        crystal = isotropic(crystal)
        partner = isotropic(partner) if partner is not None else None
    filled = fill_cell(crystal, fit)
    if kind not in WITH_PARTNER and partner is not None:
        raise InputError(
            f"a specimen of the kind {kind} has no partner; only {', '.join(WITH_PARTNER)} have one"
        )
    if kind in WITH_PARTNER and partner is None:
        raise InputError(f"a specimen of the kind {kind} needs a second crystal: give partner")
    if kind == "crystal":
        atoms = filled.atoms
    elif kind == "grain":
        atoms = inclusions.grain(crystal, filled.atoms, zone_axis, draws)
    elif kind == "precipitate":
        assert partner is not None
        atoms = inclusions.precipitate(crystal, filled.atoms, partner, zone_axis, draws)
    elif kind == "interface":
        assert partner is not None
        cells = find_rectangular_cells(partner, zone_axis, max_strain)
        atoms = interface(crystal, fit, filled.atoms, partner, cells, draws)
    elif kind in layers.WITH_LAYER:
        assert partner is not None
        cells = find_rectangular_cells(partner, zone_axis, max_strain)
        atoms = layers.with_layer(crystal, kind, fit, filled.atoms, partner, cells, draws)
    else:
        atoms = _MAKE[kind](crystal, filled.atoms, draws)
    draws.check_given()
    if kind != "crystal":
        _complete_amplitudes(atoms, crystal, kind)
        check_atoms(atoms)
    return Supercell(atoms, filled.strain, filled.matrix, draws.used)


def _complete_amplitudes(atoms: ase.Atoms, crystal: ase.Atoms, kind: str) -> None:
    """Gives atoms of amorphous matter the mean amplitude of the crystal's atoms, if those have
    amplitudes.
    """
    name = "rms_displacement_angstrom"
    if kind.startswith("amorphous") and name in crystal.arrays:
        mean = float(np.sqrt(np.mean(crystal.arrays[name] ** 2)))
        known = atoms.arrays.get(name, np.full(len(atoms), np.nan))
        atoms.set_array(name, np.where(np.isnan(known), mean, known))
