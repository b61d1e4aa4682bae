"""The sizes of a network's layers, and their sums: parameters, FLOP, activations and halos."""

from dataclasses import dataclass
from math import prod

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
