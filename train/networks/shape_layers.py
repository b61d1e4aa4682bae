"""The layers of this package's networks as bare shapes: each call records a layer's size."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from fcdensenet.count import BYTES_PER_VALUE, LayerCount, ShapeLayers
from fcdensenet.split import joined_parts, reach

from .layers import Padding


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
        inner = LayerCount(x.name, "", self._with_extent(x, [n - kernel + 1 for n in self._grid(x)]))
        return self.conv(inner, filters, kernel, name, bias, stride)

    def max_pool(self, x: LayerCount, size: int, stride: int, padding: Padding, name: str) -> LayerCount:
        self.kept.update((x.name, name))
        lost = size - 1 if padding == "valid" else 0
        shape = self._with_extent(x, [-(-(n - lost) // stride) for n in self._grid(x)])
        self._check_rows(name, x, stride, reach(size, stride))
        return self._add(LayerCount(name, "max pool", shape, (), 0, 0, 0, **self._halo(x, reach(size, stride))), x)

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

    def gathered(self, x: LayerCount, multiple: int | None, name: str) -> "tuple[ShapeNetworkLayers, LayerCount]":
        parts = joined_parts(x.output_shape[self._row_axis], self.ways, multiple) if self.ways > 1 else 1
        if parts == 1:
            return self, x
        shape = list(x.output_shape)
        shape[self._row_axis] *= parts
        sent = (parts - 1) * prod(x.output_shape)
        x = self._add(LayerCount(name, "gathered", tuple(shape), halo_values=sent, halo_gradients=sent), x)
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
        return self._add(LayerCount(name, "dense", (units,), weights, parameters, parameters, 2 * prod(weights)), x)

    def sample(self, mean: LayerCount, log_variance: LayerCount, name: str) -> LayerCount:
        noise = BYTES_PER_VALUE["float32"] * prod(mean.output_shape)
        self.kept.add(log_variance.name)
        return self._add(LayerCount(name, "sample", mean.output_shape, extra_bytes=noise), mean, log_variance)

    def _grid(self, x: LayerCount) -> list[int]:
        return [n for axis, n in enumerate(x.output_shape) if axis != self._axis]

    def _with_extent(self, x: LayerCount, extent: Sequence[int]) -> tuple[int, ...]:
        channels = self.channels(x)
        return (channels, *extent) if self._axis == 0 else (*extent, channels)
