"""Point defects: vacancies, and atoms that are replaced by those of a similar element.

Atoms at one place are one site, and atoms above each other along the beam are one column.
"""

import ase
import numpy as np
from ase.data import atomic_numbers, chemical_symbols

from namsa.base.arrays import Integers
from namsa.crystals.kinds.draws import Draws
from namsa.crystals.kinds.overlaps import wrapped
from namsa.crystals.similar_species import similar_elements

_CELLS = 0.05  # Å; atoms whose rounded coordinates are the same are at one place

ANY = "any"  # element


def vacancies(crystal: ase.Atoms, atoms: ase.Atoms, draws: Draws) -> ase.Atoms:
    """Removes a share of the sites of one element, or of all.

    Parameters: `element` ("any" or a symbol), `arrangement` ("random", or "columns": in as few
    columns as they half fill), `share` of the element's sites (drawn from 0.01 to 0.1). One vacancy
    at least is made, and one site at least stays.
    """
    element, arrangement, share = _parameters(atoms, draws, (0.01, 0.1))
    atom_site = _group(atoms, 3)
    sites = _sites_of(atoms, atom_site, element)
    chosen = _choose(atoms, atom_site, sites, share, arrangement, draws.rng)
    if len(chosen) > atom_site.max():
        chosen = chosen[:-1]
    draws.used["removed_sites"] = len(chosen)
    return atoms[~np.isin(atom_site, chosen)]


def substitution(crystal: ase.Atoms, atoms: ase.Atoms, draws: Draws) -> ase.Atoms:
    """Replaces part of the atoms in some columns by another element, without relaxation.

    Parameters: `element` that is replaced, `arrangement` and `share` as for vacancies (drawn from
    0.02 to 0.2), and `replacement`, one of the elements that
    `namsa.crystals.similar_species.similar_elements` gives.
    """
    return replace_sites(atoms, draws, (0.02, 0.2))


def replace_sites(atoms: ase.Atoms, draws: Draws, shares: tuple[float, float]) -> ase.Atoms:
    """Replaces a share of one element's sites, with the parameters of `substitution`.

    Args:
        shares: The range that the share is drawn from.
    """
    element, arrangement, share = _parameters(atoms, draws, shares, with_any=False)
    replacement = draws.choice("replacement", similar_elements(element))
    atom_site = _group(atoms, 3)
    sites = _sites_of(atoms, atom_site, element)
    chosen = _choose(atoms, atom_site, sites, share, arrangement, draws.rng)
    draws.used["replaced_sites"] = len(chosen)
    is_replaced = np.isin(atom_site, chosen) & (atoms.numbers == atomic_numbers[element])
    changed = atoms.copy()
    changed.numbers[is_replaced] = atomic_numbers[replacement]
    return changed


def _parameters(
    atoms: ase.Atoms, draws: Draws, shares: tuple[float, float], with_any: bool = True
) -> tuple[str, str, float]:
    """Returns element, arrangement and share."""
    elements = [
        chemical_symbols[atomic_number] for atomic_number in sorted(set(atoms.numbers.tolist()))
    ]
    if with_any and len(elements) > 1:
        elements.insert(0, ANY)
    element = draws.choice("element", elements)
    arrangement = draws.choice("arrangement", ("random", "columns"))
    return element, arrangement, draws.uniform("share", shares, (0.0, 1.0))


def _group(atoms: ase.Atoms, axes: int) -> Integers:
    """Returns the number of each atom's site (3 axes) or column (2 axes), `(n,)`, from 0."""
    sides = np.asarray(atoms.cell.lengths())
    cells = np.round(wrapped(atoms.positions, sides) / _CELLS).astype(np.int64)
    cells %= np.round(sides / _CELLS).astype(np.int64)
    groups = np.unique(cells[:, :axes], axis=0, return_inverse=True)[1]
    return groups.reshape(-1).astype(np.int64)


def _sites_of(atoms: ase.Atoms, atom_site: Integers, element: str) -> Integers:
    """Returns the sites on which an element is, in order."""
    if element == ANY:
        belongs = np.ones(len(atoms), dtype=bool)
    else:
        belongs = atoms.numbers == atomic_numbers[element]
    return np.unique(atom_site[belongs])


def _choose(
    atoms: ase.Atoms,
    atom_site: Integers,
    sites: Integers,
    share: float,
    arrangement: str,
    rng: np.random.Generator,
) -> Integers:
    """Returns a share of `sites`, one at least.

    They are any of them or, arranged in columns, in as few columns as they fill to the half.
    """
    count = min(len(sites), max(1, round(share * len(sites))))
    order = rng.permutation(len(sites))
    if arrangement == "columns":
        column_of_site = np.empty(atom_site.max() + 1, dtype=np.int64)
        column_of_site[atom_site] = _group(atoms, 2)
        columns = np.unique(column_of_site[sites])
        rank = np.empty(columns.max() + 1, dtype=np.int64)
        rank[columns] = rng.permutation(len(columns))
        ranks = rank[column_of_site[sites]]
        reached = np.cumsum(np.bincount(ranks))
        filled = int(np.searchsorted(reached, min(2 * count, len(sites)))) + 1
        order = order[ranks[order] < filled]
    return np.sort(sites[order[:count]])
