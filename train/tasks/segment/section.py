"""The section training.segment."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from namsa.config.bounds import Ordered
from namsa.config.loading import Section


class Inclusion(Section):
    """A kind of inclusion in the matrix of a composite scan."""

    fraction: float = Field(
        ge=0, le=0.9, description="fraction of the positions, on average; 0: no such class"
    )
    diameter_positions: Ordered[Annotated[float, Field(ge=1, le=2**15)]] = Field(
        description="diameter [least, most] of a circle of the same area, scan positions, drawn "
        "evenly"
    )


class Segment(Section):
    """Composite scans, and the weights of their classes in the loss. The defaults have the
    imbalance of Kurth et al.
    """

    grain: Inclusion = Field(
        Inclusion(fraction=0.017, diameter_positions=(8, 16)),
        description="polygons of the same material along another zone axis",
    )
    phase: Inclusion = Field(
        Inclusion(fraction=0.001, diameter_positions=(2, 5)),
        description="ellipses of another material",
    )
    weights: Literal["inverse_sqrt", "inverse", "none"] = Field(
        "inverse_sqrt",
        description="weight of a position in the loss, by the fraction f of its class: 1/√f (the "
        "paper), 1/f, or 1",
    )
    draws: Annotated[int, Field(ge=1, le=10_000)] = Field(
        4, description="composites that are made of each held-out sample"
    )

    @model_validator(mode="after")
    def _matrix_is_left(self) -> "Segment":
        if not 0 < self.grain.fraction + self.phase.fraction < 1:
            raise ValueError(
                f"grain.fraction {self.grain.fraction:g} and phase.fraction "
                f"{self.phase.fraction:g} must have a sum between 0 and 1: the matrix has the rest"
            )
        return self

    @property
    def inclusions(self) -> dict[str, Inclusion]:
        """The inclusions that there are, by the name of their class."""
        texts = {"grain": self.grain, "phase": self.phase}
        return {name: inclusion for name, inclusion in texts.items() if inclusion.fraction}

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the network's outputs."""
        return ("matrix", *self.inclusions)

    @property
    def fractions(self) -> tuple[float, ...]:
        """Fraction of the positions that each class has on average."""
        parts = [inclusion.fraction for inclusion in self.inclusions.values()]
        return (1 - sum(parts), *parts)
