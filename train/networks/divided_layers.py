"""The layers of this package's networks as Keras layers for one part of a divided sample; see
`fcdensenet.split`.
"""

from dataclasses import dataclass, replace
from typing import Any

import keras
from keras import KerasTensor, ops

from fcdensenet.divided_convolution import grid_axes, row_axes_of, with_halos
from fcdensenet.divided_layers import DividedKerasLayers
from fcdensenet.split import PartSplit, joined_parts, reach

from .keras_layers import KerasNetworkLayers
from .layers import Padding


@dataclass(frozen=True, kw_only=True)
class DividedNetworkLayers(DividedKerasLayers, KerasNetworkLayers):
    """`train.networks.layers.NetworkLayers` for one part of a sample. Layers without padding are
    not divided.

    A part that is gathered of several is the same on all their ranks, and so is the loss of
    gathered samples.
    """

    def max_pool(
        self, x: KerasTensor, size: int, stride: int, padding: Padding, name: str
    ) -> KerasTensor:
        if size <= stride:  # windows do not overlap
            self.check(x, name, stride)
            return super().max_pool(x, size, stride, padding, name)
        return DividedMaxPooling(self.split, size, stride, self.data_format, name)(x)

    def mean(self, x: KerasTensor, name: str) -> KerasTensor:
        return MeanOverParts(self.split, f"{name}_parts")(super().mean(x, name))

    def gathered(
        self, x: KerasTensor, multiple: int | None, name: str
    ) -> tuple[KerasNetworkLayers, KerasTensor]:
        parts = joined_parts(self.rows(x), self.split.ways, multiple)
        if parts == 1:
            return self, x
        x = Joined(self.split, parts, self.row_axis, name)(x)
        copies = parts * self.copies
        if parts == self.split.ways:
            return KerasNetworkLayers(
                self.input_shape, self.data_format, self.seed, copies=copies
            ), x
        return replace(self, split=self.split.widened(parts), copies=copies), x


class DividedMaxPooling(keras.layers.Layer):
    """Maxima over overlapping windows of images, padding "same"."""

    def __init__(
        self, split: PartSplit, size: int, stride: int, data_format: str, name: str
    ) -> None:
        super().__init__(name=name)
        self.split = split
        self.size = size
        self.stride = stride
        self.data_format = data_format

    def call(self, x: KerasTensor) -> KerasTensor:
        """Returns the maxima."""
        joined = with_halos(
            x,
            self.split,
            reach(self.size, self.stride),
            self.data_format,
            f"{self.name}_halo",
            fill=x.dtype.min,
        )
        padding = [(0, 0)] * len(x.shape)
        row_axes = row_axes_of(self.split, self.data_format)
        for axis in grid_axes(x, self.data_format):
            if axis not in row_axes:
                total = max(
                    (-(-x.shape[axis] // self.stride) - 1) * self.stride
                    + self.size
                    - x.shape[axis],
                    0,
                )
                padding[axis] = (total // 2, total - total // 2)
        padded = ops.pad(joined, padding, constant_values=x.dtype.min)
        return ops.max_pool(padded, self.size, self.stride, "valid", self.data_format)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Returns the shape of the maxima."""
        grid = slice(2, None) if self.data_format == "channels_first" else slice(1, -1)
        shape: list[Any] = list(input_shape)
        shape[grid] = [-(-extent // self.stride) for extent in shape[grid]]
        return tuple(shape)


class MeanOverParts(keras.layers.Layer):
    """The mean over the parts of a sample, in float32 at least."""

    def __init__(self, split: PartSplit, name: str) -> None:
        super().__init__(name=name)
        self.split = split

    def call(self, x: KerasTensor) -> KerasTensor:
        """Returns the mean."""
        wide = "float32" if self.compute_dtype in ("float16", "bfloat16") else self.compute_dtype
        return ops.cast(self.split.mean(ops.cast(x, wide), self.name), self.compute_dtype)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Returns the shape of `x`."""
        return input_shape


class Joined(keras.layers.Layer):
    """The maps of several parts of a sample; see `fcdensenet.split.PartSplit.join`."""

    def __init__(self, split: PartSplit, parts: int, row_axis: int, name: str) -> None:
        super().__init__(name=name)
        self.split = split
        self.parts = parts
        self.row_axis = row_axis

    def call(self, x: KerasTensor) -> KerasTensor:
        """Returns the maps."""
        return self.split.join(x, self.row_axis, self.name, self.parts)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Returns the shape of the joined maps."""
        shape: list[Any] = list(input_shape)
        shape[self.row_axis] *= self.parts
        return tuple(shape)
