"""The section training.estimate."""

from typing import Literal

from pydantic import Field, model_validator

from namsa.config.loading import Section

QuantityName = Literal[
    "thickness_angstrom", "defocus_angstrom", "specimen_tilt_y_mrad", "specimen_tilt_x_mrad"
]


class Estimate(Section):
    """The numbers that are estimated from a scan."""

    quantities: tuple[QuantityName, ...] = Field(
        ("thickness_angstrom", "defocus_angstrom", "specimen_tilt_y_mrad", "specimen_tilt_x_mrad"),
        min_length=1,
        description="the quantities, in the order of the network's outputs. Each must vary "
        "between samples; its range "
        "becomes -1 to 1",
    )

    @model_validator(mode="after")
    def _quantities_differ(self) -> "Estimate":
        if len(set(self.quantities)) < len(self.quantities):
            raise ValueError(f"quantities {list(self.quantities)} has a name twice: give each once")
        return self
