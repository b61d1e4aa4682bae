"""Types of the results of `train scaling` and of `--dry-run`. Their JSON output holds exactly these keys."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NotRequired, TypedDict

from .published import PublishedResult
from .strategy import Strategy


class CurveRow(TypedDict):
    """The model's prediction for one number of ranks.

    Attributes:
        ranks: Number of ranks.
        efficiency: Time per step of one rank over the time per step of `ranks` ranks.
        step_s: Time per step, s.
        operations: Allreduce operations per step.
        reduced_bytes: Bytes that a rank gives to them per step.
        samples_per_s: Samples per second of all ranks.
        flop_per_s: FLOP/s of all ranks that the job sustains.
        others: Efficiency by name of each of `train.scaling.published.STRATEGIES`.
        peak_flop_per_s: FLOP/s of all ranks over the convolutions alone, times the efficiency. Present only if the time
            of the convolutions is known.
        steps_between: With local SGD on several ranks, mean number of steps from one synchronisation to the next.
        synchronisation_s: With local SGD on several ranks, time of one with the wait for the slowest rank, s.
        steps_per_epoch: Steps per epoch. Present only if the number of samples is known.
        hours: Time of the training steps of the whole job, h. Present only if the number of samples or
            `training.steps` is known.
    """

    ranks: int
    efficiency: float
    step_s: float
    operations: float
    reduced_bytes: float
    samples_per_s: float
    flop_per_s: float
    others: Mapping[str, float]
    peak_flop_per_s: NotRequired[float]
    steps_between: NotRequired[float]
    synchronisation_s: NotRequired[float]
    steps_per_epoch: NotRequired[int]
    hours: NotRequired[float]


class DivisionRow(TypedDict):
    """The model's prediction for samples divided over a number of ranks.

    Attributes:
        ways: Ranks of a sample.
        ranks: All ranks.
        step_s: Time per step, s.
        speed_up: Time per step of the first row over this one's, for the same samples.
        computation_s: Of the step, the computation of a part if nothing had to be exchanged, s.
        exchange_s: What exchanges add to it that the computation does not hide, s.
        reduction_s: What reductions of gradients and late ranks add, s.
        exchanges: Exchanges per step.
        exchanged_bytes: Bytes that a part between two neighbours sends in them per step.
        activation_bytes: Memory that a step keeps of the forward pass, bytes per rank.
    """

    ways: int
    ranks: int
    step_s: float
    speed_up: float
    computation_s: float
    exchange_s: float
    reduction_s: float
    exchanges: int
    exchanged_bytes: int
    activation_bytes: int


class CostFitRow(TypedDict):
    """One measurement of the coordinator beside the fitted model.

    Attributes:
        ranks: Number of ranks.
        arm: Variant of the benchmark.
        measured_s: Measured CPU time per step, s.
        model_s: CPU time per step of the fitted model, s.
        fitted: Whether the measurement was used in the fit.
    """

    ranks: int
    arm: str
    measured_s: float
    model_s: float
    fitted: bool


class CostFit(TypedDict):
    """Costs of the coordinator, fitted to measurements; see `train.scaling.fit`.

    Attributes:
        cycle_s: CPU time per cycle, s.
        message_s: CPU time per message of a rank, s.
        announcement_s: CPU time per gradient and rank, s.
        worst: Largest relative error of the measurements that were not used in the fit.
        rows: The measurements.
    """

    cycle_s: float
    message_s: float
    announcement_s: float
    worst: float
    rows: list[CostFitRow]


@dataclass(frozen=True)
class Synchronisation:
    """What local SGD averages.

    Attributes:
        block_bytes: Size of the block that a rank sends, without moving averages of normalisations.
        every: Steps from one synchronisation to the next, or "epoch".
        moments: Whether the block has the optimizer's moments, too.
    """

    block_bytes: int
    every: Literal["epoch"] | int
    moments: bool


@dataclass(frozen=True)
class ScalingReport:
    """How a job scales; see `train.scaling.report`.

    Attributes:
        name: Name of the experiment.
        machine: Name of the machine.
        compute_s: Time per step of one rank without communication, s.
        compute_from: Where that is from: "run", or "rate" if derived from FLOP and the machine's rate.
        strategy: How the configuration reduces gradients.
        samples: Training samples; `None` if not known.
        curve: One row per number of ranks.
        recommended: The row with the most ranks that keeps `min_efficiency`; `None` if there is none.
        min_efficiency: The lowest efficiency that is accepted.
        published: Published results with the model's values.
        measured: Fit to measurements; `None` without a file of measurements.
        synchronisation: `None` where gradients are averaged in every step.
        ways: Ranks that a sample of `curve` is divided over.
        division: One row per number of ways; `None` if none was asked for.
    """

    name: str
    machine: str
    compute_s: float
    compute_from: Literal["run", "rate"]
    strategy: Strategy
    samples: int | None
    curve: list[CurveRow]
    recommended: CurveRow | None
    min_efficiency: float
    published: tuple[PublishedResult, ...]
    measured: CostFit | None
    synchronisation: Synchronisation | None = None
    ways: int = 1
    division: list[DivisionRow] | None = None


class SimulationForecast(TypedDict):
    """Cost of simulating the samples that are missing.

    Attributes:
        samples: Number of missing samples.
        seconds: Wall time with the ranks of the job, s.
        memory_bytes: Memory per rank, bytes.
        disk_bytes: Size on disk, bytes.
    """

    samples: int
    seconds: float
    memory_bytes: int
    disk_bytes: int


class StepForecast(TypedDict):
    """Costs that are measured in a few steps.

    Attributes:
        first_step_s: Time of the first step, which builds the graph, s.
        step_s: Median time of the later steps, s.
        memory_mib: Peak memory of the process in the measured steps, MiB.
        checkpoint_bytes: Size of a checkpoint, bytes.
        measured_image: The image (y, x) of the steps. It is smaller than the network's where a step takes too long to
            be measured; times and activations are then scaled by area.
    """

    first_step_s: float
    step_s: float
    memory_mib: float
    checkpoint_bytes: int
    measured_image: tuple[int, int]


class Forecast(StepForecast):
    """What a training job takes; see `train.scaling.forecast`.

    Attributes:
        ranks: Number of ranks.
        train_samples: Samples of the training split that are used.
        held_out_samples: Samples of the other splits.
        simulation: Cost of the missing samples; `None` if none is missing.
        parameters: Number of parameters of the network.
        step_flop: FLOP per step of one rank.
        steps_per_epoch: Steps per epoch.
        epochs: Epochs.
        steps: Steps of the whole job.
        seconds: Time of the steps of the whole job, s.
        activation_bytes: Size of the activations of a rank, bytes.
        kept_bytes: Windows that a rank keeps between epochs (`training.inputs.redraw_epochs`), bytes; at most.
        disk_bytes: Size of the run directory, bytes.
        synchronisations: With local SGD, number of them in the whole job.
        synchronised_bytes: With local SGD, size of the block that a rank sends in each, bytes.
        store_bytes: With samples in memory, size of a rank's samples, bytes.
    """

    ranks: int
    train_samples: int
    held_out_samples: int
    simulation: SimulationForecast | None
    parameters: int
    step_flop: int
    steps_per_epoch: int
    epochs: int
    steps: int
    seconds: float
    activation_bytes: int
    kept_bytes: int
    disk_bytes: int
    synchronisations: NotRequired[int]
    synchronised_bytes: NotRequired[int]
    store_bytes: NotRequired[int]
