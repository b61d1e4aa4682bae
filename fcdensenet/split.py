"""Division of a sample: each of P parts has its share of the rows of every map, and the borders of
its neighbours.

The grid is divided along one of its axes, whose lines are called rows here whichever axis it is. A
convolution needs rows of the neighbours: its halo, of the widths of `reach`. Rows beyond the sample
are zero, as in a convolution of the whole sample. A normalisation needs moments of the whole
sample. Weights, and so checkpoints, are those of the whole network.

Parts may be divided further along other axes. Halos are then exchanged axis after axis, each of the
maps with the halos of the axes before it (`with_halos`), so that corners arrive by way of the
neighbour between.

This package does not send anything: a `PartSplit` does.
"""

import math
from collections.abc import Sequence
from typing import Any, Protocol

Tensor = Any
FurtherAxes = Sequence[tuple[int, int]]  # axes of the grid from 0, and numbers of parts along them
FEWER_WAYS = "use fewer ways"  # how a message ends whose remedy it is


class PartSplit(Protocol):
    """The exchange between the parts of a sample.

    All parts call the same methods, in any order, with the same names.

    Attributes:
        ways: Number of parts.
        axis: Axis of the grid that is divided, from 0.
        further: The exchange along each further axis that is divided.
    """

    @property
    def ways(self) -> int: ...

    @property
    def axis(self) -> int: ...

    @property
    def further(self) -> "Sequence[PartSplit]": ...

    def halo(
        self, x: Tensor, before: int, after: int, axis: int, name: str, fill: float = 0.0
    ) -> Tensor:
        """Returns rows of the neighbours. Differentiable: gradients are sent back and added to the
        rows.

        Args:
            before: Number of rows of the part before this one, its last ones.
            after: Number of rows of the part after this one, its first ones.
            axis: The divided axis of `x`.
            name: A name that is unique in the network.
            fill: Value of rows beyond the sample.

        Returns:
            `before` rows and then `after` rows, in one tensor.
        """
        ...

    def mean(self, x: Tensor, name: str) -> Tensor:
        """Returns the mean of `x` over the parts along all divided axes, the same bits on all of
        them. Differentiable.
        """
        ...

    def join(self, x: Tensor, axis: int, name: str, parts: int | None = None) -> Tensor:
        """Returns the maps of several parts, joined along `axis`. Differentiable.

        Args:
            parts: Their number, of which `ways` is a multiple: the first so many, the next ones,
                and so on. `None` for all.
        """
        ...

    def widened(self, parts: int) -> "PartSplit":
        """Returns the division into parts that are as many of this one's, as `join` joins them, on
        each of their ranks.

        Copies of a part are equal. Gradients of what is exchanged go back to those copies that it
        came from.
        """
        ...


def reach(kernel: int, stride: int = 1, dilation: int = 1) -> tuple[int, int]:
    """Returns how many rows before and after a part its convolution or pooling needs, with padding
    "same".

    The part has a multiple of `stride` rows, so that padding is that of the whole sample.
    """
    total = max((kernel - 1) * dilation + 1 - stride, 0)
    return total // 2, total - total // 2


def borders(rows: int, kernel: int, stride: int = 1, dilation: int = 1) -> tuple[int, int]:
    """Returns how many of the first and of the last rows of a part's new maps need the halo, with
    padding "same".

    Args:
        rows: Number of rows of the part's maps, a multiple of `stride`.
    """
    before, _ = reach(kernel, stride, dilation)
    window = (kernel - 1) * dilation + 1
    maps = rows // stride
    end = (
        rows - window + before
    ) // stride + 1  # of the rows for which those of the part and before it suffice
    return min(math.ceil(before / stride), maps), maps - min(max(end, 0), maps)


def transposed_reach(kernel: int) -> tuple[int, int]:
    """Returns how many rows before and after a part its transposed convolution of stride 2 needs,
    padding "same".
    """
    padding = max(kernel - 2, 0) // 2
    return max(kernel - 1 - padding, 0) // 2, (padding + 1) // 2


def part_shape(
    input_shape: tuple[int, ...], ways: int, axis: int, further: FurtherAxes = ()
) -> tuple[int, ...]:
    """Returns the shape of a part of a sample.

    Args:
        input_shape: Channels, and the extents of the grid.
        ways: Number of parts along `axis`, an axis of the grid from 0.
        further: Further axes, with the number of parts along each.

    Raises:
        ValueError: If an extent is not a multiple of the number of parts along it.
    """
    shape = list(input_shape)
    for divided_axis, parts in ((axis, ways), *further):
        extent = shape[1 + divided_axis]
        if extent % parts:
            raise ValueError(
                f"an extent of {extent} is not divisible by {parts} ways: {FEWER_WAYS}"
            )
        shape[1 + divided_axis] = extent // parts
    return tuple(shape)


def shape_of_part(input_shape: tuple[int, ...], split: PartSplit) -> tuple[int, ...]:
    """Returns the shape of a part of a sample; see `part_shape`."""
    return part_shape(input_shape, split.ways, split.axis, further_axes(split))


def further_axes(split: PartSplit) -> FurtherAxes:
    """Returns the further axes of a division, with the number of parts along each."""
    return tuple((division.axis, division.ways) for division in split.further)


def joined_parts(rows: int, ways: int, multiple: int | None) -> int:
    """Returns the least number of parts that together have a multiple of some rows; `ways` if there
    is none.

    Args:
        multiple: `None` for all parts.
    """
    if not multiple:
        return ways
    for parts in range(1, ways):
        if ways % parts == 0 and parts * rows % multiple == 0:
            return parts
    return ways


def check_rows(name: str, rows: int, multiple: int = 1, halo: tuple[int, int] = (0, 0)) -> None:
    """Raises ValueError if a part's maps do not suffice for a layer.

    Args:
        multiple: Divisor of the number of rows: the layer's stride.
        halo: Rows that the layer needs of the parts before and after.
    """
    if rows % multiple:
        raise ValueError(
            f"layer {name} halves its maps, and a part has {rows} rows of them: {FEWER_WAYS}"
        )
    if max(halo) > rows:
        raise ValueError(
            f"layer {name} needs {max(halo)} rows of a neighbour, and a part has {rows}: "
            f"{FEWER_WAYS}"
        )
