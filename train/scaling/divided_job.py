"""The model of a job whose samples are divided over ranks."""

from collections.abc import Sequence
from dataclasses import dataclass

from fcdensenet.layer_counts import NetworkCount
from namsa.base.errors import InputError

from ..experiment.sections import Training
from ..networks import Network, count
from .division import DividedStep, Division, divided_step
from .model import estimate_step
from .results import DivisionRow
from .strategy import Machine, Strategy
from .workload import WireType


@dataclass(frozen=True)
class DividedJob:
    """A job whose samples are divided."""

    network: Network  # the network
    wire_type: WireType  # type of the gradients on the wire
    compute_s: float  # time of the computation of one step with whole samples, s
    machine: Machine  # the machine
    strategy: Strategy  # how gradients are reduced
    training: Training  # the section training

    @property
    def _axis(self) -> int:
        return self.training.split.axis_index(self.network.input_shape)

    @property
    def _activations(self) -> WireType:
        if self.training.precision.compute == "float32":
            return "float32"
        return "float16"

    def step(self, ways: int) -> tuple[DividedStep, NetworkCount]:
        """Returns the step of a rank, and the layers of its part. Raises InputError if samples
        cannot be divided so.
        """
        training = self.training
        try:
            counted = count(self.network, training.recompute, ways, self._axis)
        except ValueError as error:
            raise InputError(f"{ways} ways along {training.split.axis}: {error}") from None
        step = divided_step(
            self.network,
            self.wire_type,
            self.compute_s,
            self.machine,
            self.strategy,
            Division(ways, self._axis),
            training.batch_size,
            training.accumulate,
            self._activations,
        )
        return step, counted

    def rows(self, numbers: Sequence[int], groups: int) -> list[DivisionRow]:
        """Returns the rows of `ScalingReport.division`."""
        rows: list[DivisionRow] = []
        for ways in numbers:
            divided, counted = self.step(ways)
            step_s = estimate_step(self.machine, divided.work, self.strategy, groups * ways).seconds
            passes = self.training.accumulate
            samples = self.training.batch_size
            sent = samples * counted.halo_bytes(self._activations) + counted.moment_bytes(ways)
            rows.append(
                {
                    "ways": ways,
                    "ranks": groups * ways,
                    "step_s": step_s,
                    "speed_up": rows[0]["step_s"] / step_s if rows else 1.0,
                    "computation_s": divided.computation_s,
                    "exchange_s": divided.work.compute_s - divided.computation_s
                    if ways > 1
                    else 0.0,
                    "reduction_s": step_s - divided.work.compute_s,
                    "exchanges": passes * counted.exchanges,
                    "exchanged_bytes": passes * sent,
                    "activation_bytes": samples * counted.activation_bytes(self._activations),
                }
            )
        return rows
