"""Layers as bare shapes: the network is composed without Keras, and each layer's size is recorded.

`fcdensenet.count` has the conventions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import NotRequired, TypedDict

from fcdensenet.blocks import Pooling
from fcdensenet.layer_counts import BYTES_PER_VALUE, LayerCount, NetworkCount
from fcdensenet.split import borders, check_rows, reach, transposed_reach


class HaloSizes(TypedDict):
    """The sizes of a halo, by the names of `LayerCount`."""

    halo_values: int
    halo_gradients: int
    border_rows: NotRequired[int]


@dataclass(frozen=True)
class ShapeLayers:
    """`fcdensenet.blocks.Layers` for bare shapes: each call records a layer. The protocol documents
    the methods.
    """

    input_shape: tuple[int, ...]  # channels of the input, and the extents of its grid
    data_format: str  # order of the axes in memory
    # whether the stacks of dense blocks are computed again in the backward pass
    recompute: bool = False
    # the divided axis of the grid, if the shapes are those of a part
    divided_axis: int | None = None
    further_axes: tuple[int, ...] = ()  # further divided axes of the grid
    layers: list[LayerCount] = field(default_factory=list)  # the recorded layers
    kept: set[str] = field(default_factory=set)  # names of the layers whose output a gradient needs
    # names of the maps whose halo has been exchanged for a stack
    exchanged: set[str] = field(default_factory=set)
    # of several divided axes, the maps between their halos, by the name of the maps and the widths
    between_halos: dict[tuple[str, tuple[int, int]], LayerCount] = field(default_factory=dict)

    def counted(self) -> NetworkCount:
        """Returns the recorded layers, each with the values of its output that a step keeps."""
        layers = []
        for layer in self.layers:
            kept_values = prod(layer.output_shape) if layer.name in self.kept else 0
            layers.append(replace(layer, kept_values=kept_values))
        return NetworkCount(tuple(layers))

    def channels(self, x: LayerCount) -> int:
        return x.output_shape[self._axis]

    def input(self, name: str) -> LayerCount:
        channels, *extent = self.input_shape
        return self._add(LayerCount(name, "input", self._ordered(channels, extent)))

    def conv(
        self,
        x: LayerCount,
        filters: int,
        kernel: int,
        name: str,
        bias: bool = True,
        stride: int = 1,
        dilation: int = 1,
    ) -> LayerCount:
        widths = reach(kernel, stride, dilation)
        self._check_rows(name, x, stride, widths)
        source = self._with_halos(x, widths, f"{name}_halo")
        self.kept.add(source.name)
        weights = (*self._extent(kernel), self.channels(x), filters)
        parameters = prod(weights) + filters * bias
        flop = 2 * prod(self._shape(x, 1, down=stride)) * prod(weights)
        shape = self._shape(x, filters, down=stride)
        halo = self._halo(x, widths)
        if self.divided_axis is not None:
            rows = x.output_shape[self._row_axis]
            halo["border_rows"] = sum(borders(rows, kernel, stride, dilation))
        return self._add(
            LayerCount(name, "conv", shape, weights, parameters, parameters, flop, **halo), source
        )

    def stacked_conv(
        self, parts: Sequence[LayerCount], filters: int, kernel: int, name: str, stack: str
    ) -> LayerCount:
        if self.further_axes and any(reach(kernel)):
            return self._conv_between_halos(parts, filters, kernel, name, stack)
        if self.recompute:
            maps = self._recomputed_conv(parts, filters, kernel, name)
        elif len(parts) > 1:
            maps = self.conv(self.concat(parts, stack), filters, kernel, name)
        else:
            maps = self.conv(parts[0], filters, kernel, name)
        if self.divided_axis is None:
            return maps
        values = 0
        for part in parts:
            if part.name not in self.exchanged:  # no stack has needed its halo before
                self.exchanged.add(part.name)
                values += self._halo(part, reach(kernel))["halo_values"]
        self.layers[-1] = replace(maps, halo_values=values, halo_gradients=values)
        return self.layers[-1]

    def _conv_between_halos(
        self, parts: Sequence[LayerCount], filters: int, kernel: int, name: str, stack: str
    ) -> LayerCount:
        """Records a convolution of a stack of maps between their halos, along several axes."""
        widths = reach(kernel)
        self._check_rows(name, parts[0], 1, widths)
        sources = []
        for part in parts:
            key = part.name, widths
            if key not in self.between_halos:
                self.between_halos[key] = self._with_halos(part, widths, f"{name}_{part.name}_halo")
            sources.append(self.between_halos[key])
        if self.recompute:
            self.kept.update(source.name for source in sources)
        elif len(sources) > 1:
            sources = [self.concat(sources, stack)]
            self.kept.add(stack)
        else:
            self.kept.add(sources[0].name)
        channels = sum(self.channels(part) for part in parts)
        weights = (*self._extent(kernel), channels, filters)
        parameters = prod(weights) + filters
        flop = 2 * prod(self._shape(parts[0], 1)) * prod(weights)
        shape = self._shape(parts[0], filters)
        layer = LayerCount(name, "conv", shape, weights, parameters, parameters, flop)
        return self._add(layer, *sources)

    def _recomputed_conv(
        self, parts: Sequence[LayerCount], filters: int, kernel: int, name: str
    ) -> LayerCount:
        """Records a convolution of a stack that is not kept but joined again when it is needed."""
        stack = LayerCount("", "concat", self._stacked_shape(parts))  # not recorded
        maps = self.conv(stack, filters, kernel, name)
        names = tuple(part.name for part in parts)
        self.kept.update(names)
        self.layers[-1] = replace(maps, inputs=names)
        return self.layers[-1]

    def transposed_conv(
        self, x: LayerCount, filters: int, kernel: int, name: str, bias: bool = False
    ) -> LayerCount:
        self._check_rows(name, x, 1, transposed_reach(kernel))
        source = self._with_halos(x, transposed_reach(kernel), f"{name}_halo")
        self.kept.add(source.name)
        weights = (*self._extent(kernel), filters, self.channels(x))
        parameters = prod(weights) + filters * bias
        flop = 2 * prod(self._shape(x, 1)) * prod(weights)
        shape = self._shape(x, filters, up=2)
        halo = self._halo(x, transposed_reach(kernel))
        if self.divided_axis is not None and any(transposed_reach(kernel)):
            halo["border_rows"] = shape[self._row_axis]  # computed as a whole behind the exchange
        return self._add(
            LayerCount(name, "conv up", shape, weights, parameters, parameters, flop, **halo),
            source,
        )

    def norm(self, x: LayerCount, name: str) -> LayerCount:
        channels = self.channels(x)
        extra = BYTES_PER_VALUE["float32"] * prod(x.output_shape)
        shared = 0 if self.divided_axis is None else 2 * channels
        layer = LayerCount(
            name, "norm", x.output_shape, (), 4 * channels, 2 * channels, extra_bytes=extra
        )
        return self._add(replace(layer, shared_values=shared), x)

    def relu(self, x: LayerCount, name: str) -> LayerCount:
        self.kept.add(name)
        return self._add(LayerCount(name, "relu", x.output_shape), x)

    def dropout(self, x: LayerCount, rate: float, name: str) -> LayerCount:
        return self._add(
            LayerCount(name, "dropout", x.output_shape, extra_bytes=prod(x.output_shape)), x
        )

    def pool(self, x: LayerCount, kind: Pooling, name: str) -> LayerCount:
        if kind == "max":
            self.kept.update((x.name, name))
        self._check_rows(name, x, 2)
        extent = [length // 2 for length in self._grid(x)]
        shape = self._ordered(self.channels(x), extent)
        return self._add(LayerCount(name, f"{kind} pool", shape), x)

    def concat(self, parts: Sequence[LayerCount], name: str) -> LayerCount:
        return self._add(LayerCount(name, "concat", self._stacked_shape(parts)), *parts)

    def output(self, x: LayerCount, name: str) -> LayerCount:
        return self._add(LayerCount(name, "output", x.output_shape), x)

    @property
    def _axis(self) -> int:
        return 0 if self.data_format == "channels_first" else self._rank

    @property
    def _rank(self) -> int:
        return len(self.input_shape) - 1

    def _extent(self, kernel: int) -> tuple[int, ...]:
        return (kernel,) * self._rank

    def _shape(self, x: LayerCount, channels: int, up: int = 1, down: int = 1) -> tuple[int, ...]:
        """The shape of `channels` maps on the grid of `x`, `up` times finer or `down` times
        coarser.
        """
        extent = [-(-length * up // down) for length in self._grid(x)]
        return self._ordered(channels, extent)

    def _grid(self, x: LayerCount) -> list[int]:
        """The extents of the grid of `x`."""
        extent = list(x.output_shape)
        del extent[self._axis]
        return extent

    def _ordered(self, channels: int, extent: Sequence[int]) -> tuple[int, ...]:
        """The shape of maps in the order of the axes in memory."""
        if self.data_format == "channels_first":
            return (channels, *extent)
        return (*extent, channels)

    def _stacked_shape(self, parts: Sequence[LayerCount]) -> tuple[int, ...]:
        return self._shape(parts[0], sum(self.channels(part) for part in parts))

    def _check_rows(
        self, name: str, x: LayerCount, multiple: int, halo: tuple[int, int] = (0, 0)
    ) -> None:
        for row_axis in self._row_axes:
            check_rows(name, x.output_shape[row_axis], multiple, halo)

    def _with_halos(self, x: LayerCount, widths: tuple[int, int], name: str) -> LayerCount:
        """Records maps between their halos, one layer per divided axis; `x` itself if there are
        less than two.
        """
        if not self.further_axes or not any(widths):
            return x
        for index, row_axis in enumerate(self._row_axes):
            shape = list(x.output_shape)
            values = prod(shape) // shape[row_axis] * sum(widths)
            shape[row_axis] += sum(widths)
            gradients = values
            if x.kind in ("input", "halo of input"):
                gradients = 0
            layer = LayerCount(
                f"{name}{index + 1}" if index else name,
                "halo" if gradients else "halo of input",
                tuple(shape),
                halo_values=values,
                halo_gradients=gradients,
            )
            x = self._add(layer, x)
        return x

    def _halo(self, x: LayerCount, widths: tuple[int, int]) -> HaloSizes:
        """Returns the sizes of the halo of `x` along a single divided axis."""
        if self.divided_axis is None or self.further_axes:
            return {"halo_values": 0, "halo_gradients": 0}
        values = prod(x.output_shape) // x.output_shape[self._row_axis] * sum(widths)
        gradients = values
        if x.kind == "input":
            gradients = 0
        return {"halo_values": values, "halo_gradients": gradients}

    @property
    def _row_axis(self) -> int:
        return (self.divided_axis or 0) + (self._axis == 0)

    @property
    def _row_axes(self) -> tuple[int, ...]:
        """The divided axes of maps."""
        if self.divided_axis is None:
            return ()
        return tuple(axis + (self._axis == 0) for axis in (self.divided_axis, *self.further_axes))

    def _add(self, layer: LayerCount, *inputs: LayerCount) -> LayerCount:
        self.layers.append(replace(layer, inputs=tuple(x.name for x in inputs)))
        return self.layers[-1]
