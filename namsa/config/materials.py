"""Sections of a configuration that say which crystals there are and how they are split."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator

from namsa.config.loading import Section


class MaterialsProject(Section):
    """A query of the Materials Project, which `namsa fetch` asks once: from then on its answer is read from `file`."""

    file: Path = Field(description="the answer, JSON; `namsa fetch CONFIG` writes it, with MP_API_KEY and a network")
    material_ids: tuple[str, ...] = Field((), description="as mp-149")
    formula: tuple[str, ...] = Field((), description="as SrTiO3")
    chemsys: tuple[str, ...] = Field((), description="all elements of a crystal, as Sr-Ti-O")
    elements: tuple[str, ...] = Field((), description="elements that are all in the crystal")
    exclude_elements: tuple[str, ...] = ()
    max_energy_above_hull_ev: NonNegativeFloat | None = Field(None, description="per atom; 0: stable ones only")
    max_sites: PositiveInt | None = Field(None, description="atoms in the primitive cell")
    observed: bool = Field(False, description="only crystals of which an experiment is known")
    limit: PositiveInt | None = Field(None, description="at most this many crystals, chosen by hash")

    @model_validator(mode="after")
    def _asks_for_something(self) -> "MaterialsProject":
        if not (self.material_ids or self.formula or self.chemsys or self.elements or self.limit):
            raise ValueError("give material_ids, formula, chemsys, elements or a limit: it has 200,000 crystals")
        return self


class Generator(Section):
    """A Python function that gives crystals: ase.Atoms with a name in `info["name"]`, or namsa's `Material`."""

    function: str = Field(
        pattern=r"^[^:]+:[A-Za-z_]\w*$", description="'package.module:function' or 'path/to/file.py:function'"
    )
    arguments: dict[str, Any] = Field(
        default_factory=dict, description="of the function, by name; it must give the same crystals every time"
    )


class Substitution(Section):
    """Crystals made up from the chosen ones, one ion exchanged for a similar one; named and listed as such."""

    limit: PositiveInt = Field(description="at most this many, chosen by hash")


class Materials(Section):
    """Where crystals come from."""

    builtin: Literal["all"] | tuple[str, ...] = Field((), description="'all' or names that `namsa crystals` lists")
    cif: tuple[Path, ...] = Field((), description="CIF files, or folders of them, relative to the working directory")
    materials_project: MaterialsProject | None = None
    generator: Generator | None = None
    substitute: Substitution | None = None
    merge_duplicates: bool = Field(True, description="take a crystal that several sources have from one of them")
    max_atomic_number: int = Field(103, ge=1, le=103, description="leave out crystals with heavier elements")
    limit: PositiveInt | None = Field(None, description="at most this many materials, chosen by hash")


class Split(Section):
    """Fractions of the materials, assigned by hash: no formula is in two splits, nor, if wanted, any prototype."""

    train: float = Field(0.90, ge=0, le=1)
    dev: float = Field(0.05, ge=0, le=1)
    test: float = Field(0.05, ge=0, le=1)
    by: Literal["formula", "prototype"] = Field(
        "formula",
        description="'prototype': materials of one formula, or of one kind of formula and space group, stay together",
    )

    @model_validator(mode="after")
    def _sums_to_one(self) -> "Split":
        if abs(self.train + self.dev + self.test - 1) > 1e-9:
            raise ValueError(f"train + dev + test must be 1, not {self.train + self.dev + self.test:g}")
        return self
