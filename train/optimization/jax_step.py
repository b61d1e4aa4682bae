"""The training step compiled by XLA, for all devices of all processes, which share each batch.

The state of a job (weights, statistics, seeds, moments, loss scale) goes into the compiled step and
comes out of it in the same memory. The variables of Keras hold it between steps, as checkpoints and
scores read it. Batches are divided over the devices along their first axis, and the state is on
each of them: XLA adds the messages between them. A batch of any number of devices gives the same
numbers, to rounding, since normalisations and dropout see the whole batch: that of all processes.

The host reads its clock before the step and after it: compute_s is the whole step, and comm_s is
zero.
"""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import keras
import numpy as np
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from namsa.base.arrays import Tensor

from ..experiment.sections import Training
from ..ranks.exchange import Exchange
from . import losses, precision
from .losses import Differentiated, Objective
from .step_numbers import StepNumbers


class _State(NamedTuple):
    """Values of variables: what is trained, the rest of the network, and the optimizer's."""

    trainable: list[Tensor]
    others: list[Tensor]
    optimizer: list[Tensor]


class _Network:
    """A network and its optimizer as pure functions of their state.

    Attributes:
        statistics: Indices of the normalisations' moving averages among the variables that are not
            trained.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        training: Training,
        objective: Objective,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.training = training
        self.objective = objective
        others = model.non_trainable_variables
        optimizer_variables = optimizer.variables
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
        if self.scale is None:
            return jnp.ones(())
        return state.optimizer[self.scale]

    def differentiate(
        self, state: _State, x: Tensor, y: Tensor, setting: Tensor
    ) -> tuple[Differentiated, list[Tensor]]:
        """Returns what a batch gives, and the variables that are not trained after it."""
        scale = self.loss_scale(state)

        def scaled_loss(trainable: list[Tensor]) -> tuple[Tensor, Tensor]:
            values = [*zip(self.variables.trainable, trainable, strict=True)]
            values += zip(self.variables.others, state.others, strict=True)
            with keras.StatelessScope(values) as scope:
                terms = list(self.objective(self.model(x, training=True), y, setting))
                l2 = losses.l2(losses.kernels(self.variables.trainable), self.training.loss.l2)
            loss = sum(terms[1:], start=terms[0]) + l2
            others = [scope.get_current_value(variable) for variable in self.variables.others]
            return scale * loss, (terms, l2, loss, others)

        gradients, (terms, l2, loss, others) = jax.grad(scaled_loss, has_aux=True)(state.trainable)
        return Differentiated(
            terms, l2, loss, [others[index] for index in self.statistics], gradients
        ), others

    def update(
        self, state: _State, batch: Differentiated, others: list[Tensor], rate: Tensor
    ) -> tuple[_State, Tensor]:
        """Returns the state after an update with the numbers of its batches, and the norm of their
        gradient.

        Args:
            batch: Of one batch, or the mean of several.
            others: The variables that are not trained, after the last batch.
        """
        norm = _norm(batch.gradients) / self.loss_scale(state)
        moments = [*state.optimizer]
        moments[self.rate] = rate
        # With a loss scale, gradients that are not finite only lower the scale.
        trainable, moments = self.optimizer.stateless_apply(
            moments, batch.gradients, state.trainable
        )
        # Moving averages would never forget an infinity.
        finite = jnp.isfinite(norm) & jnp.isfinite(_norm(batch.statistics))
        others = [*others]
        for index, new in zip(self.statistics, batch.statistics, strict=True):
            others[index] = jnp.where(finite, new, state.others[index])
        return _State(trainable, others, moments), norm


class JaxAccumulation:
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

        def add(
            state: _State, sums: Differentiated | None, x: Tensor, y: Tensor, setting: Tensor
        ) -> tuple[Differentiated, list[Tensor]]:
            batch, others = network.differentiate(state, x, y, setting)
            for index in network.statistics:  # they stay as they are until the update
                others[index] = state.others[index]
            return batch if sums is None else jax.tree.map(jnp.add, sums, batch), others

        self._add = _Compiled(add, donated=[1], arrays=2, numbers=1)

    def add(self, x: Tensor, y: Tensor, setting: Tensor) -> float:
        """Adds a batch, any but the last of an update, and returns the time of its forward and
        backward pass, s.
        """
        started = time.perf_counter()
        function, placement = self._add.of(len(x))
        state = placement.of_job(self.network.state())
        batch = placement.batch(x), placement.batch(y)
        self.sums, others = function(state, self.sums, *batch, *_host_numbers([setting]))
        others = placement.of_process(others)
        for variable, value in zip(self.network.variables.others, others, strict=True):
            variable.assign(value)
        self.sums.loss.block_until_ready()
        return time.perf_counter() - started

    def take(self) -> Differentiated:
        """Returns the sums, and clears them."""
        sums = self.sums
        self.sums = None
        assert sums
        return sums


class _Placement:
    """The devices of the job for batches of one size per process, and what they hold.

    An array of the job is on the devices of all processes. A process computes with it in a step
    alone, which all take together; between steps its variables hold its own copy, in the same
    memory.
    """

    def __init__(self, size: int) -> None:
        devices = _devices_for(size)
        local_devices = [
            device for device in devices if device.process_index == jax.process_index()
        ]
        self.own_devices = len(local_devices)
        self.processes = len(devices) // len(local_devices)
        mesh = Mesh(np.array(devices), ("batch",))
        own_mesh = Mesh(np.array(local_devices), ("batch",))
        self.everywhere = NamedSharding(mesh, PartitionSpec())
        self.divided = NamedSharding(mesh, PartitionSpec("batch"))
        self._own_everywhere = NamedSharding(own_mesh, PartitionSpec())
        self._own_divided = NamedSharding(own_mesh, PartitionSpec("batch"))

    def of_job(self, arrays: object) -> Tensor:
        """Returns arrays of this process, which all have alike, as arrays of the job."""

        def joined(array: Tensor) -> Tensor:
            # before the first step; it would be compiled again after it
            if array.sharding != self._own_everywhere:
                array = jax.device_put(array, self._own_everywhere)
            return _of_shards(array, array.shape, self.everywhere)

        return jax.tree.map(joined, arrays)

    def of_process(self, arrays: object) -> Tensor:
        """Returns this process's copies of arrays of the job."""
        return jax.tree.map(
            lambda array: _of_shards(array, array.shape, self._own_everywhere), arrays
        )

    def batch(self, local_batch: Tensor) -> Tensor:
        """Returns the batch of the job of each process's part of it, in their order."""
        parts = jax.device_put(local_batch, self._own_divided)
        shape = (self.processes * parts.shape[0], *parts.shape[1:])
        return _of_shards(parts, shape, self.divided)


def _of_shards(array: Tensor, shape: tuple[int, ...], sharding: NamedSharding) -> Tensor:
    """Returns an array on the memory of the parts that this process has of another."""
    if array.sharding == sharding:
        return array
    shards = [shard.data for shard in array.addressable_shards]
    return jax.make_array_from_single_device_arrays(shape, sharding, shards)


class _Compiled:
    """A function of state, sums, the arrays of a batch, and numbers, compiled once per size of a
    batch, for the devices that share it.
    """

    def __init__(
        self, function: Callable[..., Any], donated: Sequence[int], arrays: int, numbers: int
    ) -> None:
        self.function = function
        self.donated = donated
        self.arrays = arrays
        self.numbers = numbers
        self.by_size: dict[int, tuple[jax.stages.Wrapped, _Placement]] = {}

    def of(self, size: int) -> tuple[jax.stages.Wrapped, _Placement]:
        """Returns the function for batches of a size per process, and where they are."""
        if size not in self.by_size:
            placement = _Placement(size)
            everywhere = placement.everywhere
            places = [everywhere, everywhere]
            places += [placement.divided] * self.arrays
            places += [everywhere] * self.numbers
            function = jax.jit(
                self.function,
                donate_argnums=self.donated,
                in_shardings=tuple(places),
                out_shardings=everywhere,
            )
            self.by_size[size] = function, placement
        return self.by_size[size]


def _devices_for(size: int) -> list[jax.Device]:
    """Returns as many devices of each process as divide a batch of a size. Warns if they are not
    all.
    """
    device_count = len(jax.local_devices())
    used = max(count for count in range(1, device_count + 1) if size % count == 0)
    if used < device_count:
        print(
            f"warning: a batch of {size} images uses {used} of {device_count} devices: a "
            f"training.batch_size that is a multiple of {device_count} uses all",
            file=sys.stderr,
        )
    devices = []
    for process in range(jax.process_count()):
        devices += jax.local_devices(process)[:used]
    return devices


def _host_numbers(numbers: Sequence[Tensor]) -> list[Tensor]:
    """Returns numbers that are the same on all processes, as a function of the job takes them."""
    return [np.asarray(value, np.float32) for value in numbers]


class Step:
    """The step; see `train.optimization.loop.make_step`. It is compiled once per shape of a
    batch.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        training: Training,
        exchange: Exchange,
        accumulation: JaxAccumulation | None,
        objective: Objective,
    ) -> None:
        self.network = _Network(model, optimizer, training, objective)
        self.accumulation = accumulation
        self.compiled = _Compiled(self._update, donated=[0], arrays=3, numbers=2)

    def _update(
        self,
        state: _State,
        sums: Differentiated | None,
        x: Tensor,
        y: Tensor,
        stops: Tensor,
        rate: Tensor,
        setting: Tensor,
    ) -> tuple[_State, Tensor]:
        """Returns the state after an update, and its numbers. `stops` are those of all devices."""
        network = self.network
        batch, others = network.differentiate(state, x, y, setting)
        if sums is not None:
            batch = jax.tree.map(
                lambda total, added: (total + added) / network.training.accumulate, sums, batch
            )
        after, norm = network.update(state, batch, others, rate)
        numbers = [*batch.terms, batch.l2, network.loss_scale(state), norm, jnp.mean(stops)]
        numbers.append(batch.loss)
        return after, jnp.stack([jnp.asarray(value, jnp.float32) for value in numbers])

    def __call__(
        self, x: Tensor, y: Tensor, rate: Tensor, setting: Tensor, stop: Tensor | float = 0.0
    ) -> list[float]:
        """Updates the network, and returns the numbers of `make_step`."""
        started = time.perf_counter()
        sums = self.accumulation.take() if self.accumulation else None
        function, placement = self.compiled.of(len(x))
        arguments = self._arguments(placement, sums, x, y, rate, setting, stop)
        after, numbers = function(*arguments)
        self.network.set(placement.of_process(after))
        *terms, l2, scale, norm, any_stop, own_loss = np.asarray(numbers).tolist()
        compute_s = time.perf_counter() - started
        measured = StepNumbers(
            terms=terms,
            l2=l2,
            loss_scale=scale,
            grad_norm=norm,
            comm_s=0.0,
            compute_s=compute_s,
            stop=any_stop,
        )
        return [*measured.to_list(), own_loss]

    def _arguments(
        self,
        placement: _Placement,
        sums: Differentiated | None,
        x: Tensor,
        y: Tensor,
        rate: Tensor,
        setting: Tensor,
        stop: Tensor | float,
    ) -> tuple[Tensor, ...]:
        """Returns the arguments of `_update` on the devices of the job."""
        state = placement.of_job(self.network.state())
        stops = np.full(placement.own_devices, float(stop), np.float32)
        batch = [placement.batch(array) for array in (x, y, stops)]
        return state, sums, *batch, *_host_numbers([rate, setting])

    def lower(self, x: Tensor, y: Tensor, rate: Tensor, setting: Tensor) -> jax.stages.Lowered:
        """Returns the step of one batch before XLA compiles it."""
        function, placement = self.compiled.of(len(x))
        return function.lower(*self._arguments(placement, None, x, y, rate, setting, 0.0))


make_step = Step
make_accumulation = JaxAccumulation


def _norm(tensors: Sequence[Tensor]) -> Tensor:
    """Returns the Euclidean norm of all numbers of some tensors."""
    return jnp.sqrt(
        sum(
            (jnp.sum(jnp.square(tensor.astype(jnp.float32))) for tensor in tensors),
            start=jnp.zeros(()),
        )
    )
