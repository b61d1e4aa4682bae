"""Sharded masters: each rank keeps and updates the float32 weights and moments of its own variables.

A step sends each gradient to the owner of its variable. The owner updates its master, and sends as many bytes of it as
`transfer` says to all ranks, itself among them: all networks are equal, and compute with what
arrived. What a checkpoint holds is gathered by rank 0. It is the same for any number of ranks: the network's weights
as they arrived, which are the network that was trained, then the masters and moments of all variables.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from namsa.arrays import Tensor
from namsa.errors import InputError

from ....optimization.checkpoint import HostVariable
from ....optimization.gradients import time_after
from ....ranks import grouping, reduction
from ....ranks.exchange import Exchange
from .. import packing
from ..packing import deliver
from .ownership import Ownership, balanced_owners, wire_bytes
from .precision import FLOAT_BITS, LayerStates, initial_states, next_states
from .section import Sharded

MASTER = "master"


class ShardedExchange(Exchange):
    """This rank's masters and moments, and what moves between the ranks.

    Attributes:
        masters: The float32 weights of this rank's variables.
        states: What is known of the layers; see `train.strategies.exchange.sharded.precision`.
    """

    config: Sharded

    def begin(self, model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
        """Creates masters, and builds the optimizer. Raises InputError for too many ranks or a wrong list."""
        self.weights, ranks = model.trainable_variables, self.ranks
        if ranks > len(self.weights):
            raise InputError(
                f"training.exchange.kind sharded gives each rank whole variables, and {ranks} ranks are more than the "
                f"network's {len(self.weights)}: start fewer ranks, or take kind allreduce"
            )
        self.paths = [weight.path for weight in self.weights]
        grouping.colours(self.paths, self.config)
        self.sizes = [weight.shape.num_elements() for weight in (each.value for each in self.weights)]
        self.ownership = Ownership(balanced_owners(self.sizes, ranks), self.rank, ranks)
        self.masters = [_variable(MASTER, self.weights[index].value, index) for index in self.ownership.own]
        super().begin(model, optimizer)
        kept = getattr(optimizer, "inner_optimizer", optimizer)
        self._owned = {MASTER: self.masters} | {slot: getattr(kept, slot) for slot in kept.SLOTS}
        slots = {id(variable) for variables in self._owned.values() for variable in variables}
        # Vectors (biases, normalisations) are few values and travel whole.
        self.layers = [index for index, weight in enumerate(self.weights) if len(weight.shape) > 1]
        states = initial_states(len(self.layers), self.config.transfer)
        self.states = LayerStates(*(_variable("layer", value, name) for name, value in states._asdict().items()))
        alike = [variable for variable in optimizer.variables if id(variable) not in slots]
        self.alike = [*alike, *self.states]  # variables that are the same on all ranks

    @property
    def updated(self) -> Sequence[Any]:
        """See `train.ranks.exchange.Exchange`: the masters."""
        return self.masters

    # ---- A step, inside a tf.function -------------------------------------------------------------------------------

    def mean(self, gradients: Sequence[Tensor], scale: Tensor) -> tuple[list[Tensor], Tensor]:
        """See `train.ranks.exchange.Exchange`. Each gradient goes to the rank that owns its variable."""
        groups = grouping.groups(gradients, self.paths, self.config)
        dtype = tf.float16 if self.config.sends_float16 else tf.float32
        means = self.ownership.mean_of_own(gradients, groups, dtype)
        norm = tf.linalg.global_norm(means)
        if self.ownership.ranks > 1:
            norm = tf.sqrt(self.ownership.total(tf.square(norm), "owned_squares"))
        factor = tf.where(tf.math.is_finite(norm), 1.0, np.nan)
        return [factor * mean for mean in means], norm

    def after_update(self, changed: Tensor) -> Tensor:
        """See `train.ranks.exchange.Exchange`. Sets the network's weights of all ranks from the masters.

        The norms of layers travel with the weights, so that their bits change with the next step, on all ranks.
        """
        masters = [tf.identity(master.value) for master in self.masters]
        began = time_after(masters)
        with tf.control_dependencies([began]):
            sizes = self._byte_counts()
            own = self.ownership.own
            packed = [packing.pack(master, sizes[index]) for index, master in zip(own, masters, strict=True)]
            norms = [tf.norm(master) for index, master in zip(own, masters, strict=True) if index in self.layers]
            message = tf.concat([*packed, packing.pack(tf.stack(norms), 4)] if norms else packed, 0)
            received = self.ownership.to_all(message, "owned_weights")
        norms_by_layer: dict[int, Tensor] = {}
        parts = iter(tf.split(received, self._lengths(sizes)))
        for rank in range(self.ownership.ranks):
            owned = self.ownership.of(rank)
            for index in owned:
                weight = self.weights[index]
                weight.assign(tf.reshape(packing.unpack(next(parts), sizes[index]), weight.shape))
            layers = [index for index in owned if index in self.layers]
            norms_by_layer |= zip(layers, tf.unstack(packing.unpack(next(parts), 4), len(layers)), strict=True)
        new_norms = tf.stack([norms_by_layer[index] for index in self.layers])
        states = LayerStates(*(tf.identity(variable.value) for variable in self.states))
        new_states = next_states(states, new_norms, self.config.transfer, changed)
        for variable, value in zip(self.states, new_states, strict=True):
            variable.assign(value)
        return time_after([weight.value for weight in self.weights]) - began

    def _byte_counts(self) -> list[Any]:
        """Bytes of a value of each variable: numbers, or tensors where they adapt."""
        transfer = self.config.transfer
        sizes: list[Any] = [4] * len(self.weights)
        adaptive = transfer.precision == "adaptive"
        bytes_of_layers = tf.unstack(packing.byte_count(self.states.bits.value), len(self.layers)) if adaptive else None
        for number, index in enumerate(self.layers):
            sizes[index] = bytes_of_layers[number] if bytes_of_layers else packing.byte_count(transfer.first_bits)
        return sizes

    def _lengths(self, sizes: Sequence[Any]) -> Tensor:
        """Bytes of each variable in the order of owners, each owner's followed by those of its layers' norms."""
        lengths = []
        for rank in range(self.ownership.ranks):
            owned = self.ownership.of(rank)
            lengths += [self.sizes[index] * sizes[index] for index in owned]
            lengths.append(4 * sum(index in self.layers for index in owned))
        return tf.stack(lengths)

    # ---- Checkpoints ------------------------------------------------------------------------------------------------

    def _take_masters(self) -> None:
        """Takes the masters from the network, and sets the network to what arrives of them. Without messages."""
        for index, master in zip(self.ownership.own, self.masters, strict=True):
            master.assign(self.weights[index].value)
        for weight, size in zip(self.weights, self._byte_counts(), strict=True):
            weight.assign(packing.truncated(weight.value, size))

    def blank_state(self) -> list[Any]:
        """See `train.ranks.exchange.Exchange`. Variables of which each rank has a part are zero."""
        kinds = [(weight, kind) for weight in self.weights for kind in self._owned]
        split = [HostVariable(f"{weight.path}/{kind}", np.zeros(weight.shape, np.float32)) for weight, kind in kinds]
        return [*self.model.variables, *self.alike, *split]

    def state(self) -> list[Any]:
        """See `train.ranks.exchange.Exchange`. Rank 0 gathers the parts."""
        whole = self.blank_state()
        for index, parts in self._by_weight(whole):
            own = self._values(index)
            data = np.stack([np.asarray(each) for each in own or parts])
            deliver(data, self.ownership.owners[index], 0)
            for part, array in zip(parts if self.ownership.rank == 0 else (), data, strict=False):
                part.assign(array)
        return whole

    def restore(self, state: Sequence[Any], of_ranks: Sequence[npt.NDArray[np.float32]], resumed: bool) -> str:
        """See `train.ranks.exchange.Exchange`. Each rank takes its masters and moments from those of rank 0."""
        reduction.broadcast_state(self.model, self.alike)
        if not resumed:
            self._take_masters()
            return ""
        for index, parts in self._by_weight(state):
            data = np.stack([part.array for part in parts])
            deliver(data, 0, self.ownership.owners[index])
            for variable, array in zip(self._values(index), data, strict=False):
                variable.assign(array)
        return ""

    def _by_weight(self, whole: Sequence[Any]) -> list[tuple[int, Sequence[HostVariable]]]:
        split, kinds = [each for each in whole if isinstance(each, HostVariable)], len(self._owned)
        return [(index, split[kinds * index : kinds * (index + 1)]) for index in range(len(self.weights))]

    def _values(self, index: int) -> list[keras.Variable]:
        """This rank's master and moments of a variable; none if another rank owns it."""
        own = self.ownership.own
        return [variables[own.index(index)] for variables in self._owned.values()] if index in own else []

    # ---- Between epochs ---------------------------------------------------------------------------------------------

    def end_epoch(self, step: int, epoch: int, whole: bool) -> dict[str, Any] | None:
        """See `train.ranks.exchange.Exchange`. Begins the sums of the next epoch."""
        if not whole:
            return None
        steps, rates = (np.asarray(value) for value in (self.states.steps, self.states.rates))
        bits = np.asarray(self.states.bits).tolist()
        paths = [self.weights[index].path for index in self.layers]
        known = int(steps.sum())
        self.states.steps.assign(np.zeros_like(steps))
        self.states.rates.assign(np.zeros_like(rates))
        return {
            "step": step,
            "epoch": epoch,
            "steps": int(steps.max(initial=0)),
            "norm_rate": float(rates.sum(dtype=np.float64) / known) if known else None,
            "sent_bytes": self.sent_bytes(bits),
            "bits": dict(zip(paths, bits, strict=True)),
        }

    def sent_bytes(self, bits: Sequence[int]) -> int:
        """Returns the bytes of gradients and weights that all ranks send in a step with these bits of the layers."""
        by_layer = dict(zip(self.layers, bits, strict=True))
        sizes = [packing.byte_count(by_layer.get(index, FLOAT_BITS)) for index in range(len(self.weights))]
        gradient_bytes = 2 if self.config.sends_float16 else 4
        return wire_bytes(self.sizes, sizes, self.ownership.ranks, gradient_bytes)


def _variable(kind: str, value: Tensor, name: Any) -> keras.Variable:
    """A variable whose name is the same for any number of ranks."""
    return keras.Variable(value, dtype=value.dtype.name, trainable=kind == MASTER, name=f"{kind}_{name}")


EXCHANGE = ShardedExchange
