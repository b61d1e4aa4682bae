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
from ..delivery import deliver

Moments = npt.NDArray[np.float32]


def gather(moments: Sequence[Any]) -> list[Moments]:
    """Returns the moments of each rank but the first on rank 0, flat; an empty list on the others. Collective.

    Args:
        moments: This rank's; see `LocalSGDExchange.own`.
    """
    if not moments:
        return []
    flat, others = _flat(moments), []
    for rank in range(1, reduction.size()):
        data = np.empty_like(flat) if reduction.rank() == 0 else flat
        deliver(data, rank, 0)
        others.append(data)
    return others if reduction.rank() == 0 else []


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
    for rank in range(1, reduction.size()):
        deliver(np.ascontiguousarray(stored[rank - 1]) if reduction.rank() == 0 else flat, 0, rank)
    if reduction.rank():
        ends = np.cumsum([variable.value.shape.num_elements() for variable in moments])
        for variable, part in zip(moments, np.split(flat, ends[:-1]), strict=True):
            variable.assign(part.reshape(variable.shape))
    return True


def _flat(moments: Sequence[Any]) -> Moments:
    """All values in one array."""
    return np.concatenate([np.ravel(variable.numpy()) for variable in moments])
