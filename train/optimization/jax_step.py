"""The training step compiled by XLA: one process, whose devices share each batch.

The state of a job (weights, statistics, seeds, moments, loss scale) goes into the compiled step and comes out of it in
the same memory. The variables of Keras hold it between steps, as checkpoints and scores read it. Batches are divided
over the devices along their first axis, and the state is on each of them: XLA adds the messages between them. A batch
of any number of devices gives the same numbers, to rounding, since normalisations and dropout see the whole batch.

The host reads its clock before the step and after it: compute_s is the whole step, and comm_s is zero.
"""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import keras
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from namsa.arrays import Tensor

from ..experiment.sections import Training
from ..ranks.exchange import Exchange
from . import losses, precision
from .losses import Differentiated, Objective


class _State(NamedTuple):
    """Values of variables: what is trained, the rest of the network, and the optimizer's."""

    trainable: list[Tensor]
    others: list[Tensor]
    optimizer: list[Tensor]


class _Network:
    """A network and its optimizer as pure functions of their state.

    Attributes:
        statistics: Indices of the normalisations' moving averages among the variables that are not trained.
    """

    def __init__(
        self, model: keras.Model, optimizer: keras.optimizers.Optimizer, training: Training, objective: Objective
    ) -> None:
        self.model, self.optimizer, self.training, self.objective = model, optimizer, training, objective
        others, optimizer_variables = model.non_trainable_variables, optimizer.variables
        self.variables = _State(model.trainable_variables, others, optimizer_variables)
        kept = {id(variable) for variable in model.non_trainable_weights}
        self.statistics = [index for index, variable in enumerate(others) if id(variable) in kept]
        places = {id(variable): index for index, variable in enumerate(optimizer_variables)}
        self.rate = places[id(optimizer.learning_rate)]
        self.scale = places.get(id(precision.loss_scale(optimizer)))

    def state(self) -> _State:
        """Returns the values of the variables."""
        return _State(*([variable.value for variable in variables] for variables in self.variables))

    def set(self, state: _State) -> None:
        """Sets the variables."""
        for variables, values in zip(self.variables, state, strict=True):
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)

    def loss_scale(self, state: _State) -> Tensor:
        """Returns the loss scale, 1 without one."""
        return jnp.ones(()) if self.scale is None else state.optimizer[self.scale]

    def differentiate(
        self, state: _State, x: Tensor, y: Tensor, setting: Tensor
    ) -> tuple[Differentiated, list[Tensor]]:
        """Returns what a batch gives, and the variables that are not trained after it."""
        scale = self.loss_scale(state)

        def scaled_loss(trainable: list[Tensor]) -> tuple[Tensor, Any]:
            values = [*zip(self.variables.trainable, trainable, strict=True)]
            values += zip(self.variables.others, state.others, strict=True)
            with keras.StatelessScope(values) as scope:
                terms = list(self.objective(self.model(x, training=True), y, setting))
                l2 = losses.l2(losses.kernels(self.variables.trainable), self.training.loss.l2)
            loss = sum(terms[1:], start=terms[0]) + l2
            others = [scope.get_current_value(variable) for variable in self.variables.others]
            return scale * loss, (terms, l2, loss, others)

        gradients, (terms, l2, loss, others) = jax.grad(scaled_loss, has_aux=True)(state.trainable)
        return Differentiated(terms, l2, loss, [others[index] for index in self.statistics], gradients), others

    def update(self, state: _State, batch: Differentiated, others: list[Tensor], rate: Tensor) -> tuple[_State, Tensor]:
        """Returns the state after an update with the numbers of its batches, and the norm of their gradient.

        Args:
            batch: Of one batch, or the mean of several.
            others: The variables that are not trained, after the last batch.
        """
        norm = _norm(batch.gradients) / self.loss_scale(state)
        moments = [*state.optimizer]
        moments[self.rate] = rate
        # With a loss scale, gradients that are not finite only lower the scale.
        trainable, moments = self.optimizer.stateless_apply(moments, batch.gradients, state.trainable)
        # Moving averages would never forget an infinity.
        finite = jnp.isfinite(norm) & jnp.isfinite(_norm(batch.statistics))
        others = [*others]
        for index, new in zip(self.statistics, batch.statistics, strict=True):
            others[index] = jnp.where(finite, new, state.others[index])
        return _State(trainable, others, moments), norm


class Accumulation:
    """Sums over the batches of an update; see `train.optimization.gradients.Accumulation`."""

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        training: Training,
        objective: Objective | None = None,
    ) -> None:
        self.network = network = _Network(
            model, optimizer, training, objective or losses.DensityObjective(training.loss)
        )
        self.sums: Differentiated | None = None

        def add(state: _State, sums: Differentiated | None, x: Tensor, y: Tensor, setting: Tensor) -> Any:
            batch, others = network.differentiate(state, x, y, setting)
            for index in network.statistics:  # they stay as they are until the update
                others[index] = state.others[index]
            return batch if sums is None else jax.tree.map(jnp.add, sums, batch), others

        self._add = _Compiled(add, donated=[1])

    def add(self, x: Tensor, y: Tensor, setting: Tensor) -> float:
        """Adds a batch, any but the last of an update, and returns the time of its forward and backward pass, s."""
        started = time.perf_counter()
        self.sums, others = self._add(self.network.state(), self.sums, x, y, setting)
        for variable, value in zip(self.network.variables.others, others, strict=True):
            variable.assign(value)
        self.sums.loss.block_until_ready()
        return time.perf_counter() - started

    def take(self) -> Differentiated:
        """Returns the sums, and clears them."""
        sums, self.sums = self.sums, None
        assert sums
        return sums


class _Compiled:
    """A function of state, sums, x, y and numbers, compiled once per size of a batch, for the devices that share it."""

    def __init__(self, function: Callable[..., Any], donated: Sequence[int]) -> None:
        self.function, self.donated = function, donated
        self.by_size: dict[int, tuple[Any, NamedSharding]] = {}

    def of(self, state: _State, size: int, numbers: int) -> tuple[Any, _State]:
        """Returns the function for batches of a size, and the state on all their devices."""
        if size not in self.by_size:
            mesh = Mesh(_devices_for(size), ("batch",))
            whole, part = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("batch"))
            places = whole, whole, part, part, *(whole for _ in range(numbers))
            function = jax.jit(self.function, donate_argnums=self.donated, in_shardings=places, out_shardings=whole)
            self.by_size[size] = function, whole
        function, whole = self.by_size[size]
        if state.optimizer[0].sharding != whole:  # before the first step; it would be compiled again after it
            state = jax.device_put(state, whole)
        return function, state

    def __call__(self, state: _State, sums: Differentiated | None, x: Tensor, y: Tensor, *numbers: Tensor) -> Any:
        function, state = self.of(state, len(x), len(numbers))
        return function(state, sums, x, y, *numbers)


def _devices_for(size: int) -> list[Any]:
    """Returns as many devices of this process as divide a batch of a size. Warns if they are not all."""
    devices = jax.local_devices()
    used = max(number for number in range(1, len(devices) + 1) if size % number == 0)
    if used < len(devices):
        print(
            f"warning: a batch of {size} images uses {used} of {len(devices)} devices: a training.batch_size that is a "
            f"multiple of {len(devices)} uses all",
            file=sys.stderr,
        )
    return devices[:used]


class Step:
    """The step; see `train.optimization.loop.make_step`. It is compiled once per shape of a batch."""

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        training: Training,
        exchange: Exchange,
        accumulation: Accumulation | None,
        objective: Objective,
    ) -> None:
        self.network, self.accumulation = _Network(model, optimizer, training, objective), accumulation
        self.compiled = _Compiled(self._update, donated=[0])

    def _update(
        self, state: _State, sums: Differentiated | None, x: Tensor, y: Tensor, rate: Tensor, setting: Tensor
    ) -> tuple[_State, Tensor]:
        network = self.network
        batch, others = network.differentiate(state, x, y, setting)
        if sums is not None:
            batch = jax.tree.map(lambda total, part: (total + part) / network.training.accumulate, sums, batch)
        after, norm = network.update(state, batch, others, rate)
        numbers = [*batch.terms, batch.l2, network.loss_scale(state), norm, batch.loss]
        return after, jnp.stack([jnp.asarray(number, jnp.float32) for number in numbers])

    def __call__(self, x: Tensor, y: Tensor, rate: Tensor, setting: Tensor, stop: Tensor | float = 0.0) -> list[float]:
        """Updates the network, and returns the numbers of `make_step`."""
        started = time.perf_counter()
        sums = self.accumulation.take() if self.accumulation else None
        after, numbers = self.compiled(self.network.state(), sums, x, y, rate, setting)
        self.network.set(after)
        *terms, l2, scale, norm, own_loss = jax.device_get(numbers).tolist()
        compute_s = time.perf_counter() - started
        return [terms[0], l2, scale, norm, 0.0, compute_s, float(stop), *terms[1:], own_loss]

    def lower(self, x: Tensor, y: Tensor, rate: Tensor, setting: Tensor) -> Any:
        """Returns the step of one batch before XLA compiles it, a `jax.stages.Lowered`."""
        function, state = self.compiled.of(self.network.state(), len(x), 2)
        return function.lower(state, None, x, y, rate, setting)


make_step = Step


def _norm(tensors: Sequence[Tensor]) -> Tensor:
    """Returns the Euclidean norm of all numbers of some tensors."""
    return jnp.sqrt(sum((jnp.sum(jnp.square(tensor.astype(jnp.float32))) for tensor in tensors), start=jnp.zeros(())))
