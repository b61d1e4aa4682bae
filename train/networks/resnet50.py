"""ResNet-50 (He et al. 2015), layer for layer that of `keras.applications`, for any image. With
basic units, whose two convolutions are 3×3, it is ResNet-34.

Written over the abstract layers, it has neither the smallest image of 32 pixels of
`keras.applications.ResNet50` nor its dependence on Keras' global order of axes, its initial weights
follow from a seed, and its moving averages adapt within a hundred steps instead of a thousand.
Names of layers, weights and, with the same weights, outputs are the same.
"""

from typing import Literal

from pydantic import Field

from fcdensenet.blocks import Tensor

from .config import ClassifierSection, Maps
from .layers import NetworkLayers

EPSILON = 1.001e-5  # of the normalisation, as in keras.applications


class ResNet50Config(ClassifierSection):
    """A residual network for images of any number of channels.

    Yoginath et al. (2019) classify 120×85 patterns of one channel into 27 classes with ResNet-50,
    Zhuang et al. (2020) 200 classes of ImageNet with ResNet-34.
    """

    kind: Literal["resnet50"] = "resnet50"
    classes: Maps | None = Field(
        27, description="number of classes; none: the last maps, without mean and dense layer"
    )
    units: tuple[Maps, ...] = Field(
        (3, 4, 6, 3),
        min_length=1,
        max_length=8,
        description="residual units of each stage; each stage halves the grid",
    )
    unit: Literal["bottleneck", "basic"] = Field(
        "bottleneck",
        description="'bottleneck' has convolutions of 1×1, 3×3 and 1×1, as ResNet-50; 'basic' two "
        "of 3×3, as ResNet-34",
    )
    width: Maps = Field(64, description="feature maps of the first convolution")
    conv_bias: bool = Field(
        True, description="biases of the convolutions, which a normalisation follows everywhere"
    )

    @property
    def smallest_extent(self) -> int:
        """The extent of an image of which one pixel is left by the halvings of the stages."""
        return 2 ** (len(self.units) + 1)


def network(op: NetworkLayers[Tensor], config: ResNet50Config) -> tuple[Tensor, Tensor]:
    """Composes the network of Keras layers, or of shapes; returns its input, and logits or the last
    maps.
    """
    image = op.input("image")
    x = op.valid_conv(
        op.pad(image, 3, "conv1_pad"), config.width, 7, 2, "conv1_conv", config.conv_bias
    )
    x = op.relu(op.norm(x, "conv1_bn", EPSILON), "conv1_relu")
    x = op.max_pool(op.pad(x, 1, "pool1_pad"), 3, 2, "valid", "pool1_pool")
    residual_unit = _unit if config.unit == "bottleneck" else _basic_unit
    for stage, units in enumerate(config.units):
        for unit in range(units):
            stride = 2 if stage and not unit else 1
            name = f"conv{stage + 2}_block{unit + 1}"
            x = residual_unit(op, x, config.width * 2**stage, stride, not unit, config, name)
    if config.classes is None:
        return image, op.output(x, "maps")
    x = op.flatten(op.mean(x, "avg_pool"), "flatten")
    return image, op.output(op.dense(x, config.classes, "predictions"), "logits")


def _unit(
    op: NetworkLayers[Tensor],
    x: Tensor,
    maps: int,
    stride: int,
    projected: bool,
    config: ResNet50Config,
    name: str,
) -> Tensor:
    """A bottleneck of 1×1, 3×3 and 1×1 convolutions beside a shortcut, which is projected where
    shapes differ.
    """

    def conv(x: Tensor, filters: int, kernel: int, stride: int, index: int) -> Tensor:
        x = op.conv(x, filters, kernel, f"{name}_{index}_conv", config.conv_bias, stride)
        return op.norm(x, f"{name}_{index}_bn", EPSILON)

    shortcut = conv(x, 4 * maps, 1, stride, 0) if projected else x
    x = op.relu(conv(x, maps, 1, stride, 1), f"{name}_1_relu")
    x = op.relu(conv(x, maps, 3, 1, 2), f"{name}_2_relu")
    return op.relu(op.add([shortcut, conv(x, 4 * maps, 1, 1, 3)], f"{name}_add"), f"{name}_out")


def _basic_unit(
    op: NetworkLayers[Tensor],
    x: Tensor,
    maps: int,
    stride: int,
    is_first: bool,
    config: ResNet50Config,
    name: str,
) -> Tensor:
    """Two 3×3 convolutions beside a shortcut, which is projected where shapes differ."""

    def conv(x: Tensor, kernel: int, stride: int, index: int) -> Tensor:
        x = op.conv(x, maps, kernel, f"{name}_{index}_conv", config.conv_bias, stride)
        return op.norm(x, f"{name}_{index}_bn", EPSILON)

    shortcut = conv(x, 1, stride, 0) if is_first and op.channels(x) != maps else x
    x = op.relu(conv(x, 3, stride, 1), f"{name}_1_relu")
    return op.relu(op.add([shortcut, conv(x, 3, 1, 2)], f"{name}_add"), f"{name}_out")
