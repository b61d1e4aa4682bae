"""The specimens of a material along a zone axis: their kinds, partners and names, drawn from the
configuration's seed.

A specimen whose kind cannot be made of the crystal takes the next kind that it draws: a twin where
every mirror image is the crystal itself, a boundary with too many atoms, an interface without a
partner. It is skipped only if none of the configuration's kinds can be made.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from namsa.base.errors import InputError
from namsa.config.specimen import Kind, Specimen
from namsa.crystals.kinds.draws import Draws
from namsa.crystals.kinds.interface import AXES, MOST_MISFIT, MOST_MULTIPLE, PartnerFit, fit_partner
from namsa.crystals.kinds.layers import WITH_LAYER, fit_layer
from namsa.crystals.kinds.specimen import cells_of_kind, check_size
from namsa.crystals.material import Material
from namsa.crystals.orient import CellFit, RectangularCells, fit_to_size
from namsa.crystals.symmetry import ZoneAxis
from namsa.dataset.entry import seed_of, seed_of_kind
from namsa.dataset.sample_setup import thickest_supercell

FindCells = Callable[[Material, ZoneAxis], RectangularCells | InputError]

_PARTNERS_TRIED = 24
_BEST_PARTNERS = 3  # from which one is drawn


@dataclass(frozen=True)
class PlannedSpecimen:
    """One specimen of a material along a zone axis."""

    # its name, with kind and partner if the configuration gives kinds: what is made follows from it
    name: str
    kind: Kind  # what is made of the crystal
    partner: str | None  # the name of the second material, of the kinds that have one
    cells: RectangularCells | InputError  # the rectangles that it may have, or why there are none


def plan_specimen(
    seed: int,  # the seed of the configuration
    name: str,  # the specimen's name without kind and partner, from which these are drawn
    specimen: Specimen,  # the specimens of the configuration
    material: Material,
    zone_axis: ZoneAxis,  # the axis along the beam
    cells: RectangularCells | InputError,  # the rectangles of the crystal, or why there are none
    others: Sequence[Material],  # the materials of the same split, from which partners are chosen
    # returns the rectangles of any of them along an axis, or why there are none
    find_cells: FindCells,
) -> PlannedSpecimen:
    """Returns a specimen of a material along a zone axis. Its kind is the first of those drawn that
    can be made.
    """
    if not specimen.kinds:
        return PlannedSpecimen(name, "crystal", None, cells)
    rng = np.random.default_rng(seed_of(seed, name))
    failed: PlannedSpecimen | None = None
    for kind in _drawn_order(specimen.kinds, rng):
        named = f"{name}-{kind}"
        partner = None
        try:
            if isinstance(cells, InputError):
                raise cells
            cells_of_specimen = cells_of_kind(
                cells, material.atoms, kind, Draws(seed_of_kind(seed, named))
            )
            fits = _fits(cells_of_specimen, specimen)
            check_size(fits[-1], kind, specimen.max_atoms)
            if kind == "precipitate":
                partner = _any_other(material, others, rng)
            elif kind == "interface" or kind in WITH_LAYER:
                candidates = others
                fits_of = _fitted_above
                if kind == "interface":
                    candidates = _matching_along(cells_of_specimen, zone_axis, others)
                    fits_of = _fitted_beside
                partner = _partner(
                    specimen,
                    cells_of_specimen,
                    fits,
                    zone_axis,
                    material,
                    candidates,
                    fits_of,
                    find_cells,
                    rng,
                )
            if partner is not None:
                named = f"{named}-{partner}"
        except InputError as error:
            failed = failed or PlannedSpecimen(named, kind, None, error)
        else:
            return PlannedSpecimen(named, kind, partner, cells_of_specimen)
    if failed is None:
        raise AssertionError("a configuration with kinds has one at least")
    return failed


def _fits(cells: RectangularCells, specimen: Specimen) -> list[CellFit]:
    """Returns the cells of all thicknesses with few enough atoms, the thickest last. Raises
    InputError for none.
    """
    thickest, too_thick, reason = thickest_supercell(cells, specimen)
    if thickest is None:
        raise InputError(reason or "")
    thicknesses = sorted(
        thickness for thickness in set(specimen.thickness_angstrom) if thickness < too_thick
    )
    return [
        fit_to_size(cells, specimen.lateral_angstrom, limit, specimen.max_atoms)
        for limit in thicknesses
    ]


def _drawn_order(kinds: Mapping[Kind, float], rng: np.random.Generator) -> list[Kind]:
    """Returns the kinds in the order in which they are drawn by their shares, without
    replacement.
    """
    left = sorted(kinds)
    order = []
    while left:
        shares = np.cumsum([kinds[kind] for kind in left])
        chosen = int(np.searchsorted(shares, rng.random() * shares[-1], side="right"))
        order.append(left.pop(min(chosen, len(left) - 1)))
    return order


def _any_other(material: Material, others: Sequence[Material], rng: np.random.Generator) -> str:
    """Returns the name of another material, all being equally likely. Raises InputError if there is
    none.
    """
    names = sorted(other.name for other in others if other.name != material.name)
    if not names:
        raise InputError(
            f"{material.name} has no other material of the same split for a precipitate: add "
            "materials"
        )
    return names[int(rng.integers(len(names)))]


def _matching_along(
    cells: RectangularCells, zone_axis: ZoneAxis, others: Sequence[Material]
) -> Sequence[Material]:
    """Returns the materials whose period along the beam fits to that of the cells."""
    zone = np.array(zone_axis) // np.gcd.reduce(zone_axis)
    multiples = np.array(
        [*range(1, MOST_MULTIPLE + 1), *(1 / n for n in range(2, MOST_MULTIPLE + 1))]
    )
    matching = []
    for other in others:
        period = float(np.linalg.norm(zone @ np.asarray(other.atoms.cell)))
        if abs(cells.repeat_angstrom / (period * multiples) - 1).min() <= MOST_MISFIT:
            matching.append(other)
    return matching


def _fitted_beside(size: CellFit, cells: RectangularCells) -> list[PartnerFit]:
    """Returns how a partner fits beside the crystal, across either axis."""
    return [fitted for axis in range(len(AXES)) if (fitted := fit_partner(size, axis, cells))]


def _fitted_above(size: CellFit, cells: RectangularCells) -> list[PartnerFit]:
    """Returns how a partner fits above or below the crystal."""
    return [fitted] if (fitted := fit_layer(size, cells)) else []


def _partner(
    specimen: Specimen,
    cells: RectangularCells,
    sizes: Sequence[CellFit],
    zone_axis: ZoneAxis,
    material: Material,
    others: Sequence[Material],
    fits_of: Callable[[CellFit, RectangularCells], list[PartnerFit]],
    find_cells: FindCells,
    rng: np.random.Generator,
) -> str:
    """Returns the name of a partner: one of those that fit best. Raises InputError if none fits."""
    matching = [other for other in others if other.name != material.name]
    matching.sort(key=lambda other: other.name)
    misfits: list[tuple[float, str]] = []
    for index in rng.permutation(len(matching))[:_PARTNERS_TRIED].tolist():
        other = matching[index]
        rectangles = find_cells(other, zone_axis)
        if isinstance(rectangles, InputError):
            continue
        fits = [fits_of(size, rectangles) for size in sizes]
        if not all(fits):
            continue
        in_thickest = fits[-1]
        most_atoms = max(fitted.fit.atoms for fitted in in_thickest)
        if sizes[-1].atoms + most_atoms <= specimen.max_atoms:
            least_misfit = min(fitted.misfit for fitted in in_thickest)
            misfits.append((least_misfit, other.name))
    if not misfits:
        raise InputError(
            f"no other material of the same split fits to {cells.name} within a strain of "
            f"{MOST_MISFIT}"
        )
    best = sorted(misfits)[:_BEST_PARTNERS]
    return best[int(rng.integers(len(best)))][1]
