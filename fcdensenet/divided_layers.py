"""The layers of a network as Keras layers for one part of a divided sample; see `fcdensenet.split`.

A convolution is that of the part alone, plus the share of the halo in the rows at the borders: the halo travels
meanwhile, and there is no copy of the maps with their halo. FLOP are those of the whole sample divided by the number of
parts, and those of the shares, of as many rows as the halo has.

The maps of a dense block are in many stacks. The halo of each is exchanged once, and stacked like the maps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
from keras import KerasTensor, ops

from fcdensenet.keras_layers import MOVING_AVERAGE, KerasLayers, StackedConv, layer_seed
from fcdensenet.split import Split, borders, check_rows, reach, transposed_reach

Widths = tuple[int, int]  # of a halo, rows before and after


@dataclass(frozen=True, kw_only=True)
class DividedKerasLayers(KerasLayers):
    """`fcdensenet.blocks.Layers` for one part of a sample. The protocol documents the methods.

    Attributes:
        input_shape: Channels of the input, and the extents of the grid of a part.
        split: What the parts exchange.
        halos: The halo of each map that is part of stacks, by its id and the halo's widths, with the map itself.
    """

    split: Split
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
        check_rows(name, self.rows(x), stride, widths)
        if not any(widths):
            return super().conv(x, filters, kernel, name, bias, stride, dilation)
        return (DividedConv3D if self.rank == 3 else DividedConv2D)(
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
        )(x)

    def stacked_conv(
        self, parts: Sequence[KerasTensor], filters: int, kernel: int, name: str, stack: str
    ) -> KerasTensor:
        widths = reach(kernel)
        if not any(widths):
            return super().stacked_conv(parts, filters, kernel, name, stack)
        check_rows(name, self.rows(parts[0]), halo=widths)
        halos = [self._halo(part, widths, f"{name}_halo") for part in parts]
        initializer = keras.initializers.HeNormal(layer_seed(self.seed, name))
        layer = DividedStackedConv(
            filters, kernel, initializer, self.data_format, name, row_axis=self.row_axis, recompute=self.recompute
        )
        return layer([*parts, *halos])

    def transposed_conv(self, x: KerasTensor, filters: int, kernel: int, name: str, bias: bool = False) -> KerasTensor:
        widths = transposed_reach(kernel)
        check_rows(name, self.rows(x), halo=widths)
        if not any(widths):
            return super().transposed_conv(x, filters, kernel, name, bias)
        scale = 2.0 * min(kernel**self.rank, 2**self.rank)
        return (DividedConv3DTranspose if self.rank == 3 else DividedConv2DTranspose)(
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
        )(x)

    def norm(self, x: KerasTensor, name: str, epsilon: float = 1e-3) -> KerasTensor:
        return DividedNormalization(self.split, self.axis, momentum=MOVING_AVERAGE, epsilon=epsilon, name=name)(x)

    def pool(self, x: KerasTensor, kind: Any, name: str) -> KerasTensor:
        check_rows(name, self.rows(x), 2)
        return super().pool(x, kind, name)

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
            self.halos[key] = x, Halo(self.split, widths, self.row_axis, name=name)(x)
        return self.halos[key][1]


class Halo(keras.layers.Layer):
    """The halo of maps: rows of the part before, then rows of the part after."""

    def __init__(self, split: Split, widths: Widths, row_axis: int, name: str) -> None:
        super().__init__(name=name)
        self.split, self.widths, self.row_axis = split, widths, row_axis

    def call(self, x: KerasTensor) -> KerasTensor:
        """Returns the halo."""
        return self.split.halo(x, *self.widths, self.row_axis, self.name)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Returns the shape of the halo."""
        return (*input_shape[: self.row_axis], sum(self.widths), *input_shape[self.row_axis + 1 :])


class DividedStackedConv(StackedConv):
    """Concatenation and convolution for maps with their halos: first all maps, then the halo of each."""

    def __init__(self, *arguments: Any, row_axis: int, recompute: bool) -> None:
        super().__init__(*arguments)
        self.row_axis, self.recompute = row_axis, recompute

    def build(self, input_shape: Sequence[tuple[int | None, ...]]) -> None:
        """Adds the kernel and the bias."""
        super().build(input_shape[: len(input_shape) // 2])

    def call(self, parts: Sequence[KerasTensor]) -> KerasTensor:
        """Returns the new maps. What is computed again does not exchange again: halos are arguments."""
        if self.recompute:
            return super().call(parts)
        return self._forward(ops.convert_to_tensor(self.kernel), ops.convert_to_tensor(self.bias), *parts)

    def _convolve(self, kernel: KerasTensor, parts: Sequence[KerasTensor]) -> KerasTensor:
        maps, halos = parts[: len(parts) // 2], parts[len(parts) // 2 :]
        stack, halo = (ops.concatenate(each, self.axis) if len(each) > 1 else each[0] for each in (maps, halos))
        return divided_conv(stack, halo, kernel, self.row_axis, self.data_format)

    def compute_output_shape(self, input_shape: Sequence[tuple[int | None, ...]]) -> tuple[int | None, ...]:
        """Returns the shape of the new maps."""
        shape = list(input_shape[0])
        shape[self.axis] = self.filters
        return tuple(shape)


class _DividedConv:
    """What plain and transposed convolutions of a part share. Mixed into a Keras layer."""

    data_format: str
    name: str

    def __init__(self, *arguments: Any, split: Split, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.split = split

    @property
    def row_axis(self) -> int:
        return self.split.axis + (2 if self.data_format == "channels_first" else 1)


class _Convolution(_DividedConv):
    strides: Sequence[int]
    dilation_rate: Sequence[int]

    def convolution_op(self, inputs: KerasTensor, kernel: KerasTensor) -> KerasTensor:
        """Returns the convolution, before the bias."""
        stride, dilation = self.strides[0], self.dilation_rate[0]
        halo = self.split.halo(inputs, *reach(kernel.shape[0], stride, dilation), self.row_axis, f"{self.name}_halo")
        return divided_conv(inputs, halo, kernel, self.row_axis, self.data_format, stride, dilation)


class DividedConv2D(_Convolution, keras.layers.Conv2D):
    """A convolution of images."""


class DividedConv3D(_Convolution, keras.layers.Conv3D):
    """A convolution of volumes."""


class _TransposedConvolution(_DividedConv):
    use_bias: bool
    bias: Any
    kernel: Any

    def call(self, inputs: KerasTensor) -> KerasTensor:
        """Returns the new maps."""
        kernel = ops.convert_to_tensor(self.kernel)
        halo = self.split.halo(inputs, *transposed_reach(kernel.shape[0]), self.row_axis, f"{self.name}_halo")
        maps = divided_transposed_conv(inputs, halo, kernel, self.row_axis, self.data_format)
        if not self.use_bias:
            return maps
        ones = (1,) * (len(inputs.shape) - 2)
        return maps + ops.reshape(self.bias, (-1, *ones) if self.data_format == "channels_first" else (-1,))


class DividedConv2DTranspose(_TransposedConvolution, keras.layers.Conv2DTranspose):
    """A transposed convolution of images, stride 2."""


class DividedConv3DTranspose(_TransposedConvolution, keras.layers.Conv3DTranspose):
    """A transposed convolution of volumes, stride 2."""


class DividedNormalization(keras.layers.BatchNormalization):
    """Batch normalisation with the moments of whole samples."""

    def __init__(self, split: Split, axis: int, **settings: Any) -> None:
        super().__init__(axis, **settings)
        self.split = split

    def call(self, inputs: KerasTensor, training: bool | None = None, mask: KerasTensor | None = None) -> KerasTensor:
        """Returns the normalised maps, and in training adds the moments of whole samples to the moving ones."""
        if not (training and self.trainable):
            return super().call(inputs, training=training, mask=mask)
        x = ops.cast(inputs, "float32") if self.compute_dtype in ("float16", "bfloat16") else inputs
        maps, mean, variance = self._normalise(x)
        for moving, moment in ((self.moving_mean, mean), (self.moving_variance, variance)):
            moving.assign(self.momentum * moving.value + (1 - self.momentum) * ops.stop_gradient(moment))
        return ops.cast(maps, self.compute_dtype)

    def _normalise(self, x: KerasTensor) -> tuple[KerasTensor, KerasTensor, KerasTensor]:
        """Returns the normalised maps, and mean and variance of the channels over all parts, by one exchange.

        The variance is the mean of the parts' variances plus that of their means, which is computed from squares of
        their distances to the moving mean: near it, the difference of squares loses no digits. The gradient is written
        out, as that of Keras' formulas makes several tensors of the size of the maps.
        """
        axes = self._reduction_axes
        shape = [x.shape[axis] if axis == self.axis % len(x.shape) else 1 for axis in range(len(x.shape))]
        origin = ops.cast(self.moving_mean, x.dtype)
        values = ops.cast(ops.size(x) // shape[self.axis], x.dtype)  # of a channel, in this part

        def spread(vector: KerasTensor) -> KerasTensor:
            return ops.reshape(vector, shape)

        @ops.custom_gradient
        def normalise(x: KerasTensor, gamma: KerasTensor, beta: KerasTensor) -> Any:
            mean, variance = ops.moments(x, axes)
            sums = self.split.mean(ops.stack([mean, variance + ops.square(mean - origin)]), f"{self.name}_moments")
            mean, variance = sums[0], sums[1] - ops.square(sums[0] - origin)
            scale = ops.rsqrt(variance + self.epsilon)

            def gradient(*errors: KerasTensor) -> tuple[KerasTensor, KerasTensor, KerasTensor]:
                error = errors[0]  # no gradient goes through the moments that are returned
                to_beta = ops.sum(error, axes)
                to_gamma = scale * ops.sum(error * (x - spread(mean)), axes)
                means = self.split.mean(ops.stack([to_beta, to_gamma]) / values, f"{self.name}_back_moments")
                centred = (error - spread(means[0])) - (x - spread(mean)) * spread(scale * means[1])
                return spread(gamma * scale) * centred, to_gamma, to_beta

            factor = gamma * scale
            return (x * spread(factor) + spread(beta - mean * factor), mean, variance), gradient

        return normalise(x, ops.cast(self.gamma, x.dtype), ops.cast(self.beta, x.dtype))


def divided_conv(
    x: KerasTensor,  # the part's maps, of which the number of rows is a multiple of `stride`
    halo: KerasTensor,  # rows of the neighbours, as many as `fcdensenet.split.reach` says
    kernel: KerasTensor,  # `(k, k, channels, filters)`, or with three k
    row_axis: int,  # the divided axis of `x`
    data_format: str,  # order of the axes
    stride: int = 1,  # along all axes
    dilation: int = 1,  # along all axes
) -> KerasTensor:
    """Returns a part of the convolution of a whole sample with padding "same"."""
    rows, window = x.shape[row_axis], (kernel.shape[0] - 1) * dilation + 1
    first, last = borders(rows, kernel.shape[0], stride, dilation)
    before, after = reach(kernel.shape[0], stride, dilation)
    above, below = _rows(halo, 0, before, row_axis), _rows(halo, before, before + after, row_axis)

    def convolve(parts: Sequence[KerasTensor]) -> KerasTensor:
        joined = ops.concatenate(parts, row_axis) if len(parts) > 1 else parts[0]
        return _valid_along_rows(joined, kernel, row_axis, data_format, stride, dilation)

    # Row i of the new maps needs rows i·stride − before to i·stride − before + window − 1.
    if first + last > rows // stride // 2:  # small maps are not worth three convolutions
        return convolve([part for part, width in ((above, before), (x, rows), (below, after)) if width])
    # A convolution is linear: padding "same" has zeros for the halo, whose share is added to the rows at the borders.
    maps = ops.conv(x, kernel, stride, "same", data_format, dilation)
    shares = []
    if first:
        zeros = ops.zeros_like(_rows(x, 0, (first - 1) * stride - before + window, row_axis))
        shares.append(convolve([above, zeros]))
    if last:
        zeros = ops.zeros_like(_rows(x, (rows // stride - last) * stride - before, rows, row_axis))
        shares.append(convolve([zeros, below]))
    return _with_borders(maps, shares[0] if first else None, shares[-1] if last else None, row_axis)


def _with_borders(maps: KerasTensor, first: KerasTensor | None, last: KerasTensor | None, row_axis: int) -> KerasTensor:
    """Returns maps with `first` added to their first rows, and `last` to their last ones.

    The gradient of maps is that of the sum itself, not a sum of three padded tensors of their size.
    """
    rows = maps.shape[row_axis]
    start = first.shape[row_axis] if first is not None else 0
    end = rows - (last.shape[row_axis] if last is not None else 0)

    @ops.custom_gradient
    def add(maps: KerasTensor, *shares: KerasTensor) -> Any:
        pieces = [_rows(maps, start, end, row_axis)]
        if first is not None:
            pieces.insert(0, _rows(maps, 0, start, row_axis) + shares[0])
        if last is not None:
            pieces.append(_rows(maps, end, rows, row_axis) + shares[-1])

        def gradient(*arguments: Any, upstream: Any = None) -> Any:
            (upstream,) = arguments or (upstream,)
            borders = [_rows(upstream, 0, start, row_axis)] * (first is not None)
            borders += [_rows(upstream, end, rows, row_axis)] * (last is not None)
            return (upstream, *borders)

        return ops.concatenate(pieces, row_axis), gradient

    return add(maps, *(share for share in (first, last) if share is not None))


def divided_transposed_conv(
    x: KerasTensor, halo: KerasTensor, kernel: KerasTensor, row_axis: int, data_format: str
) -> KerasTensor:
    """Returns a part of the transposed convolution of a whole sample with stride 2 and padding "same".

    Args:
        halo: Rows of the neighbours, as many as `fcdensenet.split.transposed_reach` says.
        kernel: `(k, k, filters, channels)`, or with three k, at least 2.
    """
    before, after = transposed_reach(kernel.shape[0])
    pieces = [_rows(halo, 0, before, row_axis), x, _rows(halo, before, before + after, row_axis)]
    joined = ops.concatenate([piece for piece in pieces if piece.shape[row_axis]], row_axis)
    maps = ops.conv_transpose(joined, kernel, strides=2, padding="valid", data_format=data_format)
    padding = (kernel.shape[0] - 2) // 2
    for axis in _grid_axes(x, data_format):
        start = padding + 2 * before * (axis == row_axis)
        maps = _rows(maps, start, start + 2 * x.shape[axis], axis)
    return maps


def _rows(x: KerasTensor, start: int, end: int, axis: int) -> KerasTensor:
    """Returns rows of maps."""
    if (start, end) == (0, x.shape[axis]):
        return x
    return x[(*(slice(None),) * axis, slice(start, end))]


def _grid_axes(x: KerasTensor, data_format: str) -> list[int]:
    return [axis + (data_format == "channels_first") for axis in range(1, len(x.shape) - 1)]


def _valid_along_rows(
    x: KerasTensor, kernel: KerasTensor, row_axis: int, data_format: str, stride: int, dilation: int
) -> KerasTensor:
    """Returns the convolution without padding along the rows, and with padding "same" along the other axes."""
    window = (kernel.shape[0] - 1) * dilation + 1
    padding = [(0, 0)] * len(x.shape)
    for axis in _grid_axes(x, data_format):
        if axis != row_axis:
            total = max((-(-x.shape[axis] // stride) - 1) * stride + window - x.shape[axis], 0)
            padding[axis] = (total // 2, total - total // 2)
    # TensorFlow takes the widths themselves, where its processor kernels allow, and so keeps no padded copy.
    if keras.backend.backend() == "tensorflow" and (len(x.shape), data_format, dilation) == (4, "channels_last", 1):
        from fcdensenet.fused import padded_conv

        return padded_conv(x, kernel, stride, padding)
    return ops.conv(ops.pad(x, padding), kernel, stride, "valid", data_format, dilation)
