"""Sharded masters: each rank keeps and updates the float32 weights and moments of its own variables.

A step sends each gradient to the owner of its variable. The owner updates its master, and sends as many bytes of it as
`training.reduction.transfer` says to all ranks, itself among them: all networks are equal, and compute with what
arrived. What a checkpoint holds is gathered by rank 0. It is the same for any number of ranks: the network's weights
as they arrived, which are the network that was trained, then the masters and moments of all variables.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from namsa.errors import InputError

from ..experiment.reduction import Reduction
from ..ranks.ownership import Ownership, balanced_owners, wire_bytes
from . import packing
from .adaptive_precision import FLOAT_BITS, LayerStates, initial_states, next_states
from .gradients import time_after

Tensor = Any

MASTER = "master"


@dataclass(eq=False)
class HostVariable:
    """A variable of a checkpoint that no rank but rank 0 has whole, as `train.optimization.checkpoint` takes it."""

    path: str
    array: npt.NDArray[np.float32]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the variable."""
        return self.array.shape

    @property
    def dtype(self) -> str:
        """Type of the variable."""
        return self.array.dtype.name

    def assign(self, value: npt.ArrayLike) -> None:
        """Sets the variable."""
        self.array[...] = value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[np.float32]:
        return np.array(self.array, dtype, copy=copy)


class Shards:
    """This rank's masters and moments, and what moves between the ranks. All ranks call the methods, in one order.

    Attributes:
        masters: The float32 weights of this rank's variables.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        config: Reduction,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        """Creates the masters, and builds the optimizer for them.

        Args:
            model: The network.
            optimizer: Its optimizer, not built.
            config: The section training.reduction.
            rank: Number of this rank.
            ranks: Number of ranks.

        Raises:
            InputError: If there are more ranks than variables.
        """
        self.model, self.weights, self.config = model, model.trainable_variables, config
        if ranks > len(self.weights):
            raise InputError(
                f"training.reduction.weights sharded gives each rank whole variables, and {ranks} ranks are more than "
                f"the network's {len(self.weights)}: start fewer ranks, or set weights to resident"
            )
        self.sizes = [weight.shape.num_elements() for weight in (each.value for each in self.weights)]
        self.ownership = Ownership(balanced_owners(self.sizes, ranks), rank, ranks)
        self.masters = [_variable(MASTER, self.weights[index].value, index) for index in self.ownership.own]
        optimizer.build(self.masters)
        kept = getattr(optimizer, "inner_optimizer", optimizer)
        self._owned = {MASTER: self.masters} | {slot: getattr(kept, slot) for slot in kept.SLOTS}
        slots = {id(variable) for variables in self._owned.values() for variable in variables}
        # Vectors (biases, normalisations) are few values and travel whole.
        self.layers = [index for index, weight in enumerate(self.weights) if len(weight.shape) > 1]
        states = initial_states(len(self.layers), config.transfer)
        self.states = LayerStates(*(_variable("layer", value, name) for name, value in states._asdict().items()))
        alike = [variable for variable in optimizer.variables if id(variable) not in slots]
        self.variables = [*alike, *self.states]  # that are the same on all ranks

    # ---- A step, inside a tf.function -------------------------------------------------------------------------------

    def mean_gradients(self, gradients: Sequence[Tensor], groups: Sequence[Sequence[int]]) -> tuple[list[Tensor], Any]:
        """Returns the mean gradients of this rank's variables, and the norm of those of all ranks.

        If any rank's are not finite, all are made so: the loss scale of every rank skips the step.

        Args:
            gradients: Of all variables.
            groups: Indices of `gradients` in each message, see `train.ranks.grouping`.
        """
        dtype = tf.float16 if self.config.compression == "fp16" else tf.float32
        means = self.ownership.mean_of_own(gradients, groups, dtype)
        norm = tf.linalg.global_norm(means)
        if self.ownership.ranks > 1:
            norm = tf.sqrt(self.ownership.total(tf.square(norm), "owned_squares"))
        factor = tf.where(tf.math.is_finite(norm), 1.0, np.nan)
        return [factor * mean for mean in means], norm

    def send_weights(self, updated: Tensor) -> Tensor:
        """Sets the network's weights of all ranks from the masters, and returns the time that this took, s.

        The norms of layers travel with the weights, so that their bits change with the next step, on all ranks.

        Args:
            updated: Whether the step has changed the masters.
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
        new_states = next_states(states, new_norms, self.config.transfer, updated)
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

    # ---- Between steps ----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Takes the masters from the network, and sets the network to what arrives of them. Without messages."""
        for index, master in zip(self.ownership.own, self.masters, strict=True):
            master.assign(self.weights[index].value)
        for weight, size in zip(self.weights, self._byte_counts(), strict=True):
            weight.assign(packing.truncated(weight.value, size))

    def blank(self) -> list[Any]:
        """Returns the variables of a checkpoint; those of which each rank has a part are zero."""
        kinds = [(weight, kind) for weight in self.weights for kind in self._owned]
        split = [HostVariable(f"{weight.path}/{kind}", np.zeros(weight.shape, np.float32)) for weight, kind in kinds]
        return [*self.model.variables, *self.variables, *split]

    def gather(self) -> list[Any]:
        """Returns the variables of a checkpoint, as `blank`, whole on rank 0."""
        whole = self.blank()
        for index, parts in self._by_weight(whole):
            own = self._values(index)
            data = np.stack([np.asarray(each) for each in own or parts])
            self.ownership.deliver(data.reshape(-1).view(np.uint8), self.ownership.owners[index], 0)
            for part, array in zip(parts if self.ownership.rank == 0 else (), data, strict=False):
                part.assign(array)
        return whole

    def hand_out(self, whole: Sequence[Any]) -> None:
        """Sets all ranks' masters and moments from rank 0's `whole`, as of `blank`."""
        for index, parts in self._by_weight(whole):
            data = np.stack([part.array for part in parts])
            self.ownership.deliver(data.reshape(-1).view(np.uint8), 0, self.ownership.owners[index])
            for variable, array in zip(self._values(index), data, strict=False):
                variable.assign(array)

    def _by_weight(self, whole: Sequence[Any]) -> list[tuple[int, Sequence[HostVariable]]]:
        split, kinds = [each for each in whole if isinstance(each, HostVariable)], len(self._owned)
        return [(index, split[kinds * index : kinds * (index + 1)]) for index in range(len(self.weights))]

    def _values(self, index: int) -> list[keras.Variable]:
        """This rank's master and moments of a variable; none if another rank owns it."""
        own = self.ownership.own
        return [variables[own.index(index)] for variables in self._owned.values()] if index in own else []

    def end_epoch(self, step: int, epoch: int) -> dict[str, Any]:
        """Returns the row of an epoch for `train.measure.transfer_rows`, and begins the next one's sums."""
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
        gradient_bytes = 2 if self.config.compression == "fp16" else 4
        return wire_bytes(self.sizes, sizes, self.ownership.ranks, gradient_bytes)


def _variable(kind: str, value: Tensor, name: Any) -> keras.Variable:
    """A variable whose name is the same for any number of ranks."""
    return keras.Variable(value, dtype=value.dtype.name, trainable=kind == MASTER, name=f"{kind}_{name}")
