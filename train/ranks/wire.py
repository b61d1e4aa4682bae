"""Gradients as float16 on the network, scaled so that neither small ones nor large sums are
lost.
"""

import math

from keras import ops

from namsa.base.arrays import Tensor


def wire_divisors(ranks: int) -> tuple[float, float]:
    """Returns the divisors of a float16 gradient before and after the sum over `ranks`, whose
    product is `ranks`.

    With N ranks, the sum needs log₂ N bits of range more than a gradient. Both divisors are about
    √N, so that half of these bits are at the end of small numbers and half at that of large ones.
    The first is a power of two, by which a division does not round.
    """
    prescale = 2.0 ** round(math.log2(ranks) / 2)
    return prescale, ranks / prescale


def to_wire(gradient: Tensor, ranks: int) -> Tensor:
    """Returns a float32 gradient, scaled by the loss scale, as the float16 message that is summed
    over `ranks`.
    """
    return ops.cast(gradient / wire_divisors(ranks)[0], "float16")


def from_wire(total: Tensor, ranks: int) -> Tensor:
    """Returns the float32 mean from the float16 sum of the messages of `ranks`.

    A sum that overflows is infinite in the same places on all ranks, so that all of them skip the
    step.
    """
    return ops.cast(total, "float32") / wire_divisors(ranks)[1]
