"""The size of a network from its configuration alone: parameters, FLOP, and the activations that a
training step keeps.

The network is composed of bare shapes, without Keras. FLOP are those of the convolutions:
2·H·W·C·K·R·S on the grid (H, W) where the kernel is applied, which is the output's grid, and the
input's for a transposed convolution (the convention of Laanait et al. 2019). Taps that lie on
padding are counted; those between the taps of a dilated kernel do not exist. A training step is
three forward passes: the forward pass itself, and the gradients by input and by weights.

Activations are the values of the forward pass that differentiation needs, each counted once: a
convolution's input, ReLU's output, the input and output of max pooling, dropout's mask (one byte
per value), and the input of batch normalisation in float32, in which Keras normalises whatever the
dtype. Concatenation and average pooling need none. TensorFlow 2.18 was measured to agree within 1%.
Workspace, weights and optimizer state are not included.

For a divided sample (`fcdensenet.split`), all sizes are those of one part. Each exchange of a halo
is one message to each neighbour, and one back with the gradients, except for the halo of the
network's input, which has none. The moments of a normalisation go from each part to all others, and
so do their gradients. Along several axes, there is one exchange per axis, and a layer "halo" is the
copy of the maps between their halos.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from fcdensenet.blocks import Pooling
from fcdensenet.build import network
from fcdensenet.config import NetworkConfig
from fcdensenet.split import FurtherAxes, borders, check_rows, part_shape, reach, transposed_reach

BYTES_PER_VALUE = {"float16": 2, "float32": 4}


@dataclass(frozen=True)
class LayerCount:
    """The size of one layer, for one sample."""

    name: str  # the layer's name in the Keras model
    kind: str  # as "conv" or "relu"
    output_shape: tuple[int, ...]  # shape of the output without the batch axis
    # Shape of a convolution's weights, or of a dense layer's; empty for other layers.
    kernel_shape: tuple[int, ...] = ()
    parameters: int = 0  # number of values in all variables
    trainable_parameters: int = 0  # number of values in trained variables
    forward_flop: int = 0  # FLOP of the forward pass
    # number of the output's values that a training step keeps, in the dtype of the computation
    kept_values: int = 0
    extra_bytes: int = 0  # memory that a training step keeps for the layer in any dtype
    # number of values of others that the layer adds to those exchanged before it
    halo_values: int = 0
    halo_gradients: int = 0  # number of values of their gradient that are sent back
    shared_values: int = 0  # number of values whose mean over the parts is exchanged, in float32
    border_rows: int = 0  # number of rows of a part's output that need the halo
    inputs: tuple[str, ...] = ()  # names of the layers whose output it takes

    @property
    def weights(self) -> int:
        """Number of values in a convolution's kernel."""
        return prod(self.kernel_shape) if self.is_convolution else 0

    @property
    def is_convolution(self) -> bool:
        """Whether the layer is a convolution, plain or transposed: a dense layer's kernel has only
        two axes.
        """
        return len(self.kernel_shape) > 2

    def activation_bytes(self, dtype: str) -> int:
        """Returns the memory that a training step in `dtype` keeps for this layer, bytes."""
        return self.kept_values * BYTES_PER_VALUE[dtype] + self.extra_bytes


@dataclass(frozen=True)
class NetworkCount:
    """The sizes of a network's layers and their sums, for one sample."""

    layers: tuple[LayerCount, ...]  # the layers in the order in which they run

    @property
    def parameters(self) -> int:
        """Number of values in all variables, with the moving statistics of batch normalisation."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def trainable_parameters(self) -> int:
        """Number of values in trained variables."""
        return sum(layer.trainable_parameters for layer in self.layers)

    @property
    def conv_weights(self) -> int:
        """Number of values in the kernels alone, without biases and normalisation."""
        return sum(layer.weights for layer in self.layers)

    @property
    def convolutions(self) -> int:
        """Number of convolutions, transposed ones included."""
        return sum(layer.is_convolution for layer in self.layers)

    @property
    def forward_flop(self) -> int:
        """FLOP of the forward pass."""
        return sum(layer.forward_flop for layer in self.layers)

    @property
    def step_flop(self) -> int:
        """FLOP of a training step."""
        return 3 * self.forward_flop

    @property
    def exchanges(self) -> int:
        """Number of exchanges in a training step, forward and backward: of halos, and of moments
        over the parts.
        """
        exchanges = 0
        for layer in self.layers:
            exchanges += (layer.halo_values > 0) + (layer.halo_gradients > 0)
            exchanges += 2 * (layer.shared_values > 0)
        return exchanges

    def halo_bytes(self, dtype: str) -> int:
        """Returns the bytes of maps that a part between two neighbours sends in a training step; it
        receives as many.
        """
        values = sum(layer.halo_values + layer.halo_gradients for layer in self.layers)
        return values * BYTES_PER_VALUE[dtype]

    def moment_bytes(self, ways: int) -> int:
        """Returns the bytes of moments and their gradients that a part sends in a training step; it
        receives as many.
        """
        values = sum(layer.shared_values for layer in self.layers)
        return 2 * (ways - 1) * values * BYTES_PER_VALUE["float32"]

    def activation_bytes(self, dtype: str) -> int:
        """Returns the memory that a training step in `dtype` keeps of the forward pass, bytes."""
        return sum(layer.activation_bytes(dtype) for layer in self.layers)

    def gradient_bytes(self, dtype: str) -> int:
        """Returns the size of one rank's gradients in `dtype`, bytes."""
        return self.trainable_parameters * BYTES_PER_VALUE[dtype]


def count(
    config: NetworkConfig,
    recompute: bool = False,
    ways: int = 1,
    axis: int = 0,
    further: FurtherAxes = (),
) -> NetworkCount:
    """Counts the layers of the network that `fcdensenet.build` makes, without Keras.

    Args:
        config: The network's configuration.
        recompute: Whether the stacks of dense blocks are computed again in the backward pass.
        ways: Number of parts of a sample, of which one is counted; see `fcdensenet.split`.
        axis: The divided axis of the grid, from 0.
        further: Further divided axes, with the number of parts along each.

    Raises:
        ValueError: If the sample cannot be divided so; names a number of ways that is possible.

    Example:
        >>> from fcdensenet import NetworkConfig, count
        >>> count(NetworkConfig(input_shape=(9, 32, 32))).parameters
        219623425
    """

    def counted(ways: int) -> NetworkCount:
        shape = part_shape(config.input_shape, ways, axis, further)
        shapes = ShapeLayers(shape, config.data_format, recompute)
        if ways > 1:
            axes = tuple(each for each, _ in further)
            shapes = replace(shapes, divided_axis=axis, further_axes=axes)
        network(shapes, config)
        return shapes.counted()

    return counted_part(counted, ways, bool(further))


def counted_part(
    counted: Callable[[int], NetworkCount], ways: int, several: bool = False
) -> NetworkCount:
    """Returns `counted(ways)`.

    Args:
        counted: From a number of ways to the layers of a part.
        several: Whether several axes are divided.

    Raises:
        ValueError: If `counted` does. Of one axis, it names the largest number of ways that is
            possible.
    """
    try:
        return counted(ways)
    except ValueError as error:
        if several:
            raise ValueError(f"{error} along one of the axes") from None
        message = str(error)
    for fewer in range(ways - 1, 1, -1):
        with suppress(ValueError):
            counted(fewer)
            break
    else:
        raise ValueError(f"{message}; this network cannot be divided along this axis")
    raise ValueError(f"{message}, at most {fewer}")


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
        for number, row_axis in enumerate(self._row_axes):
            shape = list(x.output_shape)
            values = prod(shape) // shape[row_axis] * sum(widths)
            shape[row_axis] += sum(widths)
            gradients = values
            if x.kind in ("input", "halo of input"):
                gradients = 0
            layer = LayerCount(
                f"{name}{number + 1}" if number else name,
                "halo" if gradients else "halo of input",
                tuple(shape),
                halo_values=values,
                halo_gradients=gradients,
            )
            x = self._add(layer, x)
        return x

    def _halo(self, x: LayerCount, widths: tuple[int, int]) -> dict[str, Any]:
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
