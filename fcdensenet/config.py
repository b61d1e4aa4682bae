"""The network's configuration: one frozen section, called `network` in an experiment's YAML."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fcdensenet.problems import SectionType

# Far beyond networks that exist, and far below what overflows a count of FLOP or takes minutes to
# count.
Extent = Annotated[int, Field(ge=1, le=2**15)]
Channels = Annotated[int, Field(ge=1, le=2**20)]
FeatureMaps = Annotated[int, Field(ge=1, le=2**14)]
Kernel = Annotated[int, Field(ge=1, le=255)]
Convolutions = Annotated[int, Field(ge=1, le=256)]


class NetworkConfig(BaseModel, metaclass=SectionType):
    """A fully convolutional DenseNet (Jégou et al. 2017) with the options of Laanait et al. (2019).

    Of its 2p + 1 dense blocks, p are on the way down, one is at the bottom and p are on the way up.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _true_is_no_number(cls, values: object) -> object:
        """Refuses true and false where a number is meant, which pydantic takes for 1 and 0."""
        if not isinstance(values, dict):
            return values
        for name, value in values.items():
            field = cls.model_fields.get(name)
            if field and isinstance(value, bool) and field.annotation is not bool:
                raise ValueError(f"{name} must be a number or text, and is {str(value).lower()}")
        return values

    kind: Literal["fcdensenet"] = Field(
        "fcdensenet", description="tells this section from those of other networks"
    )
    input_shape: tuple[Channels, Extent, Extent] = Field(
        description="(channels, y, x) of a pattern"
    )
    layers: tuple[Convolutions, ...] = Field(
        (1, 2, 4, 3, 4, 2, 1),
        max_length=31,
        description="number of convolutions in each dense block, from the first to the last",
    )
    growth: FeatureMaps = Field(256, description="feature maps per convolution of a dense block")
    kernel: Kernel = Field(5, description="kernel size of a dense block's convolutions")
    first_kernel: Kernel = Field(5, description="kernel size of the first convolution")
    first_filters: FeatureMaps = Field(256, description="feature maps of the first convolution")
    output_channels: FeatureMaps = Field(1, description="channels of the output")
    transitions: Literal["pooled", "strided"] = Field(
        "pooled",
        description="'pooled': on the way down ReLU, a linear 1×1 convolution and pooling; "
        "'strided': a "
        "1×1 convolution of stride 2 and ReLU, with biases on both ways (Kurth et al. 2018)",
    )
    pooling: Literal["average", "max"] = Field(
        "average", description="pooling of the transitions down if 'pooled'"
    )
    dropout: float = Field(0.5, ge=0, lt=1, description="dropout rate of each dense block's output")
    block_norm: bool = Field(
        False, description="batch normalisation before each convolution of a dense block"
    )
    transition_norm: bool = Field(
        True,
        description="batch normalisation in the transitions down if 'pooled' (Jégou et al. 2017)",
    )
    transition_up_kernel: Kernel = Field(
        2,
        description="kernel size of the transitions up; 1 leaves three quarters of the outputs "
        "zero (paper)",
    )
    data_format: Literal["channels_last", "channels_first"] = Field(
        "channels_last", description="order of the axes in memory"
    )

    @model_validator(mode="after")
    def _layers_fit_input(self) -> "NetworkConfig":
        if len(self.layers) % 2 == 0:
            raise ValueError(
                "layers must have an odd number of blocks (p down, 1 bottom, p up), not "
                f"{len(self.layers)}"
            )
        factor = 2**self.pools
        if any(extent % factor for extent in self.input_shape[1:]):
            raise ValueError(
                f"input_shape {self.input_shape}: y and x must be multiples of {factor} for "
                f"{self.pools} poolings"
            )
        return self

    @property
    def pools(self) -> int:
        """Number of times that the feature maps are halved."""
        return len(self.layers) // 2
