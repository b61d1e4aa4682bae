"""Sections of a configuration that choose the crystals and split them into training, development
and test sets.
"""

import json
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from namsa.base.text import shorten
from namsa.config.bounds import Word
from namsa.config.loading import Section


class MaterialsProject(Section):
    """A query of the Materials Project. `namsa fetch` sends it once; later runs read the answer
    from `file`.
    """

    file: Path = Field(
        description="JSON file with the answer; `namsa fetch CONFIG` writes it, given MP_API_KEY "
        "and a network"
    )
    material_ids: tuple[Word, ...] = Field((), description="identifiers, as mp-149")
    formula: tuple[Word, ...] = Field((), description="formulas, as SrTiO3")
    chemsys: tuple[Word, ...] = Field(
        (), description="chemical systems: all elements of a crystal, as Sr-Ti-O"
    )
    elements: tuple[Word, ...] = Field(
        (), description="elements that a crystal must contain, all of them"
    )
    exclude_elements: tuple[Word, ...] = Field(
        (), description="elements that a crystal must not contain"
    )
    max_energy_above_hull_ev: float | None = Field(
        None,
        ge=0,
        le=1000,
        description="largest energy above the convex hull, eV per atom; 0 selects stable crystals "
        "only",
    )
    max_sites: int | None = Field(
        None, ge=1, le=10**6, description="largest number of atoms in the primitive cell"
    )
    observed: bool = Field(False, description="only crystals that were observed in an experiment")
    limit: int | None = Field(
        None, ge=1, le=10**9, description="largest number of crystals, chosen by hash"
    )

    @model_validator(mode="after")
    def _has_a_criterion(self) -> "MaterialsProject":
        if not (self.material_ids or self.formula or self.chemsys or self.elements or self.limit):
            raise ValueError(
                "give material_ids, formula, chemsys, elements or a limit: it has 200,000 crystals"
            )
        return self


class Generator(Section):
    """A Python function that returns crystals: ase.Atoms with a name in `info["name"]`, or namsa's
    `Material`.
    """

    function: str = Field(
        pattern=r"^[^:]+:[A-Za-z_]\w*$",
        max_length=1000,
        description="'package.module:function' or 'path/to/file.py:function'",
    )
    arguments: dict[str, object] = Field(
        default_factory=dict,
        description="keyword arguments of the function, which must return the same crystals at "
        "every call",
    )

    @field_validator("arguments")
    @classmethod
    def _arguments_are_json(cls, values: dict[str, object]) -> dict[str, object]:
        try:  # they are written to config.yaml, and the dataset's hash depends on them
            json.dumps(values, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(
                f"give text, finite numbers, lists and mappings: {shorten(error)}"
            ) from None
        return values


class Substitution(Section):
    """Hypothetical crystals: chosen ones in which ions are replaced by similar ones. Their names
    say so.
    """

    limit: int = Field(ge=1, le=10**9, description="largest number of crystals, chosen by hash")
    max_ions: int = Field(
        1, ge=1, le=4, description="largest number of ions of a crystal that are replaced at once"
    )
    mixing_steps: int = Field(
        1,
        ge=1,
        le=10,
        description="a similar ion takes this many parts of a site, or fewer: 1 replaces whole "
        "sites, 4 makes also solid solutions with 1/4, 1/2 and 3/4 of the new ion",
    )
    alloys: bool = Field(
        False,
        description="also replace atoms of the same valence in elements, alloys and covalent "
        "crystals",
    )


class Materials(Section):
    """The sources of the crystals."""

    builtin: Literal["all"] | tuple[Word, ...] = Field(
        (), description="'all', or names from the list that `namsa crystals` prints"
    )
    layers: Literal["all"] | tuple[Word, ...] = Field(
        (),
        description="films of one to three layers of layered crystals: 'all', or names from the "
        "list that `namsa crystals` prints, as MoS2-2H-1L, or MoS2-2H for the three",
    )
    cif: tuple[Path, ...] = Field(
        (), description="CIF files, or folders of them, relative to the working directory"
    )
    files: tuple[Path, ...] = Field(
        (),
        description="files of one crystal each: POSCAR, .xyz with a cell, .xsf, .pdb, .cube, .gen "
        "or .cif",
    )
    as_is: bool = Field(
        False,
        description="take the cells of files as they are, to which zone axes then refer: by "
        "default a cell that is not a conventional one becomes that of the "
        "International Tables",
    )
    skip_unreadable: bool = Field(
        False,
        description="leave out files that cannot be read, each with a warning; by default the "
        "first is an error",
    )
    materials_project: MaterialsProject | None = Field(
        None, description="a query of the Materials Project"
    )
    generator: Generator | None = Field(None, description="a Python function that returns crystals")
    substitute: Substitution | None = Field(
        None, description="hypothetical crystals derived from the chosen ones"
    )
    merge_duplicates: bool = Field(
        True, description="keep a crystal that several sources have only once"
    )
    max_atomic_number: int = Field(
        103, ge=1, le=103, description="leave out crystals with heavier elements"
    )
    limit: int | None = Field(
        None, ge=1, le=10**9, description="largest number of materials, chosen by hash"
    )


class Split(Section):
    """Fractions of the materials in each split, assigned by hash. No formula is in two splits.

    With `by: elements`, no set of elements is in two splits; with `by: prototype`, no structure
    type is.
    """

    train: float = Field(0.90, ge=0, le=1, description="fraction for training")
    dev: float = Field(0.05, ge=0, le=1, description="fraction for development")
    test: float = Field(0.05, ge=0, le=1, description="fraction for the final test")
    by: Literal["formula", "elements", "prototype"] = Field(
        "formula",
        description="what stays together: 'formula', materials of one formula; 'elements', "
        "materials of the same elements, as all compositions of a solid solution; "
        "'prototype', materials of one formula, and those with the same type of "
        "formula and the same space group",
    )

    @model_validator(mode="after")
    def _fractions_sum_to_one(self) -> "Split":
        if abs(self.train + self.dev + self.test - 1) > 1e-9:
            raise ValueError(
                f"train + dev + test must be 1, not {self.train + self.dev + self.test:g}"
            )
        return self
