"""LeNet-5, AlexNet and VGG: stages of convolutions and a pooling, then dense layers, for classes of
images.

Yoginath et al. (2019) name the three among the networks of their program, and give neither sizes
nor results. Defaults are those of LeCun et al. 1998, Krizhevsky et al. 2012, and Simonyan and
Zisserman 2015 (configuration A).

Differences from these: every hidden layer is rectified, where LeNet-5 has the hyperbolic tangent.
LeNet-5's poolings have no weights, each map of its second convolution sees all maps of the first,
and its last layer is a dense one. AlexNet is not divided over two devices, so that each map sees
all maps before it, and does not normalise responses.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from fcdensenet.blocks import Tensor
from fcdensenet.config import Kernel

from .config import ClassifierSection, Maps, Rate
from .layers import NetworkLayers

Stages = Annotated[
    tuple[Annotated[tuple[Maps, ...], Field(min_length=1, max_length=31)], ...],
    Field(
        min_length=1,
        max_length=31,
        description="feature maps of each convolution, by stage, which a pooling ends",
    ),
]
Kernels = Annotated[
    tuple[Kernel, ...],
    Field(max_length=31, description="kernel size of the convolutions of each stage"),
]
Stride = Annotated[int, Field(ge=1, le=16, description="stride of the first convolution")]
Padded = Annotated[
    bool,
    Field(description="whether convolutions keep the grid; otherwise they use no pixel beyond it"),
]
Windows = Annotated[
    Literal["average", "max", "overlapping"],
    Field(
        description="pooling of 2 pixels a side; 'overlapping': maxima of 3 pixels a side. All "
        "halve the grid"
    ),
]
Units = Annotated[
    tuple[Maps, ...], Field(max_length=31, description="units of the hidden dense layers")
]
Dropout = Annotated[Rate, Field(description="dropout rate behind each hidden dense layer")]


class FeedForwardConfig(ClassifierSection):
    """Base class of the sections, which have different defaults."""

    classes: Maps = Field(27, description="number of classes")
    filters: Stages
    kernels: Kernels
    stride: Stride = 1
    padded: Padded = True
    pooling: Windows = "max"
    dense: Units = (4096, 4096)
    dropout: Dropout = 0.5

    @property
    def smallest_extent(self) -> int:
        """The extent of an image of which one pixel is left for the dense layers."""
        extent = 1
        for stage, (filters, kernel) in reversed(
            [*enumerate(zip(self.filters, self.kernels, strict=True))]
        ):
            extent = 2 * extent + (self.pooling == "overlapping")
            for index in reversed(range(len(filters))):
                stride = 1 if stage or index else self.stride
                extent = (extent - 1) * stride + (1 if self.padded else kernel)
        return extent

    @model_validator(mode="after")
    def _stages_fit(self) -> "FeedForwardConfig":
        if len(self.kernels) != len(self.filters):
            raise ValueError(
                f"{len(self.kernels)} kernels for {len(self.filters)} stages: give one for each"
            )
        if min(self.input_shape[1:]) < self.smallest_extent:
            raise ValueError(
                f"input_shape {list(self.input_shape)}: extents must be {self.smallest_extent} or "
                "more"
            )
        return self


class LeNetConfig(FeedForwardConfig):
    """LeNet-5, which LeCun et al. train on digits of 32×32 pixels."""

    kind: Literal["lenet"] = "lenet"
    filters: Stages = ((6,), (16,))
    kernels: Kernels = (5, 5)
    padded: Padded = False
    pooling: Windows = "average"
    dense: Units = (120, 84)
    dropout: Dropout = 0.0


class AlexNetConfig(FeedForwardConfig):
    """AlexNet, which Krizhevsky et al. train on 1,000 classes of images of 224×224 pixels."""

    kind: Literal["alexnet"] = "alexnet"
    filters: Stages = ((96,), (256,), (384, 384, 256))
    kernels: Kernels = (11, 5, 3)
    stride: Stride = 4
    pooling: Windows = "overlapping"


class VGGConfig(FeedForwardConfig):
    """VGG with 11 layers (A). Simonyan and Zisserman's others have more convolutions of 3×3 in the
    same stages.
    """

    kind: Literal["vgg"] = "vgg"
    filters: Stages = ((64,), (128,), (256, 256), (512, 512), (512, 512))
    kernels: Kernels = (3, 3, 3, 3, 3)


def network(op: NetworkLayers[Tensor], config: FeedForwardConfig) -> tuple[Tensor, Tensor]:
    """Composes a network of Keras layers, or of shapes; returns its input, and logits of the
    classes.
    """
    x = image = op.input("image")
    for stage, (filters, kernel) in enumerate(
        zip(config.filters, config.kernels, strict=True), start=1
    ):
        for index, maps in enumerate(filters, start=1):
            name = f"c{stage}_{index}"
            stride = config.stride if stage == index == 1 else 1
            if config.padded:
                x = op.conv(x, maps, kernel, name, stride=stride)
            else:
                x = op.valid_conv(x, maps, kernel, stride, name)
            x = op.relu(x, f"{name}_relu")
        if config.pooling == "overlapping":
            x = op.max_pool(x, 3, 2, "valid", f"p{stage}")
        else:
            x = op.pool(x, config.pooling, f"p{stage}")
    x = op.flatten(x, "flatten")
    for index, units in enumerate(config.dense, start=1):
        x = op.relu(op.dense(x, units, f"fc{index}"), f"fc{index}_relu")
        if config.dropout:
            x = op.dropout(x, config.dropout, f"fc{index}_dropout")
    return image, op.output(op.dense(x, config.classes, "predictions"), "logits")
