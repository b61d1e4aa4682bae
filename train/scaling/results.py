"""Types of the results of `train scaling` and of `--dry-run`. Their JSON output holds exactly these
keys.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NotRequired, TypedDict

from .published import PublishedResult
from .strategy import Strategy


class CurveRow(TypedDict):
    """The model's prediction for one number of ranks."""

    ranks: int  # number of ranks
    efficiency: float  # time per step of one rank over the time per step of `ranks` ranks
    step_s: float  # time per step, s
    operations: float  # allreduce operations per step
    reduced_bytes: float  # bytes that a rank gives to them per step
    samples_per_s: float  # samples per second of all ranks
    flop_per_s: float  # FLOP/s of all ranks that the job sustains
    # efficiency by name of each of `train.scaling.published.STRATEGIES`
    others: Mapping[str, float]
    # FLOP/s of all ranks over the convolutions alone, times the efficiency. Present only if the
    # time of the convolutions is known.
    peak_flop_per_s: NotRequired[float]
    # With local SGD on several ranks, mean number of steps from one synchronisation to the next.
    steps_between: NotRequired[float]
    # With local SGD on several ranks, time of one with the wait for the slowest rank, s.
    synchronisation_s: NotRequired[float]
    # steps per epoch. Present only if the number of samples is known
    steps_per_epoch: NotRequired[int]
    # time per step for which checkpoints hold the training, in the mean, s
    checkpoint_s: NotRequired[float]
    # Time of the training steps of the whole job with its checkpoints, h. Present only if the
    # number of samples or `training.steps` is known.
    hours: NotRequired[float]


class DivisionRow(TypedDict):
    """The model's prediction for samples divided over a number of ranks."""

    ways: int  # ranks of a sample
    ranks: int  # all ranks
    step_s: float  # time per step, s
    speed_up: float  # time per step of the first row over this one's, for the same samples
    computation_s: float  # of the step, the computation of a part if nothing had to be exchanged, s
    exchange_s: float  # what exchanges add to it that the computation does not hide, s
    reduction_s: float  # what reductions of gradients and late ranks add, s
    exchanges: int  # exchanges per step
    exchanged_bytes: int  # bytes that a part between two neighbours sends in them per step
    activation_bytes: int  # memory that a step keeps of the forward pass, bytes per rank


class CostFitRow(TypedDict):
    """One measurement of the coordinator beside the fitted model."""

    ranks: int  # number of ranks
    arm: str  # variant of the benchmark
    measured_s: float  # measured CPU time per step, s
    model_s: float  # CPU time per step of the fitted model, s
    fitted: bool  # whether the measurement was used in the fit


class CostFit(TypedDict):
    """Costs of the coordinator, fitted to measurements; see `train.scaling.fit`."""

    cycle_s: float  # CPU time per cycle, s
    message_s: float  # CPU time per message of a rank, s
    announcement_s: float  # CPU time per gradient and rank, s
    worst: float  # largest relative error of the measurements that were not used in the fit
    rows: list[CostFitRow]  # the measurements


@dataclass(frozen=True)
class Synchronisation:
    """The averages of local SGD."""

    # size of the block that a rank sends, without moving averages of normalisations
    block_bytes: int
    every: Literal["epoch"] | int  # steps from one synchronisation to the next, or "epoch"
    moments: bool  # whether the block has the optimizer's moments, too


@dataclass(frozen=True)
class ScalingReport:
    """Scaling of a job; see `train.scaling.report`."""

    name: str  # name of the experiment
    machine: str  # name of the machine
    compute_s: float  # time per step of one rank without communication, s
    # Where that is from: "run", or "rate" if derived from FLOP and the machine's rate.
    compute_from: Literal["run", "rate"]
    strategy: Strategy  # how the configuration reduces gradients
    samples: int | None  # training samples; `None` if not known
    curve: list[CurveRow]  # one row per number of ranks
    # the row with the most ranks that keeps `min_efficiency`; `None` if there is none
    recommended: CurveRow | None
    min_efficiency: float  # the lowest efficiency that is accepted
    published: tuple[PublishedResult, ...]  # published results with the model's values
    measured: CostFit | None  # fit to measurements; `None` without a file of measurements
    # `None` where gradients are averaged in every step
    synchronisation: Synchronisation | None = None
    ways: int = 1  # ranks that a sample of `curve` is divided over
    # one row per number of ways; `None` if none was asked for
    division: list[DivisionRow] | None = None


class SimulationForecast(TypedDict):
    """Cost of simulating the samples that are missing."""

    samples: int  # missing samples that are simulated, as many as training.simulate_seconds allows
    seconds: float  # wall time with the ranks of the job, s
    memory_bytes: int  # memory per rank, bytes
    disk_bytes: int  # size on disk, bytes
    listed: int  # samples of the whole list
    estimated_from: int  # materials whose samples stand for those of all


class StepForecast(TypedDict):
    """Costs that are measured in a few steps."""

    first_step_s: float  # time of the first step, which builds the graph, s
    step_s: float  # median time of the later steps, s
    # memory of the process on the host, MiB: measured, and what a step of the job takes more
    memory_mib: float
    checkpoint_bytes: int  # size of a checkpoint, bytes
    # The image (y, x) of the steps. It is smaller than the network's where a step takes too long to
    # be measured; times and activations are then scaled by area.
    measured_image: tuple[int, ...]


class Forecast(StepForecast):
    """Time, memory and disk of a training job; see `train.scaling.forecast`."""

    ranks: int  # number of ranks
    train_samples: int  # samples of the training split that are used
    held_out_samples: int  # samples of the other splits
    simulation: SimulationForecast | None  # cost of the missing samples; `None` if none is missing
    parameters: int  # number of parameters of the network
    step_flop: int  # FLOP per step of one rank
    steps_per_epoch: int  # steps per epoch
    epochs: int  # epochs
    steps: int  # steps of the whole job
    seconds: float  # time of the steps of the whole job, s
    activation_bytes: int  # what a step keeps of the forward pass at least, bytes
    # A `train.scaling.memory.StepMemory` on this machine's device, and on a GPU, bytes.
    memory: dict[str, int]
    gpu_memory: dict[str, int]
    largest_batches: dict[str, int]  # by GPU, the most samples of a batch that it holds
    # windows that a rank keeps between epochs (`training.inputs.redraw_epochs`), bytes; at most
    kept_bytes: int
    disk_bytes: int  # size of the run directory, bytes
    synchronisations: NotRequired[int]  # with local SGD, number of them in the whole job
    # with local SGD, size of the block that a rank sends in each, bytes
    synchronised_bytes: NotRequired[int]
    store_bytes: NotRequired[int]  # with samples in memory, size of a rank's samples, bytes
