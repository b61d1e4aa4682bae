"""A crystal to simulate, and where it comes from."""

from dataclasses import dataclass
from typing import Literal

import ase

Kind = Literal["cif", "materials_project", "builtin", "generator", "substituted"]


@dataclass(frozen=True)
class Material:
    """A crystal to simulate.

    name: unique and safe in file names; formula: reduced; space_group: Hermann–Mauguin symbol
    atoms: the conventional cell, to which zone axes refer; source: the library's entry or the file
    kind: where it comes from; a "substituted" one was made up after a prototype and need not exist
    merged: names and sources of the same crystal elsewhere, left out for this one
    """

    name: str
    formula: str
    space_group: str
    atoms: ase.Atoms
    source: str
    kind: Kind = "generator"
    merged: tuple[str, ...] = ()
