"""DeepLabv3+ with a decoder of full resolution, after Kurth et al. 2018 (figure 1).

Encoder: a ResNet-50 of the second kind (normalisation and ReLU before the convolutions, He et al.
2016) whose grid stays at an eighth; dilated convolutions replace the further halvings. Then
convolutions of three dilations, a 1×1 convolution and the image's mean, side by side (atrous
spatial pyramid pooling). The decoder doubles the grid three times and takes in maps of a quarter of
the resolution, and at the end the input itself.

A convolution has a bias where no normalisation follows, so that `norm: false` leaves the published
43,669,251 parameters. Differences from the authors' code: each convolution of the decoder has a
ReLU; there, those behind the second doubling follow each other linearly.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from fcdensenet.blocks import Tensor

from .config import Image, Maps, NetworkSection, check_multiple
from .layers import NetworkLayers

EPSILON = 1e-5  # of the normalisation
# what replaces a normalisation: without it, sums over residual units leave the range of float16
HALF = 0.5
STRIDE = 8  # of the encoder: the grid of its last maps

Rate = Annotated[int, Field(ge=1, le=1024)]


class DeepLabV3PlusConfig(NetworkSection):
    """A network for the segmentation of images, by default that of Kurth et al."""

    kind: Literal["deeplabv3plus"] = "deeplabv3plus"
    input_shape: Image = Field(description="(channels, y, x) of an image")
    output_channels: Maps = Field(3, description="number of classes")
    units: tuple[Maps, Maps, Maps, Maps] = Field(
        (3, 4, 6, 3), description="residual units of the encoder's four stages"
    )
    width: Maps = Field(64, description="feature maps of the encoder's first convolution")
    rates: tuple[Rate, ...] = Field(
        (12, 24, 36), max_length=16, description="dilations beside each other"
    )
    filters: Maps = Field(256, description="feature maps of the decoder")
    low_level_filters: Maps = Field(
        48, description="feature maps taken from a quarter of the resolution"
    )
    skip_filters: tuple[Maps, Maps] = Field(
        (64, 128), description="feature maps of the skip from the input"
    )
    norm: bool = Field(
        True,
        description="batch normalisation; without, values are halved in its place (the authors)",
    )

    @model_validator(mode="after")
    def _grid_fits(self) -> "DeepLabV3PlusConfig":
        check_multiple(self.input_shape, STRIDE, "which is the stride of the encoder")
        return self


def network(op: NetworkLayers[Tensor], config: DeepLabV3PlusConfig) -> tuple[Tensor, Tensor]:
    """Composes the network of Keras layers, or of shapes; returns its input, and logits of each
    pixel's classes.
    """
    image = op.input("image")
    x, low_level = _encoder(op, image, config)
    x = _pyramid(op, x, config)
    x = op.relu(op.transposed_conv(x, config.filters, 3, "up1", bias=True), "up1_relu")
    low_level = _conv(op, low_level, config.low_level_filters, 1, config, "low_level")
    x = op.concat([x, low_level], "quarter")
    for index in (1, 2):
        x = _conv(op, x, config.filters, 3, config, f"quarter_conv{index}")
    for index in (2, 3):
        x = op.relu(
            op.transposed_conv(x, config.filters, 3, f"up{index}", bias=True), f"up{index}_relu"
        )
    skip = image
    for index, filters in enumerate(config.skip_filters, start=1):
        skip = op.relu(op.conv(skip, filters, 3, f"skip{index}"), f"skip{index}_relu")
    x = op.concat([x, skip], "full")
    for index in (1, 2):
        x = op.relu(op.conv(x, config.filters, 3, f"full_conv{index}"), f"full_conv{index}_relu")
    return image, op.output(op.conv(x, config.output_channels, 1, "last"), "logits")


def _encoder(
    op: NetworkLayers[Tensor], image: Tensor, config: DeepLabV3PlusConfig
) -> tuple[Tensor, Tensor]:
    """Returns the encoder's last maps, and maps of a quarter of the resolution: the last ones with
    `width` channels.

    The last unit of the first stage halves the grid, and the last units of the following two double
    the dilation instead.
    """
    x = op.max_pool(op.conv(image, config.width, 7, "root", stride=2), 3, 2, "same", "root_pool")
    low_level = x
    dilation = 1
    for stage, units in enumerate(config.units):
        maps = config.width * 2**stage
        for unit in range(units):
            last = unit == units - 1
            stride = 2 if last and stage == 0 else 1
            x, reduced = _unit(
                op, x, maps, stride, dilation, config, f"block{stage + 1}_unit{unit + 1}"
            )
            if stage == 0:
                low_level = reduced
        dilation *= 2 if 0 < stage < len(config.units) - 1 else 1
    return _normalised(op, x, config, "encoder"), low_level


def _unit(
    op: NetworkLayers[Tensor],
    x: Tensor,
    maps: int,
    stride: int,
    dilation: int,
    config: DeepLabV3PlusConfig,
    name: str,
) -> tuple[Tensor, Tensor]:
    """Returns a bottleneck's sum with its shortcut, and the maps of the bottleneck's first
    convolution.
    """
    normalised = _normalised(op, x, config, f"{name}_before")
    if op.channels(x) != 4 * maps:
        x = op.conv(normalised, 4 * maps, 1, f"{name}_shortcut", stride=stride)
    elif stride > 1:
        x = op.max_pool(x, 1, stride, "same", f"{name}_shortcut")
    reduced = _conv(op, normalised, maps, 1, config, f"{name}_conv1")
    inner = _conv(op, reduced, maps, 3, config, f"{name}_conv2", stride, dilation)
    return op.add([x, op.conv(inner, 4 * maps, 1, f"{name}_conv3")], name), reduced


def _pyramid(op: NetworkLayers[Tensor], x: Tensor, config: DeepLabV3PlusConfig) -> Tensor:
    """Returns maps that see the encoder's maps from near, from afar, and as a whole."""
    parts = [_conv(op, x, config.filters, 1, config, "pyramid_1x1")]
    for rate in config.rates:
        parts.append(_conv(op, x, config.filters, 3, config, f"pyramid_rate{rate}", dilation=rate))
    pooled = _conv(op, op.mean(x, "pyramid_mean"), config.filters, 1, config, "pyramid_whole")
    parts.append(op.spread(pooled, x, "pyramid_spread"))
    return _conv(op, op.concat(parts, "pyramid"), config.filters, 1, config, "pyramid_out")


def _conv(
    op: NetworkLayers[Tensor],
    x: Tensor,
    filters: int,
    kernel: int,
    config: DeepLabV3PlusConfig,
    name: str,
    stride: int = 1,
    dilation: int = 1,
) -> Tensor:
    """A convolution without bias, normalisation and ReLU."""
    return _normalised(op, op.conv(x, filters, kernel, name, False, stride, dilation), config, name)


def _normalised(
    op: NetworkLayers[Tensor], x: Tensor, config: DeepLabV3PlusConfig, name: str
) -> Tensor:
    """Normalisation, or halving in its place, and ReLU."""
    x = op.norm(x, f"{name}_norm", EPSILON) if config.norm else op.scale(x, HALF, f"{name}_half")
    return op.relu(x, f"{name}_relu")
