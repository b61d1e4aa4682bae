"""The section training.classify."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from namsa.config.loading import Section

ClassName = Annotated[str, Field(min_length=1, max_length=200)]
Potential = Annotated[float, Field(ge=-1e12, le=1e12)]
Spread = Annotated[float, Field(gt=0, le=1e12)]


class Classify(Section):
    """The classes of patterns."""

    label: Literal[
        "crystal_system", "space_group", "zone_axis", "material", "thickness", "potential_clusters"
    ] = Field(
        "crystal_system",
        description="property of a sample, from the dataset's manifest, that is its class; "
        "'potential_clusters': "
        "the cluster of the projected potential around the probe, of network.classes that the "
        "training samples form",
    )
    classes: tuple[ClassName, ...] = Field(
        (),
        max_length=10_000,
        description="the classes, in the order of the network's outputs, as 'cubic', 'Fm-3m', "
        "'[0 0 1]', a material's "
        "name or a thickness in Å; samples of others are left out. None: all that the dataset has",
    )
    potential_centres: tuple[tuple[Potential, ...], ...] = Field(
        (),
        max_length=10_000,
        description="of potential_clusters, the mean potential around the probe, V·Å, blurred by "
        "each width. A job "
        "finds them and writes them into its run directory",
    )
    potential_spreads: tuple[Spread, ...] = Field(
        (),
        max_length=100,
        description="standard deviation of the potentials blurred by each width, V·Å",
    )

    @model_validator(mode="after")
    def _classes_differ(self) -> "Classify":
        if len(set(self.classes)) < len(self.classes):
            raise ValueError(f"classes {list(self.classes)} has a name twice: give each once")
        return self

    @model_validator(mode="after")
    def _clusters_are_found(self) -> "Classify":
        centres = self.potential_centres
        widths = len(self.potential_spreads)
        classes = self.classes if self.label == "potential_clusters" else ()
        if (
            len(centres) != len(classes)
            or any(len(centre) != widths for centre in centres)
            or (centres and not widths)
        ):
            raise ValueError(
                "classes, potential_centres and potential_spreads are found together for label "
                "potential_clusters: leave them out"
            )
        return self
