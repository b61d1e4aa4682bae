"""The layers of this package's networks as Keras layers."""

from collections.abc import Sequence
from dataclasses import dataclass

import keras
from keras import KerasTensor, ops

from fcdensenet.keras_layers import (
    MOVING_AVERAGE,
    BatchNormalization,
    Dropout,
    KerasLayers,
    layer_seed,
)

from .layers import Padding


@dataclass(frozen=True)
class KerasNetworkLayers(KerasLayers):
    """`train.networks.layers.NetworkLayers` for symbolic Keras tensors. The protocol documents the
    methods.
    """

    copies: int = 1  # number of ranks that have the same maps

    def dropout(self, x: KerasTensor, rate: float, name: str) -> KerasTensor:
        layer = Dropout(rate, seed=layer_seed(self.seed, name), name=name)
        layer.copies = self.copies
        return layer(x)

    def pad(self, x: KerasTensor, width: int, name: str) -> KerasTensor:
        return keras.layers.ZeroPadding2D(width, data_format=self.data_format, name=name)(x)

    def valid_conv(
        self, x: KerasTensor, filters: int, kernel: int, stride: int, name: str, bias: bool = True
    ) -> KerasTensor:
        return self._conv_layer(
            filters,
            kernel,
            strides=stride,
            padding="valid",
            use_bias=bias,
            kernel_initializer=self.initial(name),
            data_format=self.data_format,
            name=name,
        )(x)

    def max_pool(
        self, x: KerasTensor, size: int, stride: int, padding: Padding, name: str
    ) -> KerasTensor:
        return keras.layers.MaxPooling2D(
            size, stride, padding, data_format=self.data_format, name=name
        )(x)

    def norm(self, x: KerasTensor, name: str, epsilon: float = 1e-3) -> KerasTensor:
        return BatchNormalization(self.axis, momentum=MOVING_AVERAGE, epsilon=epsilon, name=name)(x)

    def leaky_relu(self, x: KerasTensor, slope: float, name: str) -> KerasTensor:
        return keras.layers.LeakyReLU(slope, name=name)(x)

    def sigmoid(self, x: KerasTensor, name: str) -> KerasTensor:
        return keras.layers.Activation("sigmoid", name=name)(x)

    def scale(self, x: KerasTensor, factor: float, name: str) -> KerasTensor:
        return keras.layers.Rescaling(factor, name=name)(x)

    def add(self, parts: Sequence[KerasTensor], name: str) -> KerasTensor:
        return keras.layers.Add(name=name)(list(parts))

    def mean(self, x: KerasTensor, name: str) -> KerasTensor:
        return keras.layers.GlobalAveragePooling2D(
            keepdims=True, data_format=self.data_format, name=name
        )(x)

    def spread(self, x: KerasTensor, like: KerasTensor, name: str) -> KerasTensor:
        extent = like.shape[2:] if self.axis == 1 else like.shape[1:-1]
        return keras.layers.UpSampling2D(extent, data_format=self.data_format, name=name)(x)

    def gathered(
        self, x: KerasTensor, multiple: int | None, name: str
    ) -> "tuple[KerasNetworkLayers, KerasTensor]":
        return self, x

    def flatten(self, x: KerasTensor, name: str) -> KerasTensor:
        return keras.layers.Flatten(data_format=self.data_format, name=name)(x)

    def unflatten(self, x: KerasTensor, like: KerasTensor, name: str) -> KerasTensor:
        return Unflatten(like.shape[1:], self.data_format, name=name)(x)

    def dense(self, x: KerasTensor, units: int, name: str) -> KerasTensor:
        initializer = self.initial(name)
        return keras.layers.Dense(units, kernel_initializer=initializer, name=name)(x)

    def sample(self, mean: KerasTensor, log_variance: KerasTensor, name: str) -> KerasTensor:
        return LatentSample(layer_seed(self.seed, name), name=name)([mean, log_variance])


@keras.saving.register_keras_serializable(package="namsa")
class Unflatten(keras.layers.Layer):
    """Values of one axis, in the order of channels last, as maps of a shape."""

    def __init__(self, shape: tuple[int, ...], data_format: str, **settings: object) -> None:
        super().__init__(**settings)
        self.shape = tuple(shape)
        self.data_format = data_format

    def get_config(self) -> dict[str, object]:
        """Returns the arguments, of which Keras makes a copy."""
        return super().get_config() | {"shape": self.shape, "data_format": self.data_format}

    def call(self, values: KerasTensor) -> KerasTensor:
        """Returns the maps."""
        if self.data_format == "channels_last":
            return ops.reshape(values, (-1, *self.shape))
        channels, *extent = self.shape
        return ops.moveaxis(ops.reshape(values, (-1, *extent, channels)), -1, 1)


@keras.saving.register_keras_serializable(package="namsa")
class LatentSample(keras.layers.Layer):
    """Draws from normal distributions of given means and logarithms of variances, in float32.

    A draw is differentiable in both (Kingma and Welling 2014). Outside of training the layer
    returns the means.
    """

    def __init__(self, seed: int, **settings: object) -> None:
        super().__init__(**{**settings, "dtype": "float32"})
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def get_config(self) -> dict[str, object]:
        """Returns the arguments, of which Keras makes a copy."""
        return super().get_config() | {"seed": self.seed}

    def call(self, moments: Sequence[KerasTensor], training: bool | None = None) -> KerasTensor:
        """Returns one draw for each pair of moments."""
        mean, log_variance = moments
        if not training:
            return mean
        noise = keras.random.normal(ops.shape(mean), dtype="float32", seed=self.seed_generator)
        return mean + ops.exp(log_variance / 2) * noise
