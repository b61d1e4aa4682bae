"""Moments that local SGD leaves each rank for itself, in checkpoints.

Only rank 0 writes checkpoints. Where the ranks keep their own moments, it collects those of the others: a checkpoint
holds the whole state of rank 0 and, behind it, one array of moments for each further rank. The same number of ranks
continues with them, to the same bits as without a stop. Another number of ranks starts with rank 0's moments on all.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ....ranks import reduction

Moments = npt.NDArray[np.float32]

PIECE_BYTES = 2**28  # that rank 0 sends or receives at once


def gather(moments: Sequence[Any]) -> list[Moments]:
    """Returns the moments of each rank but the first on rank 0, flat; an empty list on the others. Collective.

    Args:
        moments: This rank's; see `LocalSGDExchange.own`.
    """
    if not moments or reduction.size() == 1:
        return []
    flat = _flat(moments)
    nothing = [flat[:0]] * (reduction.size() - 1)
    pieces = [_exchange([flat[start:end], *nothing]) for start, end in _pieces(flat.size)]
    if reduction.rank():
        return []
    return [np.concatenate(of_rank) for of_rank in list(zip(*pieces, strict=True))[1:]]


def distribute(moments: Sequence[Any], stored: Sequence[Moments]) -> bool:
    """Sets each rank's moments to those that a checkpoint has for it. Collective.

    Args:
        moments: Variables to set; rank 0's stay as they are.
        stored: On rank 0, what `gather` returned there; of other ranks it is ignored.

    Returns:
        Whether there were moments for exactly these ranks; otherwise nothing changes.
    """
    if not moments:
        return False
    flat = _flat(moments)
    sizes = reduction.gather_json([each.size for each in stored])[0]
    if sizes != [flat.size] * (reduction.size() - 1):
        return False
    sent = [flat[:0], *stored] if reduction.rank() == 0 else [flat[:0]] * reduction.size()
    pieces = [_exchange([each[start:end] for each in sent])[0] for start, end in _pieces(flat.size)]
    if reduction.rank():
        _assign(moments, np.concatenate(pieces))
    return True


def _flat(moments: Sequence[Any]) -> Moments:
    """All values in one array."""
    return np.concatenate([np.zeros(0, np.float32), *(np.ravel(variable.numpy()) for variable in moments)])


def _assign(moments: Sequence[Any], flat: Moments) -> None:
    """Sets variables from their values in one array."""
    ends = np.cumsum([variable.value.shape.num_elements() for variable in moments])
    for variable, part in zip(moments, np.split(flat, ends[:-1]), strict=True):
        variable.assign(part.reshape(variable.shape))


def _pieces(size: int) -> list[tuple[int, int]]:
    """Start and end of each piece of `size` values, such that those of all ranks together are not too large."""
    length = max(1, PIECE_BYTES // 4 // reduction.size())
    return [(start, min(start + length, size)) for start in range(0, size, length)]


def _exchange(outgoing: Sequence[Moments]) -> list[Moments]:
    """`train.ranks.reduction.exchange` of float32."""
    received = reduction.exchange([np.ascontiguousarray(each).view(np.uint8) for each in outgoing])
    return [each.view(np.float32) for each in received]
