"""Types of a profile: what `namsa-train profile` prints and writes to `profile.json`."""

from pathlib import Path
from typing import NotRequired

from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from namsa.base.json_files import read_typed

from ..program import PROGRAM

FILE_NAME = "profile.json"
# Names of the rows of a timeline that are neither threads nor streams.
REDUCTION_ROW = "reduction"
COORDINATION_ROW = "coordination"
INPUT_ROW = "input"


class KindRow(TypedDict):
    """The operations of one kind in a step, mean over the profiled steps."""

    kind: str  # one of `train.measure.kinds.KINDS`, or "idle"
    calls: float  # number of operations
    seconds: float  # time in which at least one operation of the kind ran, s
    # the same over the time of the step. Kinds that run at the same time add up to more than 1
    share: float
    operation_s: float  # sum of the operations' durations, s
    flop_per_s: NotRequired[float]  # of a kind of convolution: its FLOP over `seconds`


class PhaseRow(TypedDict):
    """A phase of a step, mean over the profiled steps."""

    phase: str  # one of `train.measure.kinds.PHASES`
    seconds: float  # time in which at least one of its operations ran, s
    # the same over the time of the step. Phases that run at the same time add up to more than 1
    share: float


class SynchronisationFacts(TypedDict):
    """The averages of local SGD, and their time without the profiler."""

    configured: int | str  # `training.exchange.synchronise`: a number of steps, or "epoch"
    every: int  # steps from one to the next in the profile, which takes fewer than an epoch
    sent_bytes: int  # size of the block that a rank sends
    seconds: float  # median time of one, with the wait for the slowest rank, s


class ExchangeFacts(TypedDict):
    """The exchange of divided samples, mean per step."""

    calls: float  # number of exchanges
    seconds: float  # time in which at least one of them was asked for or under way, s
    hidden_s: float  # the part of this time in which a convolution ran, s


class AlgorithmRow(TypedDict):
    """An algorithm of the convolutions' kernels, as table 2 of Laanait et al. (2019)."""

    algorithm: str
    kind: str
    calls: float
    operation_s: float
    tensor_cores: bool


class OperationRow(TypedDict):
    """One of the operations or kernels that take the most time."""

    name: str
    kind: str
    calls: float
    operation_s: float


class Bars(TypedDict):
    """A thread, a stream, the reduction or the input in one step."""

    row: str  # its name
    # Start since the start of the step in s, duration in s, and index in the profile's `kinds`.
    bars: list[tuple[float, float, int]]


class RankSpread(TypedDict):
    """A time on all ranks, s."""

    name: str
    lowest: float
    median: float
    highest: float


class Profile(TypedDict):
    """A profile of some steps on rank 0, and the spread of its times over the ranks."""

    name: str  # name of the experiment
    data: str  # "samples", or "random" where there were none
    device: str  # "CPU" or "GPU": whose operations or kernels were recorded
    machine: str  # name of rank 0's device
    ranks: int  # number of ranks
    steps: int  # steps that were profiled
    step_flop: float  # FLOP of the convolutions in a step of one rank
    # Median time of as many steps before, without the profiler, s; with local SGD, of which most
    # steps do not synchronise, their mean.
    step_s: float
    profiled_step_s: float  # mean time of a profiled step, s
    convolutions_s: float  # time in which at least one convolution ran, mean per step, s
    kinds: list[KindRow]  # time by kind, and idle
    phases: NotRequired[list[PhaseRow]]  # time by phase of the step
    synchronisation: NotRequired[SynchronisationFacts]  # with local SGD
    exchange: NotRequired[ExchangeFacts]  # with divided samples
    algorithms: list[AlgorithmRow]  # of the convolutions, if the kernels' names tell
    operations: list[OperationRow]  # those that take the most time
    timeline: list[Bars]  # one of the steps
    timeline_s: float  # its time, s
    spread: list[RankSpread]  # times over the ranks


def read_profile(path: Path) -> Profile:
    """Reads a `profile.json`. Raises InputError if the file cannot be read, or is no profile."""
    return read_typed(Profile, path, f"run {PROGRAM} profile again, or delete the file")
