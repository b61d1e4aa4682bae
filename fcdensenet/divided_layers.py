"""The layers of a network as Keras layers for one part of a divided sample; see `fcdensenet.split`.

Their convolutions are those of `fcdensenet.divided_convolution`. The maps of a dense block are in
many stacks. The halo of each is exchanged once, and stacked like the maps.

Along one axis, a convolution does not wait for the exchange. Along several, it is that of a copy of
the maps between their halos.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
from keras import KerasTensor, ops

from fcdensenet.blocks import Pooling
from fcdensenet.divided_convolution import (
    divided_conv,
    divided_transposed_conv,
    row_axes_of,
    valid_along_rows,
    with_halos,
)
from fcdensenet.keras_layers import MOVING_AVERAGE, KerasLayers, StackedConv, layer_seed
from fcdensenet.split import PartSplit, check_rows, reach, transposed_reach

Widths = tuple[int, int]  # of a halo, rows before and after


@dataclass(frozen=True, kw_only=True)
class DividedKerasLayers(KerasLayers):
    """`fcdensenet.blocks.Layers` for one part of a sample. The protocol documents the methods.

    Attributes:
        input_shape: Channels of the input, and the extents of the grid of a part.
        split: The exchange between the parts.
        halos: The halo of each map that is part of stacks, by its id and the halo's widths, with
            the map itself. Along several axes, the map between its halos.
    """

    split: PartSplit
    halos: dict[tuple[int, Widths], tuple[KerasTensor, KerasTensor]] = field(default_factory=dict)

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
        widths = reach(kernel, stride, dilation)
        self.check(x, name, stride, widths)
        if not any(widths):
            return super().conv(x, filters, kernel, name, bias, stride, dilation)
        convolution = DividedConv3D if self.rank == 3 else DividedConv2D
        layer = convolution(
            filters,
            kernel,
            strides=stride,
            dilation_rate=dilation,
            padding="same",
            use_bias=bias,
            kernel_initializer=keras.initializers.HeNormal(layer_seed(self.seed, name)),
            data_format=self.data_format,
            name=name,
            split=self.split,
        )
        return layer(x)

    def stacked_conv(
        self, parts: Sequence[KerasTensor], filters: int, kernel: int, name: str, stack: str
    ) -> KerasTensor:
        widths = reach(kernel)
        if not any(widths):
            return super().stacked_conv(parts, filters, kernel, name, stack)
        self.check(parts[0], name, halo=widths)
        halos = [self._halo(part, widths, f"{name}_halo") for part in parts]
        initializer = keras.initializers.HeNormal(layer_seed(self.seed, name))
        layer = DividedStackedConv(
            filters,
            kernel,
            initializer,
            self.data_format,
            name=name,
            row_axes=row_axes_of(self.split, self.data_format),
            recompute=self.recompute,
        )
        if self.split.further:
            return layer(halos)
        return layer([*parts, *halos])

    def transposed_conv(
        self, x: KerasTensor, filters: int, kernel: int, name: str, bias: bool = False
    ) -> KerasTensor:
        widths = transposed_reach(kernel)
        self.check(x, name, halo=widths)
        if not any(widths):
            return super().transposed_conv(x, filters, kernel, name, bias)
        scale = 2.0 * min(kernel**self.rank, 2**self.rank)
        convolution = DividedConv3DTranspose if self.rank == 3 else DividedConv2DTranspose
        layer = convolution(
            filters,
            kernel,
            strides=2,
            padding="same",
            use_bias=bias,
            kernel_initializer=keras.initializers.VarianceScaling(
                scale, "fan_in", "truncated_normal", layer_seed(self.seed, name)
            ),
            data_format=self.data_format,
            name=name,
            split=self.split,
        )
        return layer(x)

    def norm(self, x: KerasTensor, name: str, epsilon: float = 1e-3) -> KerasTensor:
        layer = DividedNormalization(
            self.split, self.axis, momentum=MOVING_AVERAGE, epsilon=epsilon, name=name
        )
        return layer(x)

    def pool(self, x: KerasTensor, kind: Pooling, name: str) -> KerasTensor:
        self.check(x, name, 2)
        return super().pool(x, kind, name)

    def check(self, x: KerasTensor, name: str, multiple: int = 1, halo: Widths = (0, 0)) -> None:
        """Raises ValueError if a part's maps do not suffice for a layer; see
        `fcdensenet.split.check_rows`.
        """
        for row_axis in row_axes_of(self.split, self.data_format):
            check_rows(name, int(x.shape[row_axis]), multiple, halo)

    @property
    def row_axis(self) -> int:
        """The divided axis of a tensor."""
        return self.split.axis + (2 if self.axis == 1 else 1)

    def rows(self, x: KerasTensor) -> int:
        """Returns the number of rows of a part's maps."""
        return int(x.shape[self.row_axis])

    def _halo(self, x: KerasTensor, widths: Widths, name: str) -> KerasTensor:
        """Returns the halo of a map, which is exchanged for the first stack that contains it."""
        key = id(x), widths
        if key not in self.halos:
            if self.split.further:
                layer = WithHalos(self.split, widths, self.data_format, name=name)
            else:
                layer = Halo(self.split, widths, self.row_axis, name=name)
            self.halos[key] = x, layer(x)
        return self.halos[key][1]


class Halo(keras.layers.Layer):
    """The halo of maps: rows of the part before, then rows of the part after."""

    def __init__(self, split: PartSplit, widths: Widths, row_axis: int, name: str) -> None:
        super().__init__(name=name)
        self.split = split
        self.widths = widths
        self.row_axis = row_axis

    def call(self, x: KerasTensor) -> KerasTensor:
        """Returns the halo."""
        return self.split.halo(x, *self.widths, self.row_axis, self.name)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Returns the shape of the halo."""
        return (*input_shape[: self.row_axis], sum(self.widths), *input_shape[self.row_axis + 1 :])


class WithHalos(keras.layers.Layer):
    """Maps between their halos, along several divided axes."""

    def __init__(self, split: PartSplit, widths: Widths, data_format: str, name: str) -> None:
        super().__init__(name=name)
        self.split = split
        self.widths = widths
        self.data_format = data_format

    def call(self, x: KerasTensor) -> KerasTensor:
        """Returns the maps between their halos."""
        return with_halos(x, self.split, self.widths, self.data_format, self.name)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Returns the shape of the maps with their halos."""
        shape: list[Any] = list(input_shape)
        for row_axis in row_axes_of(self.split, self.data_format):
            shape[row_axis] += sum(self.widths)
        return tuple(shape)


class DividedStackedConv(StackedConv):
    """Concatenation and convolution for maps with their halos: along one axis first all maps, then
    the halo of each; along several, each map between its halos.
    """

    def __init__(
        self, *arguments: Any, row_axes: Sequence[int], recompute: bool, **settings: Any
    ) -> None:
        super().__init__(*arguments, **settings)
        self.row_axes = row_axes
        self.recompute = recompute

    def build(self, input_shape: Sequence[tuple[int | None, ...]]) -> None:
        """Adds the kernel and the bias."""
        maps = len(input_shape)
        if len(self.row_axes) == 1:
            maps = maps // 2
        super().build(input_shape[:maps])

    def call(self, parts: Sequence[KerasTensor]) -> KerasTensor:
        """Returns the new maps. Halos are arguments, so recomputation does not exchange again."""
        if self.recompute:
            return super().call(parts)
        return self._forward(
            ops.convert_to_tensor(self.kernel), ops.convert_to_tensor(self.bias), *parts
        )

    def _convolve(self, kernel: KerasTensor, parts: Sequence[KerasTensor]) -> KerasTensor:
        if len(self.row_axes) > 1:
            stack = parts[0]
            if len(parts) > 1:
                stack = ops.concatenate(parts, self.axis)
            return valid_along_rows(stack, kernel, self.row_axes, self.data_format)
        maps = parts[: len(parts) // 2]
        halos = parts[len(parts) // 2 :]
        stack = maps[0]
        halo = halos[0]
        if len(maps) > 1:
            stack = ops.concatenate(maps, self.axis)
            halo = ops.concatenate(halos, self.axis)
        return divided_conv(stack, halo, kernel, self.row_axes[0], self.data_format)

    def compute_output_shape(
        self, input_shape: Sequence[tuple[int | None, ...]]
    ) -> tuple[int | None, ...]:
        """Returns the shape of the new maps."""
        shape: list[Any] = list(input_shape[0])
        shape[self.axis] = self.filters
        if len(self.row_axes) > 1:
            for row_axis in self.row_axes:
                shape[row_axis] -= self.kernel_size - 1
        return tuple(shape)


class _DividedLayer:
    """The base of plain and transposed convolutions of a part. Mixed into a Keras layer."""

    data_format: str
    name: str

    def __init__(self, *arguments: Any, split: PartSplit, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.split = split

    @property
    def row_axis(self) -> int:
        return self.split.axis + (2 if self.data_format == "channels_first" else 1)


class _DividedConvolution(_DividedLayer):
    strides: Sequence[int]
    dilation_rate: Sequence[int]

    def convolution_op(self, inputs: KerasTensor, kernel: KerasTensor) -> KerasTensor:
        """Returns the convolution, before the bias."""
        stride = self.strides[0]
        dilation = self.dilation_rate[0]
        widths = reach(kernel.shape[0], stride, dilation)
        name = f"{self.name}_halo"
        if self.split.further:
            maps = with_halos(inputs, self.split, widths, self.data_format, name)
            row_axes = row_axes_of(self.split, self.data_format)
            return valid_along_rows(maps, kernel, row_axes, self.data_format, stride, dilation)
        halo = self.split.halo(inputs, *widths, self.row_axis, name)
        return divided_conv(inputs, halo, kernel, self.row_axis, self.data_format, stride, dilation)


class DividedConv2D(_DividedConvolution, keras.layers.Conv2D):
    """A convolution of images."""


class DividedConv3D(_DividedConvolution, keras.layers.Conv3D):
    """A convolution of volumes."""


class _DividedTransposedConvolution(_DividedLayer):
    use_bias: bool
    bias: keras.Variable
    kernel: keras.Variable

    def call(self, inputs: KerasTensor) -> KerasTensor:
        """Returns the new maps."""
        kernel = ops.convert_to_tensor(self.kernel)
        widths = transposed_reach(kernel.shape[0])
        name = f"{self.name}_halo"
        joined = with_halos(inputs, self.split, widths, self.data_format, name)
        row_axes = row_axes_of(self.split, self.data_format)
        maps = divided_transposed_conv(joined, kernel, row_axes, self.data_format)
        if not self.use_bias:
            return maps
        bias_shape = [-1]
        if self.data_format == "channels_first":
            bias_shape += [1] * (len(inputs.shape) - 2)
        return maps + ops.reshape(self.bias, bias_shape)


class DividedConv2DTranspose(_DividedTransposedConvolution, keras.layers.Conv2DTranspose):
    """A transposed convolution of images, stride 2."""


class DividedConv3DTranspose(_DividedTransposedConvolution, keras.layers.Conv3DTranspose):
    """A transposed convolution of volumes, stride 2."""


class DividedNormalization(keras.layers.BatchNormalization):
    """Batch normalisation with the moments of whole samples."""

    def __init__(self, split: PartSplit, axis: int, **settings: Any) -> None:
        super().__init__(axis, **settings)
        self.split = split

    def call(
        self, inputs: KerasTensor, training: bool | None = None, mask: KerasTensor | None = None
    ) -> KerasTensor:
        """Returns the normalised maps, and in training adds the moments of whole samples to the
        moving ones.
        """
        if not (training and self.trainable):
            return super().call(inputs, training=training, mask=mask)
        x = inputs
        if self.compute_dtype in ("float16", "bfloat16"):
            x = ops.cast(inputs, "float32")
        maps, mean, variance = self._normalise(x)
        for moving, moment in ((self.moving_mean, mean), (self.moving_variance, variance)):
            moving.assign(
                self.momentum * moving.value + (1 - self.momentum) * ops.stop_gradient(moment)
            )
        return ops.cast(maps, self.compute_dtype)

    def _normalise(self, x: KerasTensor) -> tuple[KerasTensor, KerasTensor, KerasTensor]:
        """Returns the normalised maps, and mean and variance of the channels over all parts, by one
        exchange.

        The variance is the mean of the parts' variances plus that of their means, which is computed
        from squares of their distances to the moving mean: near it, the difference of squares loses
        no digits. The gradient is written out, as that of Keras' formulas makes several tensors of
        the size of the maps.
        """
        axes = self._reduction_axes
        shape = [1] * len(x.shape)
        shape[self.axis] = x.shape[self.axis]
        origin = ops.cast(self.moving_mean, x.dtype)
        values = ops.cast(ops.size(x) // shape[self.axis], x.dtype)  # of a channel, in this part

        def spread(vector: KerasTensor) -> KerasTensor:
            return ops.reshape(vector, shape)

        @ops.custom_gradient
        def normalise(x: KerasTensor, gamma: KerasTensor, beta: KerasTensor) -> KerasTensor:
            mean, variance = ops.moments(x, axes)
            sums = self.split.mean(
                ops.stack([mean, variance + ops.square(mean - origin)]), f"{self.name}_moments"
            )
            mean = sums[0]
            variance = sums[1] - ops.square(sums[0] - origin)
            scale = ops.rsqrt(variance + self.epsilon)

            def gradient(*errors: KerasTensor) -> tuple[KerasTensor, KerasTensor, KerasTensor]:
                error = errors[0]  # no gradient goes through the moments that are returned
                to_beta = ops.sum(error, axes)
                to_gamma = scale * ops.sum(error * (x - spread(mean)), axes)
                means = self.split.mean(
                    ops.stack([to_beta, to_gamma]) / values, f"{self.name}_back_moments"
                )
                centred = (error - spread(means[0])) - (x - spread(mean)) * spread(scale * means[1])
                return spread(gamma * scale) * centred, to_gamma, to_beta

            factor = gamma * scale
            return (x * spread(factor) + spread(beta - mean * factor), mean, variance), gradient

        return normalise(x, ops.cast(self.gamma, x.dtype), ops.cast(self.beta, x.dtype))
