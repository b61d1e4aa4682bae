"""Types of a profile: what `python -m train profile` prints and writes to `profile.json`."""

from functools import cache
from pathlib import Path
from typing import NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from namsa.dataset.typed_values import read_typed

from ..program import PROGRAM

FILE_NAME = "profile.json"


class KindRow(TypedDict):
    """The operations of one kind in a step, mean over the profiled steps.

    Attributes:
        kind: One of `train.measure.kinds.KINDS`, or "idle".
        calls: Number of operations.
        seconds: Time in which at least one operation of the kind ran, s.
        share: The same over the time of the step. Kinds that run at the same time add up to more than 1.
        operation_s: Sum of the operations' durations, s.
        flop_per_s: Of a kind of convolution: its FLOP over `seconds`.
    """

    kind: str
    calls: float
    seconds: float
    share: float
    operation_s: float
    flop_per_s: NotRequired[float]


class PhaseRow(TypedDict):
    """A phase of a step, mean over the profiled steps.

    Attributes:
        phase: One of `train.measure.kinds.PHASES`.
        seconds: Time in which at least one of its operations ran, s.
        share: The same over the time of the step. Phases that run at the same time add up to more than 1.
    """

    phase: str
    seconds: float
    share: float


class SynchronisationFacts(TypedDict):
    """What local SGD averages, and how long it takes without the profiler.

    Attributes:
        configured: `training.exchange.synchronise`: a number of steps, or "epoch".
        every: Steps from one to the next in the profile, which takes fewer than an epoch.
        sent_bytes: Size of the block that a rank sends.
        seconds: Median time of one, with the wait for the slowest rank, s.
    """

    configured: int | str
    every: int
    sent_bytes: int
    seconds: float


class ExchangeFacts(TypedDict):
    """The exchange of divided samples, mean per step.

    Attributes:
        calls: Number of exchanges.
        seconds: Time in which at least one of them was asked for or under way, s.
        hidden_s: The part of this time in which a convolution ran, s.
    """

    calls: float
    seconds: float
    hidden_s: float


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
    """A thread, a stream, the reduction or the input in one step.

    Attributes:
        row: Its name.
        bars: Start since the start of the step in s, duration in s, and index in the profile's `kinds`.
    """

    row: str
    bars: list[tuple[float, float, int]]


class RankSpread(TypedDict):
    """A time on all ranks, s."""

    name: str
    lowest: float
    median: float
    highest: float


class Profile(TypedDict):
    """A profile of some steps on rank 0, and the spread of its times over the ranks.

    Attributes:
        name: Name of the experiment.
        data: "samples", or "random" where there were none.
        device: "CPU" or "GPU": whose operations or kernels were recorded.
        machine: Name of rank 0's device.
        ranks: Number of ranks.
        steps: Steps that were profiled.
        step_flop: FLOP of the convolutions in a step of one rank.
        step_s: Median time of as many steps before, without the profiler, s; with local SGD, of which most steps do not
            synchronise, their mean.
        profiled_step_s: Mean time of a profiled step, s.
        convolutions_s: Time in which at least one convolution ran, mean per step, s.
        kinds: Time by kind, and idle.
        phases: Time by phase of the step.
        synchronisation: With local SGD.
        exchange: With divided samples.
        algorithms: Of the convolutions, if the kernels' names tell.
        operations: Those that take the most time.
        timeline: One of the steps.
        timeline_s: Its time, s.
        spread: Times over the ranks.
    """

    name: str
    data: str
    device: str
    machine: str
    ranks: int
    steps: int
    step_flop: float
    step_s: float
    profiled_step_s: float
    convolutions_s: float
    kinds: list[KindRow]
    phases: NotRequired[list[PhaseRow]]
    synchronisation: NotRequired[SynchronisationFacts]
    exchange: NotRequired[ExchangeFacts]
    algorithms: list[AlgorithmRow]
    operations: list[OperationRow]
    timeline: list[Bars]
    timeline_s: float
    spread: list[RankSpread]


def read_profile(path: Path) -> Profile:
    """Reads a `profile.json`.

    Raises:
        InputError: If the file cannot be read, or is no profile.
    """
    return read_typed(_adapter(), path, f"run {PROGRAM} profile again, or delete the file")


@cache
def _adapter() -> TypeAdapter[Profile]:
    return TypeAdapter(Profile)
