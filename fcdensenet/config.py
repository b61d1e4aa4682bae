"""The network's configuration: one frozen section, called `network` in an experiment's YAML."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator


class NetworkConfig(BaseModel):
    """Fully convolutional DenseNet (Jégou et al. 2017) with the options of Laanait et al. (2019).

    The n-th dense block has `layers[n]` convolutions of `growth` maps each; of the 2p + 1 blocks, p lie on the way
    down, one at the bottom and p on the way up. `input_shape` is (channels, y, x).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    input_shape: tuple[PositiveInt, PositiveInt, PositiveInt]
    layers: tuple[PositiveInt, ...] = (1, 2, 4, 3, 4, 2, 1)
    growth: PositiveInt = 256
    kernel: PositiveInt = 5
    first_kernel: PositiveInt = 5
    first_filters: PositiveInt = 256
    output_channels: PositiveInt = 1
    pooling: Literal["average", "max"] = "average"
    dropout: float = Field(0.5, ge=0, lt=1)
    block_norm: bool = Field(False, description="batch normalisation before each convolution of a dense block")
    transition_up_kernel: PositiveInt = Field(2, description="1 leaves three quarters of the outputs zero (paper)")
    data_format: Literal["channels_last", "channels_first"] = "channels_last"

    @model_validator(mode="after")
    def _fits(self) -> "NetworkConfig":
        if len(self.layers) % 2 == 0:
            raise ValueError(
                f"layers must have an odd number of blocks (p down, 1 bottom, p up), not {len(self.layers)}"
            )
        factor = 2**self.pools
        if any(extent % factor for extent in self.input_shape[1:]):
            raise ValueError(
                f"input_shape {self.input_shape}: y and x must be multiples of {factor} for {self.pools} poolings"
            )
        return self

    @property
    def pools(self) -> int:
        """How often the feature maps are halved."""
        return len(self.layers) // 2
