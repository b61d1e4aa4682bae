"""A crystal to simulate, with its source."""

from dataclasses import dataclass
from typing import Literal

import ase

# In the order of preference of the same crystal from several sources.
MaterialKind = Literal[
    "cif", "file", "materials_project", "builtin", "layers", "generator", "substituted"
]


@dataclass(frozen=True)
class Material:
    """A crystal to simulate.

    Attributes:
        name: Unique name that is safe in file names.
        formula: Reduced formula.
        space_group: Hermann–Mauguin symbol.
        atoms: The conventional cell, to which zone axes refer.
        source: The library entry or the file it comes from.
        kind: The kind of source. A "substituted" crystal was derived from a prototype and need not
            exist.
        merged: Names and sources of the duplicates that were left out in favour of this crystal.
        prototype: Of a "substituted" crystal, the name of the one whose structure it has, in
            another size; else "".
        snapshots: Of a trajectory, the states of the specimen whose patterns are averaged; `atoms`
            is the first.
        partner: The second crystal, for a specimen that is an interface of two; else `None`.
    """

    name: str
    formula: str
    space_group: str
    atoms: ase.Atoms
    source: str
    kind: MaterialKind = "generator"
    merged: tuple[str, ...] = ()
    prototype: str = ""
    partner: "Material | None" = None
    snapshots: tuple[ase.Atoms, ...] = ()
