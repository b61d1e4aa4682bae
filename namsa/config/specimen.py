"""Section of a configuration that describes specimens: what is made of a crystal, and how its atoms
vibrate.
"""

from typing import Annotated, Literal, get_args

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from namsa.config.bounds import (
    MOST_THERMAL_CONFIGURATIONS,
    ONE_OR_MORE,
    Index,
    Laterals,
    Thickness,
)
from namsa.config.loading import Section
from namsa.config.response import Plasmons

Displacement = Annotated[float, Field(ge=0, le=10)]  # Å
BFactor = Annotated[float, Field(ge=0, le=8000)]  # Å²; 8π²u² of 10 Å


class FrozenPhonons(Section):
    """Thermal displacements in Einstein's model, drawn anew for each configuration of the atoms."""

    rms_angstrom: Displacement | dict[str, Displacement] | Literal["cif"] | None = Field(
        None,
        description="root mean square displacement u = √U_iso along one axis, Å: one number, or "
        "one for each element; 'cif' takes each site's own from the U or B in the "
        "crystal's CIF",
    )
    b_factor_angstrom2: BFactor | dict[str, BFactor] | None = Field(
        None, description="Debye–Waller factor B = 8π²u², Å², in place of rms_angstrom"
    )
    configurations: (
        Annotated[int, Field(ge=1, le=MOST_THERMAL_CONFIGURATIONS)] | Literal["auto"]
    ) = Field(
        1,
        description="number of configurations of the atoms whose patterns are averaged, or 'auto': "
        "as many as accuracy needs",
    )

    @model_validator(mode="after")
    def _has_one_displacement(self) -> "FrozenPhonons":
        if (self.rms_angstrom is None) == (self.b_factor_angstrom2 is None):
            raise ValueError("give exactly one of rms_angstrom and b_factor_angstrom2")
        return self

    def displacement_angstrom(self) -> float | dict[str, float] | Literal["cif"]:
        """Returns the root mean square displacement along one axis, Å, from either of the two
        settings.

        "cif" stands for that of each site in the crystal's CIF.
        """
        if self.rms_angstrom is not None:
            return self.rms_angstrom
        b = self.b_factor_angstrom2
        if isinstance(b, dict):
            return {symbol: float(np.sqrt(value / 8) / np.pi) for symbol, value in b.items()}
        return float(np.sqrt((b or 0.0) / 8) / np.pi)


Kind = Literal[
    "crystal",
    "vacancies",
    "substitution",
    "interface",
    "twin",
    "boundary",
    "grain",
    "precipitate",
    "surface",
    "step",
    "amorphous_layer",
    "amorphous",
    "stack",
    "cap",
    "buried_layer",
    "doped_layer",
    "vacuum",
]
KINDS: tuple[Kind, ...] = get_args(Kind)  # of specimens: what is made of a crystal


def _one_axis(value: object) -> object:
    """Returns one direction [u, v, w] as a list of it."""
    if isinstance(value, list | tuple) and all(isinstance(index, int) for index in value):
        return [value]
    return value


_ONE_AXIS = BeforeValidator(_one_axis)


class Specimen(Section):
    """The orthogonal supercells that are made from each crystal: one for every zone axis and every
    thickness.
    """

    zone_axes: Annotated[tuple[tuple[Index, Index, Index], ...], _ONE_AXIS] = Field(
        ((0, 0, 1),),
        min_length=1,
        max_length=1000,
        description="directions [uvw] of the crystal that lie along the beam",
    )
    simplest_zone_axes: int | None = Field(
        None,
        ge=1,
        le=20,
        description="number of zone axes per crystal, in place of zone_axes: those with the "
        "smallest indices that no symmetry of the crystal relates",
    )
    thickness_angstrom: Annotated[tuple[Thickness, ...], ONE_OR_MORE] = Field(
        (20.0,),
        min_length=1,
        max_length=1000,
        description="thicknesses along the beam, Å, rounded to whole periods of the crystal",
    )
    lateral_angstrom: Laterals = Field((16.0, 16.0), description="smallest extent (y, x), Å")
    max_strain: float = Field(
        0.02, ge=0, le=0.2, description="largest strain that making the cell orthogonal may cause"
    )
    per_zone_axis: int = Field(
        1, ge=1, le=1000, description="number of specimens per material and zone axis"
    )
    kinds: dict[Kind, Annotated[float, Field(gt=0, le=1e6)]] | None = Field(
        None,
        min_length=1,
        description="shares by which each specimen draws what is made of the crystal: "
        + ", ".join(KINDS)
        + "; none: "
        "crystals only",
    )
    max_atoms: int = Field(
        200_000,
        ge=1,
        le=10**9,
        description="largest number of atoms; a larger supercell is an error",
    )
    frozen_phonons: FrozenPhonons | None = Field(
        None, description="thermal displacements of the atoms"
    )
    plasmons: Plasmons | None = Field(
        None, description="inelastic scattering by plasmons; none: elastic patterns"
    )
    random_occupations: int | None = Field(
        None,
        ge=1,
        le=10_000,
        description="number of snapshots in which each mixed or partly occupied site holds one "
        "atom or none, drawn by the occupancies; their patterns are averaged; none: "
        "the virtual crystal, whose sites scatter as the mean of their atoms",
    )
