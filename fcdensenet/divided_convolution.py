"""Convolutions of one part of a divided sample, as functions of its maps and their halo.

A convolution is that of the part alone, plus the share of the halo in the rows at the borders: the
halo travels meanwhile, and there is no copy of the maps with their halo. FLOP are those of the
whole sample divided by the number of parts, and those of the shares, of as many rows as the halo
has.
"""

from collections.abc import Sequence

import keras
from keras import KerasTensor, ops

from fcdensenet.split import PartSplit, borders, reach, transposed_reach


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
    rows = x.shape[row_axis]
    window = (kernel.shape[0] - 1) * dilation + 1
    first, last = borders(rows, kernel.shape[0], stride, dilation)
    before, after = reach(kernel.shape[0], stride, dilation)
    above = _rows(halo, 0, before, row_axis)
    below = _rows(halo, before, before + after, row_axis)

    def convolve(parts: Sequence[KerasTensor]) -> KerasTensor:
        joined = parts[0]
        if len(parts) > 1:
            joined = ops.concatenate(parts, row_axis)
        return valid_along_rows(joined, kernel, [row_axis], data_format, stride, dilation)

    # Row i of the new maps needs rows i·stride − before to i·stride − before + window − 1.
    if first + last > rows // stride // 2:  # small maps are not worth three convolutions
        parts = [x]
        if before:
            parts.insert(0, above)
        if after:
            parts.append(below)
        return convolve(parts)
    # A convolution is linear: padding "same" has zeros for the halo, whose share is added to the
    # rows at the borders.
    maps = ops.conv(x, kernel, stride, "same", data_format, dilation)
    first_share = None
    last_share = None
    if first:
        zeros = ops.zeros_like(_rows(x, 0, (first - 1) * stride - before + window, row_axis))
        first_share = convolve([above, zeros])
    if last:
        zeros = ops.zeros_like(_rows(x, (rows // stride - last) * stride - before, rows, row_axis))
        last_share = convolve([zeros, below])
    return _with_borders(maps, first_share, last_share, row_axis)


def _with_borders(
    maps: KerasTensor, first: KerasTensor | None, last: KerasTensor | None, row_axis: int
) -> KerasTensor:
    """Returns maps with `first` added to their first rows, and `last` to their last ones.

    The gradient of maps is that of the sum itself, not a sum of three padded tensors of their size.
    """
    rows = maps.shape[row_axis]
    start = 0
    end = rows
    shares = []
    if first is not None:
        start = first.shape[row_axis]
        shares.append(first)
    if last is not None:
        end -= last.shape[row_axis]
        shares.append(last)

    @ops.custom_gradient
    def add(maps: KerasTensor, *shares: KerasTensor) -> KerasTensor:
        pieces = [_rows(maps, start, end, row_axis)]
        if first is not None:
            pieces.insert(0, _rows(maps, 0, start, row_axis) + shares[0])
        if last is not None:
            pieces.append(_rows(maps, end, rows, row_axis) + shares[-1])

        def gradient(*arguments: KerasTensor, upstream: object = None) -> KerasTensor:
            (upstream,) = arguments or (upstream,)
            gradients = [upstream]
            if first is not None:
                gradients.append(_rows(upstream, 0, start, row_axis))
            if last is not None:
                gradients.append(_rows(upstream, end, rows, row_axis))
            return tuple(gradients)

        return ops.concatenate(pieces, row_axis), gradient

    return add(maps, *shares)


def divided_transposed_conv(
    x: KerasTensor, kernel: KerasTensor, row_axes: Sequence[int], data_format: str
) -> KerasTensor:
    """Returns a part of the transposed convolution of a whole sample with stride 2 and padding
    "same".

    Args:
        x: The part's maps with their halos, which have the rows of
            `fcdensenet.split.transposed_reach`.
        kernel: `(k, k, filters, channels)`, or with three k, at least 2.
        row_axes: The divided axes of `x`.
    """
    before, after = transposed_reach(kernel.shape[0])
    maps = ops.conv_transpose(x, kernel, strides=2, padding="valid", data_format=data_format)
    padding = (kernel.shape[0] - 2) // 2
    for axis in grid_axes(x, data_format):
        start = padding
        rows = x.shape[axis]
        if axis in row_axes:
            start += 2 * before
            rows -= before + after
        maps = _rows(maps, start, start + 2 * rows, axis)
    return maps


def with_halos(
    x: KerasTensor,
    split: PartSplit,
    widths: tuple[int, int],
    data_format: str,
    name: str,
    fill: float = 0.0,
) -> KerasTensor:
    """Returns maps between their halos, along every divided axis.

    Args:
        split: The exchange between the parts.
        widths: Number of rows before the part, and after it.
        data_format: Order of the axes.
        name: A name that is unique in the network.
        fill: Value of rows beyond the sample.
    """
    before, after = widths
    first_grid_axis = grid_axes(x, data_format)[0]
    for index, along in enumerate((split, *split.further)):
        row_axis = first_grid_axis + along.axis
        exchange = f"{name}{index + 1}" if index else name
        halo = along.halo(x, before, after, row_axis, exchange, fill)
        pieces = [x]
        if before:
            pieces.insert(0, _rows(halo, 0, before, row_axis))
        if after:
            pieces.append(_rows(halo, before, before + after, row_axis))
        x = ops.concatenate(pieces, row_axis)
    return x


def row_axes_of(split: PartSplit, data_format: str) -> list[int]:
    """Returns the divided axes of a tensor of maps."""
    first_grid_axis = 2 if data_format == "channels_first" else 1
    return [first_grid_axis + along.axis for along in (split, *split.further)]


def _rows(x: KerasTensor, start: int, end: int, axis: int) -> KerasTensor:
    """Returns rows of maps."""
    if (start, end) == (0, x.shape[axis]):
        return x
    return x[(*(slice(None),) * axis, slice(start, end))]


def grid_axes(x: KerasTensor, data_format: str) -> list[int]:
    """Returns the axes of the grid of a tensor of maps."""
    start = 2 if data_format == "channels_first" else 1
    return list(range(start, start + len(x.shape) - 2))


def valid_along_rows(
    x: KerasTensor,
    kernel: KerasTensor,
    row_axes: Sequence[int],
    data_format: str,
    stride: int = 1,
    dilation: int = 1,
) -> KerasTensor:
    """Returns the convolution without padding along the divided axes, and with padding "same" along
    the other axes.
    """
    window = (kernel.shape[0] - 1) * dilation + 1
    padding = [(0, 0)] * len(x.shape)
    for axis in grid_axes(x, data_format):
        if axis not in row_axes:
            total = max((-(-x.shape[axis] // stride) - 1) * stride + window - x.shape[axis], 0)
            padding[axis] = (total // 2, total - total // 2)
    # TensorFlow takes the widths themselves, where its processor kernels allow, and so keeps no
    # padded copy.
    images = len(x.shape) == 4 and data_format == "channels_last"
    if keras.backend.backend() == "tensorflow" and images and dilation == 1:
        from fcdensenet.fused import padded_conv

        return padded_conv(x, kernel, stride, padding)
    return ops.conv(ops.pad(x, padding), kernel, stride, "valid", data_format, dilation)
