"""The layers of a network as Keras layers, for every Keras backend."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import keras
from keras import KerasTensor, ops

from fcdensenet.blocks import Pooling

# With Keras' default of 0.99, a third of the initial statistics would remain after 100 steps, and
# would enter the evaluation of short runs.
MOVING_AVERAGE = 0.9

_POOLING = {
    ("average", 2): keras.layers.AveragePooling2D,
    ("average", 3): keras.layers.AveragePooling3D,
    ("max", 2): keras.layers.MaxPooling2D,
    ("max", 3): keras.layers.MaxPooling3D,
}


@dataclass(frozen=True)
class KerasLayers:
    """`fcdensenet.blocks.Layers` for symbolic Keras tensors. The protocol documents the methods."""

    input_shape: tuple[int, ...]  # channels of the input, and the extents of its grid
    data_format: str  # order of the axes in memory
    # the seed of the network, from which that of each layer follows; `None`: weights are zero
    seed: int | None
    # whether the stacks of dense blocks are computed again in the backward pass
    recompute: bool = False

    @property
    def axis(self) -> int:
        return 1 if self.data_format == "channels_first" else -1

    @property
    def rank(self) -> int:
        """The number of the grid's axes."""
        return len(self.input_shape) - 1

    def initial(self, name: str, scale: float = 2.0) -> keras.initializers.Initializer:
        """Returns the initial weights of a layer; for `scale` see `HeNormal`."""
        if self.seed is None:
            return keras.initializers.Zeros()
        return HeNormal(layer_seed(self.seed, name), scale)

    def channels(self, x: KerasTensor) -> int:
        return int(x.shape[self.axis])

    def input(self, name: str) -> KerasTensor:
        channels, *extent = self.input_shape
        shape = (*extent, channels)
        if self.data_format == "channels_first":
            shape = (channels, *extent)
        # By default Keras would convert float16 patterns to float32 here, and back for the first
        # convolution.
        return keras.Input(shape, dtype=keras.config.dtype_policy().compute_dtype, name=name)

    def conv(
        self,
        x: KerasTensor,
        filters: int,
        kernel: int,
        name: str,
        bias: bool = True,
        stride: int = 1,
        dilation: int = 1,
    ) -> KerasTensor:
        return self._conv_layer(
            filters,
            kernel,
            strides=stride,
            dilation_rate=dilation,
            padding="same",
            use_bias=bias,
            kernel_initializer=self.initial(name),
            data_format=self.data_format,
            name=name,
        )(x)

    def stacked_conv(
        self, parts: Sequence[KerasTensor], filters: int, kernel: int, name: str, stack: str
    ) -> KerasTensor:
        if self.recompute:
            initializer = self.initial(name)
            layer = StackedConv(filters, kernel, initializer, self.data_format, name=name)
            return layer(list(parts))
        maps = parts[0]
        if len(parts) > 1:
            maps = self.concat(parts, stack)
        return self.conv(maps, filters, kernel, name)

    def transposed_conv(
        self, x: KerasTensor, filters: int, kernel: int, name: str, bias: bool = False
    ) -> KerasTensor:
        # At stride 2, half of the kernel's taps along an axis (one at least) contribute to an
        # output pixel; He's variance assumes that all do.
        scale = 2.0 * min(kernel**self.rank, 2**self.rank)
        kind = keras.layers.Conv3DTranspose if self.rank == 3 else keras.layers.Conv2DTranspose
        return kind(
            filters,
            kernel,
            strides=2,
            padding="same",
            use_bias=bias,
            kernel_initializer=self.initial(name, scale),
            data_format=self.data_format,
            name=name,
        )(x)

    def norm(self, x: KerasTensor, name: str) -> KerasTensor:
        return BatchNormalization(self.axis, momentum=MOVING_AVERAGE, name=name)(x)

    def relu(self, x: KerasTensor, name: str) -> KerasTensor:
        return keras.layers.ReLU(name=name)(x)

    def dropout(self, x: KerasTensor, rate: float, name: str) -> KerasTensor:
        return Dropout(rate, seed=layer_seed(self.seed, name), name=name)(x)

    def pool(self, x: KerasTensor, kind: Pooling, name: str) -> KerasTensor:
        # TensorFlow pools volumes of float16 on GPUs alone. The next layer casts to float16 again.
        dtype = None
        if self.rank == 3 and x.dtype == "float16":
            dtype = "float32"
        layer = _POOLING[kind, self.rank](2, data_format=self.data_format, dtype=dtype, name=name)
        return layer(x)

    def concat(self, parts: Sequence[KerasTensor], name: str) -> KerasTensor:
        return keras.layers.Concatenate(self.axis, name=name)(list(parts))

    def output(self, x: KerasTensor, name: str) -> KerasTensor:
        return keras.layers.Activation("linear", dtype="float32", name=name)(x)

    @property
    def _conv_layer(self) -> type[keras.layers.Layer]:
        return Conv3D if self.rank == 3 else Conv2D


@keras.saving.register_keras_serializable(package="fcdensenet")
class HeNormal(keras.initializers.VarianceScaling):
    """He's initial weights, a truncated normal distribution with the random numbers of TensorFlow
    under JAX, too.

    Attributes:
        scale: Of the variance, in the inverse of the number of inputs.
    """

    def __init__(self, seed: int, scale: float = 2.0) -> None:
        super().__init__(scale, "fan_in", "truncated_normal", seed)

    def get_config(self) -> dict[str, object]:
        """Returns the arguments, of which Keras makes a copy."""
        return {"seed": self.seed, "scale": self.scale}

    def __call__(self, shape: Sequence[int], dtype: str | None = None) -> KerasTensor:
        """Returns the weights of a kernel, of which the last two axes are inputs and outputs."""
        if keras.backend.backend() != "jax":
            return super().__call__(shape, dtype)
        from fcdensenet.philox import stateless_truncated_normal

        # Keras' factor, by which the truncated distribution has the variance.
        deviation = math.sqrt(self.scale / math.prod(shape[:-1])) / 0.87962566103423978
        draw = stateless_truncated_normal((self.seed, 0), shape)
        return ops.cast(draw * deviation, dtype or "float32")


class _Convolution:
    """A convolution whose kernel of one pixel, with a stride, sees the pixels that it needs alone.

    The gradient of such a kernel by oneDNN, in TensorFlow 2.18 with AVX-512, writes beyond its
    memory if the channels are no multiple of 16.
    """

    data_format: str
    kernel_size: Sequence[int]
    strides: Sequence[int]

    def convolution_op(self, inputs: KerasTensor, kernel: KerasTensor) -> KerasTensor:
        """Returns the convolution, before the bias."""
        if set(self.kernel_size) != {1} or set(self.strides) == {1}:
            return super().convolution_op(inputs, kernel)  # type: ignore[misc]
        axes = [slice(None)]  # the batch, and the channels if they are first
        if self.data_format == "channels_first":
            axes.append(slice(None))
        for stride in self.strides:
            axes.append(slice(None, None, stride))
        return ops.conv(inputs[tuple(axes)], kernel, 1, "valid", self.data_format)


@keras.saving.register_keras_serializable(package="fcdensenet")
class Conv2D(_Convolution, keras.layers.Conv2D):
    """A convolution of images."""


@keras.saving.register_keras_serializable(package="fcdensenet")
class Conv3D(_Convolution, keras.layers.Conv3D):
    """A convolution of volumes."""


@keras.saving.register_keras_serializable(package="fcdensenet")
class BatchNormalization(keras.layers.BatchNormalization):
    """Keras' normalisation, in training as TensorFlow's fused operation if channels are last.

    Keras' formulas pass over the maps many times: with them, the layer's forward and backward pass
    take 1.6 to 2.9 times the processor time.
    """

    def call(
        self, inputs: KerasTensor, training: bool | None = None, mask: KerasTensor | None = None
    ) -> KerasTensor:
        """Returns the normalised maps, and in training adds their moments to the moving ones."""
        fused = keras.backend.backend() == "tensorflow" and self.axis == -1 and mask is None
        if not (fused and training and self.trainable and self.compute_dtype != "float64"):
            return super().call(inputs, training=training, mask=mask)
        from fcdensenet.fused import batch_norm

        # The operation takes no volumes. As in Keras, float16 is too short for moments.
        shape = ops.shape(inputs)
        channels = inputs.shape[-1]
        images = inputs
        if len(inputs.shape) != 4:
            images = ops.reshape(inputs, (-1, 1, 1, channels))
        maps, mean, variance = batch_norm(
            ops.cast(images, "float32"), self.gamma.value, self.beta.value, self.epsilon
        )
        count = ops.cast(ops.size(inputs) // channels, "float32")
        variance *= ops.maximum(count - 1, 1) / count  # Keras averages that of the batch
        for moving, moment in ((self.moving_mean, mean), (self.moving_variance, variance)):
            moving.assign(self.momentum * moving.value + (1 - self.momentum) * moment)
        if images is not inputs:
            maps = ops.reshape(maps, shape)
        return ops.cast(maps, self.compute_dtype)


@keras.saving.register_keras_serializable(package="fcdensenet")
class Dropout(keras.layers.Dropout):
    """Keras' dropout, with the random numbers of TensorFlow under JAX, too.

    Attributes:
        copies: Number of ranks that have the same maps, as many after the other, and drop the same
            of them.
    """

    copies = 1

    def call(self, inputs: KerasTensor, training: bool = False) -> KerasTensor:
        """Returns the maps, of which training drops a part."""
        if not (training and self.rate and keras.backend.backend() == "jax"):
            return super().call(inputs, training=training)
        from fcdensenet.philox import stateless_at_least

        seed = self.seed_generator.next()
        kept = stateless_at_least(seed, inputs.shape, self.rate, inputs.dtype)
        return ops.where(kept, inputs * ops.cast(1 / (1 - self.rate), inputs.dtype), 0)


@keras.saving.register_keras_serializable(package="fcdensenet")
class StackedConv(keras.layers.Layer):
    """Concatenation and convolution. The backward pass concatenates the kept parts again."""

    def __init__(
        self,
        filters: int,
        kernel: int,
        initializer: keras.initializers.Initializer,
        data_format: str,
        **settings: object,
    ) -> None:
        super().__init__(**settings)
        self.filters = filters
        self.kernel_size = kernel
        self.initializer = keras.initializers.get(initializer)
        self.data_format = data_format

    def get_config(self) -> dict[str, object]:
        """Returns the arguments, of which Keras makes a copy."""
        return super().get_config() | {
            "filters": self.filters,
            "kernel": self.kernel_size,
            "initializer": keras.initializers.serialize(self.initializer),
            "data_format": self.data_format,
        }

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
        kernel = ops.convert_to_tensor(self.kernel)
        bias = ops.convert_to_tensor(self.bias)
        return keras.remat(self._forward)(kernel, bias, *parts)

    def _forward(self, kernel: KerasTensor, bias: KerasTensor, *parts: KerasTensor) -> KerasTensor:
        maps = self._convolve(kernel, parts)
        if self.data_format == "channels_first":
            bias = ops.reshape(bias, (-1, 1, 1))
        return maps + bias

    def _convolve(self, kernel: KerasTensor, parts: Sequence[KerasTensor]) -> KerasTensor:
        return ops.conv(
            ops.concatenate(parts, self.axis), kernel, padding="same", data_format=self.data_format
        )


def layer_seed(seed: int | None, name: str) -> int:
    """Returns the 31-bit seed of a layer, which depends only on the network's seed and the layer's
    name.
    """
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:4]) >> 1
