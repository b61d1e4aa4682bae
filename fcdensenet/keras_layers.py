"""The layers of a network as Keras layers, for every Keras backend."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import keras
from keras import KerasTensor, ops

from fcdensenet.config import NetworkConfig

# With Keras' default of 0.99, a third of the initial statistics would remain after 100 steps, and would enter the
# evaluation of short runs.
MOVING_AVERAGE = 0.9


@dataclass(frozen=True)
class KerasLayers:
    """`fcdensenet.blocks.Layers` for symbolic Keras tensors. The protocol documents the methods.

    Attributes:
        config: The network's configuration.
        seed: The seed of the network, from which each layer's own seed follows.
        recompute: Whether the stacks of dense blocks are computed again in the backward pass.
    """

    config: NetworkConfig
    seed: int
    recompute: bool = False

    @property
    def axis(self) -> int:
        return 1 if self.config.data_format == "channels_first" else -1

    def channels(self, x: KerasTensor) -> int:
        return int(x.shape[self.axis])

    def input(self, name: str) -> KerasTensor:
        channels, *extent = self.config.input_shape
        shape = (channels, *extent) if self.axis == 1 else (*extent, channels)
        # By default Keras would convert float16 patterns to float32 here, and back for the first convolution.
        return keras.Input(shape, dtype=keras.config.dtype_policy().compute_dtype, name=name)

    def conv(self, x: KerasTensor, filters: int, kernel: int, name: str, bias: bool = True) -> KerasTensor:
        return keras.layers.Conv2D(
            filters,
            kernel,
            padding="same",
            use_bias=bias,
            kernel_initializer=keras.initializers.HeNormal(layer_seed(self.seed, name)),
            data_format=self.config.data_format,
            name=name,
        )(x)

    def stacked_conv(self, parts: Sequence[KerasTensor], filters: int, kernel: int, name: str) -> KerasTensor:
        initializer = keras.initializers.HeNormal(layer_seed(self.seed, name))
        return StackedConv(filters, kernel, initializer, self.config.data_format, name=name)(list(parts))

    def transposed_conv(self, x: KerasTensor, filters: int, kernel: int, name: str) -> KerasTensor:
        # At stride 2, a quarter of the kernel's taps (one at least) contributes to an output pixel; He's variance
        # assumes that all do.
        scale = 2.0 * min(kernel**2, 4)
        return keras.layers.Conv2DTranspose(
            filters,
            kernel,
            strides=2,
            padding="same",
            use_bias=False,
            kernel_initializer=keras.initializers.VarianceScaling(
                scale, "fan_in", "truncated_normal", layer_seed(self.seed, name)
            ),
            data_format=self.config.data_format,
            name=name,
        )(x)

    def norm(self, x: KerasTensor, name: str) -> KerasTensor:
        return BatchNormalization(self.axis, momentum=MOVING_AVERAGE, name=name)(x)

    def relu(self, x: KerasTensor, name: str) -> KerasTensor:
        return keras.layers.ReLU(name=name)(x)

    def dropout(self, x: KerasTensor, name: str) -> KerasTensor:
        return keras.layers.Dropout(self.config.dropout, seed=layer_seed(self.seed, name), name=name)(x)

    def pool(self, x: KerasTensor, name: str) -> KerasTensor:
        kind = keras.layers.AveragePooling2D if self.config.pooling == "average" else keras.layers.MaxPooling2D
        return kind(2, data_format=self.config.data_format, name=name)(x)

    def concat(self, parts: Sequence[KerasTensor], name: str) -> KerasTensor:
        return keras.layers.Concatenate(self.axis, name=name)(list(parts))

    def output(self, x: KerasTensor, name: str) -> KerasTensor:
        return keras.layers.Activation("linear", dtype="float32", name=name)(x)


class BatchNormalization(keras.layers.BatchNormalization):
    """Keras' normalisation, in training as TensorFlow's fused operation if channels are last.

    Keras' formulas pass over the maps many times: with them, the layer's forward and backward pass take 1.6 to 2.9
    times the processor time.
    """

    def call(self, inputs: KerasTensor, training: bool | None = None, mask: KerasTensor | None = None) -> KerasTensor:
        """Returns the normalised maps, and in training adds their moments to the moving ones."""
        fused = keras.backend.backend() == "tensorflow" and self.axis == -1 and mask is None
        if not (fused and training and self.trainable):
            return super().call(inputs, training=training, mask=mask)
        import tensorflow as tf

        maps, mean, variance = tf.raw_ops.FusedBatchNormV3(
            x=ops.cast(inputs, "float32"),  # as in Keras: float16 is too short for moments
            scale=self.gamma.value,
            offset=self.beta.value,
            mean=tf.zeros(0),
            variance=tf.zeros(0),
            epsilon=self.epsilon,
            is_training=True,
        )[:3]
        # Its variance is that of the population, n/(n − 1) times that of the batch, which Keras averages.
        count = tf.cast(tf.size(inputs) // inputs.shape[-1], tf.float32)
        variance *= tf.maximum(count - 1, 1) / count
        for moving, moment in ((self.moving_mean, mean), (self.moving_variance, variance)):
            moving.assign(self.momentum * moving.value + (1 - self.momentum) * moment)
        return ops.cast(maps, self.compute_dtype)


class StackedConv(keras.layers.Layer):
    """Concatenation and convolution. The backward pass concatenates the kept parts again."""

    def __init__(
        self, filters: int, kernel: int, initializer: keras.initializers.Initializer, data_format: str, name: str
    ) -> None:
        super().__init__(name=name)
        self.filters, self.kernel_size, self.initializer, self.data_format = filters, kernel, initializer, data_format

    @property
    def axis(self) -> int:
        return 1 if self.data_format == "channels_first" else -1

    def build(self, input_shape: Sequence[tuple[int | None, ...]]) -> None:
        """Adds the kernel and the bias."""
        channels = sum(shape[self.axis] or 0 for shape in input_shape)
        extent = (self.kernel_size, self.kernel_size)
        self.kernel = self.add_weight(
            name="kernel", shape=(*extent, channels, self.filters), initializer=self.initializer
        )
        self.bias = self.add_weight(name="bias", shape=(self.filters,), initializer="zeros")

    def call(self, parts: Sequence[KerasTensor]) -> KerasTensor:
        """Returns the new maps for the parts of a stack."""
        # The weights are arguments, so that what is computed again depends on its arguments alone.
        weights = [ops.convert_to_tensor(weight) for weight in (self.kernel, self.bias)]
        return keras.remat(self._forward)(*weights, *parts)

    def _forward(self, kernel: KerasTensor, bias: KerasTensor, *parts: KerasTensor) -> KerasTensor:
        maps = ops.conv(ops.concatenate(parts, self.axis), kernel, padding="same", data_format=self.data_format)
        return maps + ops.reshape(bias, (-1, 1, 1) if self.axis == 1 else (-1,))


def layer_seed(seed: int, name: str) -> int:
    """Returns the 31-bit seed of a layer, which depends only on the network's seed and the layer's name."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:4]) >> 1
