"""Sections of a configuration for the tasks other than the density, such as `training.classify`."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from namsa.config.loading import Section

ClassName = Annotated[str, Field(min_length=1, max_length=200)]
Quantity = Literal["thickness_angstrom", "defocus_angstrom", "specimen_tilt_y_mrad", "specimen_tilt_x_mrad"]
Diameter = Annotated[float, Field(ge=1, le=2**15)]
Potential = Annotated[float, Field(ge=-1e12, le=1e12)]
Spread = Annotated[float, Field(gt=0, le=1e12)]


class Classify(Section):
    """What patterns are told apart by."""

    label: Literal["crystal_system", "space_group", "zone_axis", "material", "thickness", "potential_clusters"] = Field(
        "crystal_system",
        description="property of a sample, from the dataset's manifest, that is its class; 'potential_clusters': "
        "the cluster of the projected potential around the probe, of network.classes that the training samples form",
    )
    classes: tuple[ClassName, ...] = Field(
        (),
        max_length=10_000,
        description="the classes, in the order of the network's outputs, as 'cubic', 'Fm-3m', '[0 0 1]', a material's "
        "name or a thickness in Å; samples of others are left out. None: all that the dataset has",
    )
    potential_centres: tuple[tuple[Potential, ...], ...] = Field(
        (),
        max_length=10_000,
        description="of potential_clusters, the mean potential around the probe, V·Å, blurred by each width. A job "
        "finds them and writes them into its run directory",
    )
    potential_spreads: tuple[Spread, ...] = Field(
        (), max_length=100, description="standard deviation of the potentials blurred by each width, V·Å"
    )

    @model_validator(mode="after")
    def _classes_differ(self) -> "Classify":
        if len(set(self.classes)) < len(self.classes):
            raise ValueError(f"classes {list(self.classes)} has a name twice: give each once")
        return self

    @model_validator(mode="after")
    def _clusters_are_found(self) -> "Classify":
        centres, widths = self.potential_centres, len(self.potential_spreads)
        found = self.classes if self.label == "potential_clusters" else ()
        if len(centres) != len(found) or any(len(centre) != widths for centre in centres) or (centres and not widths):
            raise ValueError(
                "classes, potential_centres and potential_spreads are found together for label potential_clusters: "
                "leave them out"
            )
        return self


class Inclusion(Section):
    """A kind of inclusion in the matrix of a composite scan."""

    fraction: float = Field(ge=0, le=0.9, description="fraction of the positions, on average; 0: no such class")
    diameter_positions: tuple[Diameter, Diameter] = Field(
        description="diameter [least, most] of a circle of the same area, scan positions, drawn evenly"
    )

    @model_validator(mode="after")
    def _diameters_are_ordered(self) -> "Inclusion":
        if self.diameter_positions[0] > self.diameter_positions[1]:
            raise ValueError(f"diameter_positions {list(self.diameter_positions)} falls: give [least, most]")
        return self


class Segment(Section):
    """Composite scans, and the weights of their classes in the loss. The defaults have the imbalance of Kurth et al."""

    grain: Inclusion = Field(
        Inclusion(fraction=0.017, diameter_positions=(8, 16)),
        description="polygons of the same material along another zone axis",
    )
    phase: Inclusion = Field(
        Inclusion(fraction=0.001, diameter_positions=(2, 5)), description="ellipses of another material"
    )
    weights: Literal["inverse_sqrt", "inverse", "none"] = Field(
        "inverse_sqrt",
        description="weight of a position in the loss, by the fraction f of its class: 1/√f (the paper), 1/f, or 1",
    )
    draws: Annotated[int, Field(ge=1, le=10_000)] = Field(
        4, description="composites that are made of each held-out sample"
    )

    @model_validator(mode="after")
    def _matrix_is_left(self) -> "Segment":
        if not 0 < self.grain.fraction + self.phase.fraction < 1:
            raise ValueError(
                f"grain.fraction {self.grain.fraction:g} and phase.fraction {self.phase.fraction:g} must have a sum "
                "between 0 and 1: the matrix has the rest"
            )
        return self

    @property
    def inclusions(self) -> dict[str, Inclusion]:
        """The inclusions that there are, by the name of their class."""
        found = {"grain": self.grain, "phase": self.phase}
        return {name: inclusion for name, inclusion in found.items() if inclusion.fraction}

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the network's outputs."""
        return ("matrix", *self.inclusions)

    @property
    def fractions(self) -> tuple[float, ...]:
        """Fraction of the positions that each class has on average."""
        parts = [inclusion.fraction for inclusion in self.inclusions.values()]
        return (1 - sum(parts), *parts)


class Embed(Section):
    """How patterns become a few numbers, and what the numbers are compared with."""

    divergence_weight: float = Field(
        1.0,
        ge=0,
        le=1e6,
        description="factor of the divergence of the latent distributions in the loss. 1 is the paper's sum; a smaller "
        "number lets the latent numbers say more of a pattern, and be less like standard normal ones",
    )
    materials: int = Field(
        4,
        ge=2,
        le=64,
        description="materials of each composite scan, in which evaluation compares clusters with materials",
    )


class Estimate(Section):
    """The numbers that are estimated from a scan."""

    quantities: tuple[Quantity, ...] = Field(
        ("thickness_angstrom", "defocus_angstrom", "specimen_tilt_y_mrad", "specimen_tilt_x_mrad"),
        min_length=1,
        description="the quantities, in the order of the network's outputs. Each must vary between samples; its range "
        "becomes -1 to 1",
    )

    @model_validator(mode="after")
    def _quantities_differ(self) -> "Estimate":
        if len(set(self.quantities)) < len(self.quantities):
            raise ValueError(f"quantities {list(self.quantities)} has a name twice: give each once")
        return self
