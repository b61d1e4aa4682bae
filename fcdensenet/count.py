"""What a network weighs, from its configuration alone: parameters, FLOP, and the activations a training step keeps.

The network is run on bare shapes, without Keras. FLOP are those of the convolutions, 2·H·W·C·K·R·S on the grid (H, W)
where the kernel is applied: the output's, and for a transposed convolution the input's (the convention of Laanait et
al. 2019). A training step is three times the forward pass: forward, and the gradients by input and by weights.

Activations are what differentiation needs of the forward pass, once each: a convolution's input, ReLU's output, the
input and output of max pooling, dropout's mask (a byte a value), and batch normalisation's input in float32, in which
Keras normalises whatever the dtype; nothing for concatenation and average pooling. TensorFlow 2.18 was seen to keep
this to 1%. Workspace comes on top, and weights and optimizer state.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

from fcdensenet.build import network
from fcdensenet.config import NetworkConfig

BYTES = {"float16": 2, "float32": 4}


@dataclass(frozen=True)
class Layer:
    """One layer, for one sample. `parameters` are all its variables, `kernel_shape` that of a convolution's weights."""

    name: str
    kind: str
    output_shape: tuple[int, ...]
    kernel_shape: tuple[int, ...] = ()
    parameters: int = 0
    trainable_parameters: int = 0
    forward_flop: int = 0
    kept_values: int = 0
    own_bytes: int = 0

    @property
    def weights(self) -> int:
        return prod(self.kernel_shape) if self.kernel_shape else 0

    def activation_bytes(self, dtype: str) -> int:
        """What a training step keeps of this layer's output in `dtype`, and for the layer itself in any dtype."""
        return self.kept_values * BYTES[dtype] + self.own_bytes


@dataclass(frozen=True)
class Count:
    """A network's layers, in the order in which they run, and their sums."""

    layers: tuple[Layer, ...]

    @property
    def parameters(self) -> int:
        """All variables, with the moving statistics of batch normalisation."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def trainable_parameters(self) -> int:
        return sum(layer.trainable_parameters for layer in self.layers)

    @property
    def conv_weights(self) -> int:
        """Kernels alone, without biases and normalisation."""
        return sum(layer.weights for layer in self.layers)

    @property
    def convolutions(self) -> int:
        return sum(bool(layer.kernel_shape) for layer in self.layers)

    @property
    def forward_flop(self) -> int:
        return sum(layer.forward_flop for layer in self.layers)

    @property
    def step_flop(self) -> int:
        return 3 * self.forward_flop

    def activation_bytes(self, dtype: str) -> int:
        """What a training step keeps of the forward pass of one sample."""
        return sum(layer.activation_bytes(dtype) for layer in self.layers)

    def gradient_bytes(self, dtype: str) -> int:
        """One rank's gradient message."""
        return self.trainable_parameters * BYTES[dtype]


def count(config: NetworkConfig, recompute: bool = False) -> Count:
    """The layers of the network that `fcdensenet.build.build` makes of `config`."""
    counter = ShapeLayers(config, recompute)
    network(counter, config)
    return Count(
        tuple(
            replace(layer, kept_values=prod(layer.output_shape)) if layer.name in counter.kept else layer
            for layer in counter.layers
        )
    )


@dataclass(frozen=True)
class ShapeLayers:
    """`fcdensenet.blocks.Layers` on shapes alone: writes down each layer, and by name whose output a gradient needs."""

    config: NetworkConfig
    recompute: bool = False
    layers: list[Layer] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)

    @property
    def axis(self) -> int:
        return 0 if self.config.data_format == "channels_first" else 2

    def channels(self, x: Layer) -> int:
        return x.output_shape[self.axis]

    def shape(self, x: Layer, channels: int, up: int = 1, down: int = 1) -> tuple[int, ...]:
        """`channels` maps on the grid of `x`, made `up` times finer or `down` times coarser."""
        extent = [n * up // down for axis, n in enumerate(x.output_shape) if axis != self.axis]
        return (channels, *extent) if self.axis == 0 else (*extent, channels)

    def add(self, layer: Layer) -> Layer:
        self.layers.append(layer)
        return layer

    def input(self, name: str) -> Layer:
        channels, *extent = self.config.input_shape
        return self.add(Layer(name, "input", (channels, *extent) if self.axis == 0 else (*extent, channels)))

    def conv(self, x: Layer, filters: int, kernel: int, name: str, bias: bool = True) -> Layer:
        self.kept.add(x.name)
        weights = (kernel, kernel, self.channels(x), filters)
        parameters = prod(weights) + filters * bias
        flop = 2 * prod(self.shape(x, 1)) * prod(weights)
        return self.add(Layer(name, "conv", self.shape(x, filters), weights, parameters, parameters, flop))

    def stacked_conv(self, parts: Sequence[Layer], filters: int, kernel: int, name: str) -> Layer:
        stack = Layer("", "concat", self.shape(parts[0], sum(self.channels(part) for part in parts)))  # not kept
        maps = self.conv(stack, filters, kernel, name)
        self.kept.update(part.name for part in parts)
        return maps

    def transposed_conv(self, x: Layer, filters: int, kernel: int, name: str) -> Layer:
        self.kept.add(x.name)
        weights = (kernel, kernel, filters, self.channels(x))
        flop = 2 * prod(self.shape(x, 1)) * prod(weights)
        return self.add(
            Layer(name, "conv up", self.shape(x, filters, up=2), weights, prod(weights), prod(weights), flop)
        )

    def norm(self, x: Layer, name: str) -> Layer:
        channels, own = self.channels(x), BYTES["float32"] * prod(x.output_shape)
        return self.add(Layer(name, "norm", x.output_shape, (), 4 * channels, 2 * channels, own_bytes=own))

    def relu(self, x: Layer, name: str) -> Layer:
        self.kept.add(name)
        return self.add(Layer(name, "relu", x.output_shape))

    def dropout(self, x: Layer, name: str) -> Layer:
        return self.add(Layer(name, "dropout", x.output_shape, own_bytes=prod(x.output_shape)))

    def pool(self, x: Layer, name: str) -> Layer:
        if self.config.pooling == "max":
            self.kept.update((x.name, name))
        return self.add(Layer(name, f"{self.config.pooling} pool", self.shape(x, self.channels(x), down=2)))

    def concat(self, parts: Sequence[Layer], name: str) -> Layer:
        return self.add(Layer(name, "concat", self.shape(parts[0], sum(self.channels(part) for part in parts))))

    def output(self, x: Layer, name: str) -> Layer:
        return self.add(Layer(name, "output", x.output_shape))
