"""Sharded masters: each rank keeps and updates the float32 weights and moments of its own
variables.

A step sends each gradient to the owner of its variable. The owner updates its master, and sends as
many bytes of it as `transfer` says to all ranks, itself among them: all networks are equal, and
compute with what arrived. What a checkpoint holds is gathered by rank 0. It is the same for any
number of ranks: the network's weights as they arrived, which are the network that was trained, then
the masters and moments of all variables.
"""

from collections.abc import Sequence

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from namsa.base.arrays import Tensor
from namsa.base.errors import InputError

from ....optimization.checkpoint import HostVariable
from ....optimization.gradients import time_after
from ....ranks import grouping
from ....ranks.connection import engine
from ....ranks.exchange import Exchange
from .. import packing
from ..packing import deliver
from .ownership import Ownership, balanced_owners, wire_bytes
from .precision import (
    FLOAT_BITS,
    LayerStates,
    initial_states,
    next_states,
    norms_of_units,
    units_of,
)
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
        """Creates masters, and builds the optimizer.

        Raises InputError for too many ranks or a wrong list.
        """
        self.weights = model.trainable_variables
        ranks = self.ranks
        if ranks > len(self.weights):
            raise InputError(
                f"training.exchange.kind sharded gives each rank whole variables, and {ranks} "
                f"ranks are more than the network's {len(self.weights)}: start fewer ranks, or "
                "take kind allreduce"
            )
        self.paths = [weight.path for weight in self.weights]
        grouping.colours(self.paths, self.config)
        self.sizes = [weight.value.shape.num_elements() for weight in self.weights]
        self.ownership = Ownership(balanced_owners(self.sizes, ranks), self.rank, ranks)
        self.masters = []
        for index in self.ownership.own:
            self.masters.append(_variable(MASTER, self.weights[index].value, index))
        super().begin(model, optimizer)
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        self._owned = {MASTER: self.masters}
        for slot in inner.SLOTS:
            self._owned[slot] = getattr(inner, slot)
        self._begin_layers()
        # Variables that are the same on all ranks.
        self.alike = [*self._optimizer_variables_of_all(optimizer), *self.states]

    def _begin_layers(self) -> None:
        """Creates the states of the layers."""
        # Vectors (biases, normalisations) are few values and travel whole.
        self.layers = [index for index, weight in enumerate(self.weights) if len(weight.shape) > 1]
        paths = [self.paths[index] for index in self.layers]
        self.units = units_of(paths, self.config.transfer)  # of the layers
        self.unit_count = max(self.units, default=-1) + 1
        states = []
        for name, value in initial_states(self.unit_count, self.config.transfer)._asdict().items():
            states.append(_variable("layer", value, name))
        self.states = LayerStates(*states)

    def _optimizer_variables_of_all(
        self, optimizer: keras.optimizers.Optimizer
    ) -> list[keras.Variable]:
        """Returns the optimizer's variables without those of which each rank has a part."""
        of_parts = set()
        for variables in self._owned.values():
            of_parts |= set(map(id, variables))
        return [variable for variable in optimizer.variables if id(variable) not in of_parts]

    @property
    def updated(self) -> Sequence["keras.Variable"]:
        """See `train.ranks.exchange.Exchange`: the masters."""
        return self.masters

    # ---- A step, inside a tf.function

    def mean(self, gradients: Sequence[Tensor], scale: Tensor) -> tuple[list[Tensor], Tensor]:
        """See `train.ranks.exchange.Exchange`. Each gradient goes to the rank that owns its
        variable.
        """
        groups = grouping.groups(gradients, self.paths, self.config)
        dtype = tf.float16 if self.config.sends_float16 else tf.float32
        means = self.ownership.mean_of_own(gradients, groups, dtype)
        norm = tf.linalg.global_norm(means)
        if self.ownership.ranks > 1:
            norm = tf.sqrt(self.ownership.total(tf.square(norm), "owned_squares"))
        factor = tf.where(tf.math.is_finite(norm), 1.0, np.nan)
        return [factor * mean for mean in means], norm

    def after_update(self, changed: Tensor) -> Tensor:
        """See `train.ranks.exchange.Exchange`. Sets the network's weights of all ranks from the
        masters.

        The norms of layers travel with the weights, so that their bits change with the next step,
        on all ranks.
        """
        masters = [tf.identity(master.value) for master in self.masters]
        began = time_after(masters)
        with tf.control_dependencies([began]):
            sizes = self._byte_counts()
            received = self.ownership.to_all(self._message(masters, sizes), "owned_weights")
        new_norms = self._take_weights(received, sizes)
        states = LayerStates(*(tf.identity(variable.value) for variable in self.states))
        new_states = next_states(states, new_norms, self.config.transfer, changed)
        for variable, value in zip(self.states, new_states, strict=True):
            variable.assign(value)
        return time_after([weight.value for weight in self.weights]) - began

    def _message(self, masters: Sequence[Tensor], sizes: Sequence[object]) -> Tensor:
        """Returns this rank's packed weights, and behind them the norms of its layers.

        Args:
            masters: Of this rank's variables.
            sizes: Bytes of a value of each of the network's variables.
        """
        packed = []
        norms = []
        for index, master in zip(self.ownership.own, masters, strict=True):
            packed.append(packing.pack(master, sizes[index]))
            if index in self.layers:
                norms.append(tf.norm(master))
        if norms:
            packed.append(packing.pack(tf.stack(norms), 4))
        return tf.concat(packed, 0)

    def _take_weights(self, received: Tensor, sizes: Sequence[object]) -> Tensor:
        """Sets the network's weights from the ranks' messages; returns the norms of units."""
        norms_by_layer: dict[int, Tensor] = {}
        pieces = iter(tf.split(received, self._lengths(sizes)))
        for rank in range(self.ownership.ranks):
            layers = []
            for index in self.ownership.of(rank):
                weight = self.weights[index]
                values = packing.unpack(next(pieces), sizes[index])
                weight.assign(tf.reshape(values, weight.shape))
                if index in self.layers:
                    layers.append(index)
            norms = tf.unstack(packing.unpack(next(pieces), 4), len(layers))
            norms_by_layer |= zip(layers, norms, strict=True)
        norms_of_layers = tf.stack([norms_by_layer[index] for index in self.layers])
        return norms_of_units(norms_of_layers, self.units)

    def _byte_counts(self) -> list[Tensor]:
        """Returns the bytes of a value of each variable: numbers, or tensors where they adapt."""
        transfer = self.config.transfer
        sizes: list[Tensor] = [4] * len(self.weights)
        if transfer.precision == "adaptive":
            of_units = tf.unstack(packing.byte_count(self.states.bits.value), self.unit_count)
            of_layers = [of_units[unit] for unit in self.units]
        else:
            of_layers = [packing.byte_count(transfer.first_bits)] * len(self.layers)
        for index, size in zip(self.layers, of_layers, strict=True):
            sizes[index] = size
        return sizes

    def _lengths(self, sizes: Sequence[object]) -> Tensor:
        """Returns the bytes of each variable in the order of owners.

        Each owner's variables are followed by the norms of its layers.
        """
        lengths = []
        for rank in range(self.ownership.ranks):
            norms = 0
            for index in self.ownership.of(rank):
                lengths.append(self.sizes[index] * sizes[index])
                norms += index in self.layers
            lengths.append(4 * norms)
        return tf.stack(lengths)

    # ---- Checkpoints

    def _take_masters(self) -> None:
        """Takes the masters from the network, and sets the network to what arrives of them. Without
        messages.
        """
        for index, master in zip(self.ownership.own, self.masters, strict=True):
            master.assign(self.weights[index].value)
        for weight, size in zip(self.weights, self._byte_counts(), strict=True):
            weight.assign(packing.truncated(weight.value, size))

    def blank_state(self) -> list["keras.Variable"]:
        """See `train.ranks.exchange.Exchange`. Variables of which each rank has a part are zero."""
        parts = []
        for weight in self.weights:
            for kind in self._owned:
                zeros = np.zeros(weight.shape, np.float32)
                parts.append(HostVariable(f"{weight.path}/{kind}", zeros))
        return [*self.model.variables, *self.alike, *parts]

    def state(self) -> list["keras.Variable"]:
        """See `train.ranks.exchange.Exchange`. Rank 0 gathers the parts."""
        gathered = self.blank_state()
        for index, variables in self._by_weight(gathered):
            values = self._values(index)
            data = np.stack([np.asarray(variable) for variable in values or variables])
            deliver(data, self.ownership.owners[index], 0)
            if self.ownership.rank == 0:
                for variable, array in zip(variables, data, strict=True):
                    variable.assign(array)
        return gathered

    def restore(
        self, state: Sequence[object], of_ranks: Sequence[npt.NDArray[np.float32]], resumed: bool
    ) -> str:
        """See `train.ranks.exchange.Exchange`. Each rank takes its masters and moments from those
        of rank 0.
        """
        engine().broadcast_state(self.model, self.alike)
        if not resumed:
            self._take_masters()
            return ""
        for index, parts in self._by_weight(state):
            data = np.stack([slice_of_state.array for slice_of_state in parts])
            deliver(data, 0, self.ownership.owners[index])
            for variable, array in zip(self._values(index), data, strict=False):
                variable.assign(array)
        return ""

    def _by_weight(self, state: Sequence[object]) -> list[tuple[int, Sequence[HostVariable]]]:
        """Returns master and moments of each of the network's variables, with its index."""
        parts = [variable for variable in state if isinstance(variable, HostVariable)]
        kinds = len(self._owned)
        by_weight: list[tuple[int, Sequence[HostVariable]]] = []
        for index in range(len(self.weights)):
            by_weight.append((index, parts[kinds * index : kinds * (index + 1)]))
        return by_weight

    def _values(self, index: int) -> list[keras.Variable]:
        """Returns this rank's master and moments of a variable; none if another rank owns it."""
        owned = self.ownership.own
        if index not in owned:
            return []
        place = owned.index(index)
        return [variables[place] for variables in self._owned.values()]

    # ---- Between epochs

    def end_epoch(self, step: int, epoch: int, whole: bool) -> dict[str, object] | None:
        """See `train.ranks.exchange.Exchange`. Begins the sums of the next epoch."""
        if not whole:
            return None
        steps = np.asarray(self.states.steps)
        rates = np.asarray(self.states.rates)
        bits = np.asarray(self.states.bits)[self.units].tolist()
        paths = [self.weights[index].path for index in self.layers]
        self.states.steps.assign(np.zeros_like(steps))
        self.states.rates.assign(np.zeros_like(rates))
        counted = int(steps.sum())
        norm_rate = None
        if counted:
            norm_rate = float(rates.sum(dtype=np.float64) / counted)
        return {
            "step": step,
            "epoch": epoch,
            "steps": int(steps.max(initial=0)),
            "norm_rate": norm_rate,
            "sent_bytes": self.sent_bytes(bits),
            "bits": dict(zip(paths, bits, strict=True)),
        }

    def sent_bytes(self, bits: Sequence[int]) -> int:
        """Returns the bytes of gradients and weights that all ranks send in a step.

        Args:
            bits: Of a weight of each layer.
        """
        bits_by_layer = dict(zip(self.layers, bits, strict=True))
        sizes = []
        for index in range(len(self.weights)):
            sizes.append(packing.byte_count(bits_by_layer.get(index, FLOAT_BITS)))
        gradient_bytes = 2 if self.config.sends_float16 else 4
        return wire_bytes(self.sizes, sizes, self.ownership.ranks, gradient_bytes)


def _variable(kind: str, value: Tensor, name: object) -> keras.Variable:
    """A variable whose name is the same for any number of ranks."""
    return keras.Variable(
        value, dtype=value.dtype.name, trainable=kind == MASTER, name=f"{kind}_{name}"
    )


EXCHANGE = ShardedExchange
