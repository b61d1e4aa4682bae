"""Mixed and partly occupied sites as ASE describes them.

`ase.io.read` and `ase.spacegroup.crystal` put one atom on a mixed site, of the element that is most
frequent there, and the shares of all elements into `atoms.info["occupancy"]`, by the kind of site
that `atoms.arrays["spacegroup_kinds"]` gives each atom. Here a mixed site is several atoms at one
position, with `atoms.arrays["occupancy"]` (see `namsa.crystals.sites`).
"""

from collections.abc import Mapping

import ase
import numpy as np
from ase.data import atomic_numbers

from namsa.base.errors import InputError
from namsa.base.text import shorten

KINDS_OF_SITES = "spacegroup_kinds"


def with_occupancies(atoms: ase.Atoms) -> ase.Atoms:
    """Returns atoms whose mixed sites are those of `atoms.info["occupancy"]`.

    Atoms without it, or with `atoms.arrays["occupancy"]`, are returned as they are.

    Args:
        atoms: Atoms as of ASE.

    Returns:
        Atoms with an array of occupancies, in the order of the sites; an element of no share is
        left out.

    Raises:
        InputError: If the entry does not say which atoms it means, or holds no shares of elements.
    """
    shares = atoms.info.get("occupancy")
    if shares is None or "occupancy" in atoms.arrays:
        return atoms
    kinds = atoms.arrays.get(KINDS_OF_SITES)
    if not isinstance(shares, Mapping) or kinds is None:
        raise InputError(
            f"atoms.info['occupancy'] is {shorten(shares)}, without what says which atoms it "
            f"means (atoms.arrays['{KINDS_OF_SITES}']): give atoms.arrays['occupancy'], one number "
            "for each atom and one atom for each element of a mixed site, or delete the entry"
        )
    shares_of_kind = {str(kind): _checked_shares(kind, entry) for kind, entry in shares.items()}
    sites: list[int] = []
    numbers: list[int] = []
    occupancies: list[float] = []
    for site, kind in enumerate(kinds.tolist()):
        elements = shares_of_kind.get(str(kind), {int(atoms.numbers[site]): 1.0})
        for atomic_number, share in elements.items():
            sites.append(site)
            numbers.append(atomic_number)
            occupancies.append(share)
    expanded = atoms[sites]
    expanded.numbers[:] = numbers
    expanded.set_array("occupancy", np.array(occupancies))
    del expanded.info["occupancy"]
    return expanded


def _checked_shares(kind: object, entry: object) -> dict[int, float]:
    """Returns the shares of a site by atomic number, without those of 0.

    Raises:
        InputError: If they are no shares of elements, or sum to more than the site.
    """
    name = f"atoms.info['occupancy'][{kind!r}]"
    if not isinstance(entry, Mapping) or not entry:
        raise InputError(f"{name} is {shorten(entry)}; it must be shares by element")
    shares: dict[int, float] = {}
    for symbol, share in entry.items():
        atomic_number = atomic_numbers.get(symbol, 0) if isinstance(symbol, str) else 0
        is_share = isinstance(share, int | float) and 0 <= share <= 1
        if not atomic_number or not is_share:
            raise InputError(
                f"{name} has {shorten(symbol)}: {shorten(share)}; it must be an element and its "
                "share, 0 to 1"
            )
        if share:
            shares[atomic_number] = float(share)
    return shares
