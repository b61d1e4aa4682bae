"""Adaptive weight precision (AWP): in how many bits each layer's weights travel (Zhuang, Malossi &
Casas 2020).

For a layer with weights W, step i changes the norm by the rate (‖Wᵢ‖ − ‖Wᵢ₋₁‖) / ‖Wᵢ₋₁‖. A step
with a rate below the threshold counts. After `interval` such steps, which need not follow each
other, the layer gets `step_bits` more, and counts from zero. The rate has a sign, as in the paper:
a norm that falls counts, too, if the threshold is positive.

With `units` block, the layers of a residual block are one layer to all of this: their norm is that
of all their weights.

The threshold is calibrated as in the paper: the mean rate, over all layers and steps, up to the
first epoch with a validation error that is lower than the one before.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import tensorflow as tf

from namsa.base.arrays import Tensor
from namsa.base.errors import InputError

from ....measure.rows import Row
from .section import Transfer

FLOAT_BITS = 32
_BLOCK = re.compile(r"conv\d+_block\d+_")  # first part of the names of a residual block's layers


def units_of(paths: Sequence[str], config: Transfer) -> list[int]:
    """Returns the number of the unit of each layer, from 0 in the order of the layers.

    Args:
        paths: Paths of the layers' variables.

    Raises:
        InputError: If units are residual blocks, and the network has none.
    """
    names = list(paths)
    if config.units == "block":
        names = [_block_of(path) or path for path in paths]
        if names == list(paths):
            raise InputError(
                "training.exchange.transfer.units is block, and the network has no residual "
                "blocks: set it to layer, or network.kind to resnet50"
            )
    numbers: dict[str, int] = {}
    for name in names:
        numbers.setdefault(name, len(numbers))
    return [numbers[name] for name in names]


def _block_of(path: str) -> str:
    """Returns the name of the residual block that a variable belongs to, or nothing."""
    match = _BLOCK.match(path)
    return match[0] if match else ""


def norms_of_units(norms: Tensor, units: Sequence[int]) -> Tensor:
    """Returns the norm of all weights of each unit.

    Args:
        norms: Norms of the layers, `(layers,)`.
        units: The unit of each layer, as of `units_of`.
    """
    count = max(units) + 1
    if count == len(units):
        return norms
    return tf.sqrt(tf.math.unsorted_segment_sum(tf.square(norms), list(units), count))


class LayerStates(NamedTuple):
    """The states of the layers after a step, one value per layer; tensors."""

    bits: Tensor  # bits of a weight, int32
    counted: Tensor  # steps that counted since the last change of `bits`, int32
    norms: Tensor  # norms of the weights, float32; 0 before the first step
    rates: Tensor  # sums of the rates of the steps of this epoch, float32
    steps: Tensor  # number of the steps in `rates`, int32


def initial_states(layers: int, config: Transfer) -> LayerStates:
    """Returns the states before the first step."""
    integers = tf.zeros(layers, tf.int32)
    numbers = tf.zeros(layers, tf.float32)
    return LayerStates(tf.fill([layers], config.first_bits), integers, numbers, numbers, integers)


def next_states(
    states: LayerStates, norms: Tensor, config: Transfer, updated: Tensor = True
) -> LayerStates:
    """Returns the states after a step with these norms, float32, unless a loss scale has skipped
    it.
    """
    known = (states.norms > 0) & updated
    rates = tf.where(known, (norms - states.norms) / tf.where(known, states.norms, 1.0), 0.0)
    bits = states.bits
    counted = states.counted
    if config.precision == "adaptive":
        assert config.threshold is not None
        counted += tf.cast(known & (rates < config.threshold) & (bits < FLOAT_BITS), tf.int32)
        due = counted >= config.interval
        bits = tf.where(due, tf.minimum(bits + config.step_bits, FLOAT_BITS), bits)
        counted = tf.where(due, 0, counted)
    return LayerStates(
        bits, counted, norms, states.rates + rates, states.steps + tf.cast(known, tf.int32)
    )


def threshold(
    transfers: Sequence[Row],
    validations: Sequence[Row],
    error: str,
) -> float:
    """Returns the threshold that the rows of a run give.

    Args:
        transfers: Rows of transfer.jsonl; see `train.measure.rows`.
        error: The column of `validations` that is the task's error.

    Raises:
        ValueError: If the error never drops, or the rows do not reach so far.
    """
    drop = _epoch_of_first_drop(validations, error)
    rows = []
    for row in transfers:
        if row["epoch"] < drop and row["norm_rate"] is not None:
            rows.append(row)
    if len({row["epoch"] for row in rows}) < drop:
        raise ValueError(
            f"transfer.jsonl has {len(rows)} of the {drop} epochs up to the first drop of the "
            "validation error"
        )
    steps = sum(row["steps"] for row in rows)
    return float(sum(row["norm_rate"] * row["steps"] for row in rows) / steps)


def _epoch_of_first_drop(validations: Sequence[Row], error: str) -> int:
    """Returns the first epoch whose error is lower than that of the validation before.

    Raises ValueError if there is none.
    """
    known = [row for row in validations if row.get(error) is not None]
    for earlier, later in pairwise(known):
        if later[error] < earlier[error]:
            return int(later["epoch"])
    raise ValueError(
        f"the validation error ({error}) drops in none of {len(known)} validations: train on"
    )
