"""CosmoFlow (Mathuriya et al. 2018) as Oyama et al. 2020 train it: from a volume to a few numbers
(table 1).

Convolutions without bias, each followed by leaky ReLU and, while every extent is 4 at least, by
pooling; then three dense layers. Volumes of 128³, 256³ and 512³ therefore have the same parameters.

Of a divided sample, neighbouring parts are gathered where one has too few rows to be halved, and
all before the dense layers. Each rank then has the rows of several, and computes what follows as
they do.
"""

from typing import Literal

from pydantic import Field, model_validator

from fcdensenet.blocks import Pooling, Tensor

from .config import Maps, NetworkSection, Rate, Slope, Volume
from .layers import NetworkLayers

SMALLEST_POOLED = 4  # extent


class CosmoFlowConfig(NetworkSection):
    """A network for the estimation of numbers from a volume, by default that of Oyama et al.

    They do not name the slope of the leaky ReLU and the kind of pooling.
    """

    kind: Literal["cosmoflow"] = "cosmoflow"
    input_shape: Volume = Field(description="(channels, z, y, x) of a volume")
    filters: tuple[Maps, ...] = Field(
        (16, 32, 64, 128, 256, 256, 256),
        min_length=1,
        max_length=31,
        description="feature maps of each convolution",
    )
    strides: tuple[Literal[1, 2], ...] = Field(
        (1, 1, 1, 2, 1, 1, 1), description="stride of each convolution"
    )
    dense: tuple[Maps, ...] = Field(
        (2048, 256), max_length=31, description="units of the hidden dense layers"
    )
    outputs: Maps = Field(4, description="number of estimated quantities, scaled to −1 … 1")
    pooling: Pooling = Field("average", description="kind of pooling")
    negative_slope: Slope = Field(0.01, description="of the leaky ReLU")
    dropout: Rate = Field(0.2, description="dropout rate behind each hidden dense layer")
    norm: bool = Field(False, description="batch normalisation behind each convolution")

    @model_validator(mode="after")
    def _strides_fit(self) -> "CosmoFlowConfig":
        if len(self.strides) != len(self.filters):
            raise ValueError(
                f"{len(self.strides)} strides for {len(self.filters)} filters: give one for each"
            )
        return self


def network(op: NetworkLayers[Tensor], config: CosmoFlowConfig) -> tuple[Tensor, Tensor]:
    """Composes the network of Keras layers, or of shapes; returns the network's input and its
    estimates.
    """
    x = volume = op.input("volume")
    extent = min(config.input_shape[1:])
    for index, (filters, stride) in enumerate(
        zip(config.filters, config.strides, strict=True), start=1
    ):
        op, x = op.gathered(x, stride, f"c{index}_gathered")
        x = op.conv(x, filters, 3, f"c{index}", bias=False, stride=stride)
        if config.norm:
            x = op.norm(x, f"c{index}_norm")
        x = op.leaky_relu(x, config.negative_slope, f"c{index}_relu")
        extent = -(-extent // stride)
        if extent >= SMALLEST_POOLED:
            op, x = op.gathered(x, 2, f"p{index}_gathered")
            x = op.pool(x, config.pooling, f"p{index}")
            extent = extent // 2
    op, x = op.gathered(x, None, "gathered")
    x = op.flatten(x, "flatten")
    for index, units in enumerate(config.dense, start=1):
        x = op.leaky_relu(
            op.dense(x, units, f"fc{index}"), config.negative_slope, f"fc{index}_relu"
        )
        if config.dropout:
            x = op.dropout(x, config.dropout, f"fc{index}_dropout")
    return volume, op.output(op.dense(x, config.outputs, f"fc{len(config.dense) + 1}"), "estimates")
