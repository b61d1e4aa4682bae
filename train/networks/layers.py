"""The layers that the networks of this package are made of, beside those of FC-DenseNet.

A network is written once over them, as in `fcdensenet.blocks`: with Keras tensors it builds the
model (`train.networks.keras_layers`), with bare shapes it counts (`ShapeNetworkLayers`).

All layers but `mean`, `flatten` and what follows them are local: a part of a map follows from the
same part of the input and a border around it. That is what the division of a sample over ranks
needs. Behind `gathered` with `None` the maps are those of the whole sample on all ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal, Protocol

from fcdensenet.blocks import Layers, Tensor
from fcdensenet.layer_counts import BYTES_PER_VALUE, LayerCount
from fcdensenet.shape_layers import ShapeLayers
from fcdensenet.split import joined_parts, reach

Padding = Literal["same", "valid"]


class NetworkLayers(Layers[Tensor], Protocol[Tensor]):
    """The layers of `fcdensenet.blocks`, and those of other networks. "2-D" takes a grid of two
    axes alone.
    """

    def pad(self, x: Tensor, width: int, name: str) -> Tensor:
        """Zeros around the grid, `width` on each side. 2-D."""
        ...

    def valid_conv(
        self, x: Tensor, filters: int, kernel: int, stride: int, name: str, bias: bool = True
    ) -> Tensor:
        """A convolution without padding: an extent n becomes ⌊(n − kernel)/stride⌋ + 1."""
        ...

    def max_pool(self, x: Tensor, size: int, stride: int, padding: Padding, name: str) -> Tensor:
        """Maxima over windows of `size` pixels a side. 2-D."""
        ...

    def norm(self, x: Tensor, name: str, epsilon: float = 1e-3) -> Tensor:
        """Batch normalisation; `epsilon` is added to the variance."""
        ...

    def leaky_relu(self, x: Tensor, slope: float, name: str) -> Tensor:
        """Rectification with `slope` for negative values."""
        ...

    def sigmoid(self, x: Tensor, name: str) -> Tensor:
        """The logistic function."""
        ...

    def scale(self, x: Tensor, factor: float, name: str) -> Tensor:
        """Multiplication by a constant."""
        ...

    def add(self, parts: Sequence[Tensor], name: str) -> Tensor:
        """Sum of maps."""
        ...

    def mean(self, x: Tensor, name: str) -> Tensor:
        """Mean over the grid, which remains with extents of 1. 2-D."""
        ...

    def spread(self, x: Tensor, like: Tensor, name: str) -> Tensor:
        """Values of a grid of one pixel at every pixel of the grid of `like`. 2-D."""
        ...

    def gathered(
        self, x: Tensor, multiple: int | None, name: str
    ) -> "tuple[NetworkLayers[Tensor], Tensor]":
        """Maps of which a part has a multiple of some rows, or with `None` all; and the layers for
        such maps.

        Of a whole sample, or where a part has them, these are the layers and maps themselves.
        """
        ...

    def flatten(self, x: Tensor, name: str) -> Tensor:
        """All values on one axis, in the order of channels last for each order of axes."""
        ...

    def unflatten(self, x: Tensor, like: Tensor, name: str) -> Tensor:
        """The values of one axis, in the order of channels last, as maps of the shape of `like`."""
        ...

    def dense(self, x: Tensor, units: int, name: str) -> Tensor:
        """A dense layer with bias, on the values of one axis."""
        ...

    def sample(self, mean: Tensor, log_variance: Tensor, name: str) -> Tensor:
        """A draw from normal distributions in training; their mean otherwise. In float32."""
        ...


@dataclass(frozen=True)
class ShapeNetworkLayers(ShapeLayers):
    """`train.networks.layers.NetworkLayers` for bare shapes. The protocol documents the methods.

    A dense layer of n inputs and m outputs takes 2·n·m FLOP.
    """

    ways: int = 1  # number of parts of a divided sample

    def pad(self, x: LayerCount, width: int, name: str) -> LayerCount:
        shape = self._with_extent(x, [n + 2 * width for n in self._grid(x)])
        return self._add(LayerCount(name, "pad", shape), x)

    def valid_conv(
        self, x: LayerCount, filters: int, kernel: int, stride: int, name: str, bias: bool = True
    ) -> LayerCount:
        inner = LayerCount(
            x.name, "", self._with_extent(x, [n - kernel + 1 for n in self._grid(x)])
        )
        return self.conv(inner, filters, kernel, name, bias, stride)

    def max_pool(
        self, x: LayerCount, size: int, stride: int, padding: Padding, name: str
    ) -> LayerCount:
        widths = reach(size, stride)
        self._check_rows(name, x, stride, widths)
        source = self._with_halos(x, widths, f"{name}_halo")
        self.kept.update((source.name, name))
        lost = size - 1 if padding == "valid" else 0
        shape = self._with_extent(x, [-(-(n - lost) // stride) for n in self._grid(x)])
        layer = LayerCount(name, "max pool", shape, (), 0, 0, 0, **self._halo(x, widths))
        return self._add(layer, source)

    def norm(self, x: LayerCount, name: str, epsilon: float = 1e-3) -> LayerCount:
        return super().norm(x, name)

    def leaky_relu(self, x: LayerCount, slope: float, name: str) -> LayerCount:
        self.kept.add(x.name)
        return self._add(LayerCount(name, "leaky relu", x.output_shape), x)

    def sigmoid(self, x: LayerCount, name: str) -> LayerCount:
        self.kept.add(name)
        return self._add(LayerCount(name, "sigmoid", x.output_shape), x)

    def scale(self, x: LayerCount, factor: float, name: str) -> LayerCount:
        return self._add(LayerCount(name, "scale", x.output_shape), x)

    def add(self, parts: Sequence[LayerCount], name: str) -> LayerCount:
        return self._add(LayerCount(name, "add", parts[0].output_shape), *parts)

    def mean(self, x: LayerCount, name: str) -> LayerCount:
        shape = self._with_extent(x, [1 for _ in self._grid(x)])
        shared = 0 if self.divided_axis is None else self.channels(x)
        return self._add(LayerCount(name, "mean", shape, shared_values=shared), x)

    def spread(self, x: LayerCount, like: LayerCount, name: str) -> LayerCount:
        return self._add(LayerCount(name, "spread", self._with_extent(x, self._grid(like))), x)

    def gathered(
        self, x: LayerCount, multiple: int | None, name: str
    ) -> "tuple[ShapeNetworkLayers, LayerCount]":
        if self.ways > 1:
            parts = joined_parts(x.output_shape[self._row_axis], self.ways, multiple)
        else:
            parts = 1
        if parts == 1:
            return self, x
        shape = list(x.output_shape)
        shape[self._row_axis] *= parts
        sent = (parts - 1) * prod(x.output_shape)
        x = self._add(
            LayerCount(name, "gathered", tuple(shape), halo_values=sent, halo_gradients=sent), x
        )
        ways = self.ways // parts
        return replace(self, ways=ways, divided_axis=None if ways == 1 else self.divided_axis), x

    def flatten(self, x: LayerCount, name: str) -> LayerCount:
        return self._add(LayerCount(name, "flatten", (prod(x.output_shape),)), x)

    def unflatten(self, x: LayerCount, like: LayerCount, name: str) -> LayerCount:
        return self._add(LayerCount(name, "unflatten", like.output_shape), x)

    def dense(self, x: LayerCount, units: int, name: str) -> LayerCount:
        self.kept.add(x.name)
        weights = (prod(x.output_shape), units)
        parameters = prod(weights) + units
        return self._add(
            LayerCount(name, "dense", (units,), weights, parameters, parameters, 2 * prod(weights)),
            x,
        )

    def sample(self, mean: LayerCount, log_variance: LayerCount, name: str) -> LayerCount:
        noise = BYTES_PER_VALUE["float32"] * prod(mean.output_shape)
        self.kept.add(log_variance.name)
        return self._add(
            LayerCount(name, "sample", mean.output_shape, extra_bytes=noise), mean, log_variance
        )

    def _grid(self, x: LayerCount) -> list[int]:
        return [n for axis, n in enumerate(x.output_shape) if axis != self._axis]

    def _with_extent(self, x: LayerCount, extent: Sequence[int]) -> tuple[int, ...]:
        channels = self.channels(x)
        return (channels, *extent) if self._axis == 0 else (*extent, channels)
