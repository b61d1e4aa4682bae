"""The 3-D U-Net (Çiçek et al. 2016) as Oyama et al. 2020 train it: from a volume to classes or
values of each voxel.

Each level has two convolutions of 3³, each followed by batch normalisation and leaky ReLU, then max
pooling. The way up begins with a transposed convolution of 2³ that keeps the number of channels,
beside which the maps of the way down are put. No convolution has a bias.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from fcdensenet.blocks import Tensor

from .config import Maps, NetworkSection, Slope, Volume, check_multiple
from .layers import NetworkLayers


class UNet3DConfig(NetworkSection):
    """A network for volumes. With f = `first_filters`, level l from 0 has f·2^l and 2f·2^l maps on
    the way down.
    """

    kind: Literal["unet3d"] = "unet3d"
    input_shape: Volume = Field(description="(channels, z, y, x) of a volume")
    levels: Annotated[int, Field(ge=1, le=8)] = Field(
        3, description="how many times the grid is halved"
    )
    first_filters: Maps = Field(32, description="feature maps of the first convolution")
    output_channels: Maps = Field(3, description="number of classes or values per voxel")
    negative_slope: Slope = Field(0.01, description="of the leaky ReLU")

    @property
    def pools(self) -> int:
        """Number of times that the grid is halved."""
        return self.levels

    @property
    def dropout(self) -> float:
        """The network has none."""
        return 0.0

    @model_validator(mode="after")
    def _grid_fits(self) -> "UNet3DConfig":
        check_multiple(self.input_shape, 2**self.levels, f"which {self.levels} poolings need")
        return self


def network(op: NetworkLayers[Tensor], config: UNet3DConfig) -> tuple[Tensor, Tensor]:
    """Composes the network of Keras layers, or of shapes; returns its input, and the values of each
    voxel.
    """
    volume = op.input("volume")
    x = volume
    skips = []
    for level in range(config.levels):
        x = _convolutions(op, x, level, 1, config, f"down{level + 1}")
        skips.append(x)
        x = op.pool(x, "max", f"down{level + 1}_pool")
    x = _convolutions(op, x, config.levels, 1, config, "bottom")
    for level in reversed(range(config.levels)):
        name = f"up{level + 1}"
        up = op.transposed_conv(x, op.channels(x), 2, name)
        stack = op.concat([up, skips[level]], f"{name}_skip")
        x = _convolutions(op, stack, level, 2, config, name)
    return volume, op.output(op.conv(x, config.output_channels, 1, "last", bias=False), "values")


def _convolutions(
    op: NetworkLayers[Tensor],
    x: Tensor,
    level: int,
    factor: Literal[1, 2],
    config: UNet3DConfig,
    name: str,
) -> Tensor:
    """Adds two convolutions: of `factor` times the level's width, and of twice that width."""
    width = config.first_filters * 2**level
    for index, filters in enumerate((factor * width, 2 * width), start=1):
        x = op.conv(x, filters, 3, f"{name}_conv{index}", bias=False)
        x = op.norm(x, f"{name}_norm{index}")
        x = op.leaky_relu(x, config.negative_slope, f"{name}_relu{index}")
    return x
