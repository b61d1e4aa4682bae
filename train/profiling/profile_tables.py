"""Sums up a trace: time by kind of operation, algorithms of the convolutions, and one step as a
timeline.

The time of a kind is that in which at least one of its operations runs, as on a clock: with one
stream on a GPU it is the sum of the kernels' durations. Operations of several threads that run at
the same time count once.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..measure.kinds import (
    CONVOLUTIONS,
    COORDINATION,
    EXCHANGE,
    IDLE,
    INPUT,
    KINDS,
    PHASES,
    REDUCTION,
)
from ..measure.profile_results import (
    COORDINATION_ROW,
    INPUT_ROW,
    REDUCTION_ROW,
    AlgorithmRow,
    Bars,
    ExchangeFacts,
    KindRow,
    OperationRow,
    PhaseRow,
)
from .classification import algorithm_of, kind_of, phase_of, uses_tensor_cores
from .trace import Event, Trace

Interval = tuple[float, float]  # start, end, s
Bar = tuple[float, float, int]  # as of `Bars`

LONGEST_OPERATIONS = 15
WAITS = (REDUCTION, EXCHANGE, COORDINATION, INPUT)  # kinds that do not follow from names
SHORTEST_GAP = 1 / 2000  # of a step: a shorter one between bars of one kind is not drawn


def event_kind(event: Event) -> str:
    """Returns the kind of an event."""
    if event.category in WAITS:
        return event.category
    return kind_of(event.name, event.category)


def in_steps(trace: Trace) -> list[Event]:
    """Returns the events that begin within one of the steps."""
    starts, ends = np.array(trace.steps, np.float64).reshape(-1, 2).T
    times = np.array([event.start_s for event in trace.events], np.float64)
    steps = np.searchsorted(starts, times, side="right") - 1
    within = (steps >= 0) & (times < ends[steps])
    return [trace.events[index] for index in np.flatnonzero(within)]


def mean_step_s(trace: Trace) -> float:
    """Returns the mean time of a step, s."""
    return sum(end - start for start, end in trace.steps) / len(trace.steps)


def busy_seconds(intervals: Iterable[Interval]) -> float:
    """Returns the length of the union of intervals (start, end)."""
    ordered = np.array(sorted(intervals), np.float64).reshape(-1, 2)
    if not len(ordered):
        return 0.0
    starts = ordered[:, 0]
    covered_to = np.maximum.accumulate(ordered[:, 1])
    covered_before = np.concatenate([[-np.inf], covered_to[:-1]])
    new = covered_to - np.maximum(starts, covered_before)
    return float(np.sum(np.maximum(0.0, new)))


def _interval(event: Event) -> Interval:
    return event.start_s, event.end_s


def kind_rows(trace: Trace, forward_flop: float) -> list[KindRow]:
    """Returns time by kind per step, with idle last.

    Args:
        forward_flop: FLOP of the convolutions' forward pass, and as many again by input and by
            weights: as in the paper, the first layer's gradient by input counts, although it is not
            computed.
    """
    events = in_steps(trace)
    steps = len(trace.steps)
    step_s = mean_step_s(trace)
    events_by_kind: dict[str, list[Event]] = {kind: [] for kind in KINDS}
    for event in events:
        events_by_kind[event_kind(event)].append(event)
    rows: list[KindRow] = []
    for kind, members in events_by_kind.items():
        if not members:
            continue
        seconds = busy_seconds(map(_interval, members)) / steps
        row: KindRow = {
            "kind": kind,
            "calls": len(members) / steps,
            "seconds": seconds,
            "share": seconds / step_s,
            "operation_s": sum(event.seconds for event in members) / steps,
        }
        if kind in CONVOLUTIONS:
            row["flop_per_s"] = forward_flop / seconds
        rows.append(row)
    busy_s = busy_seconds(map(_interval, events)) / steps
    idle_s = max(0.0, step_s - busy_s)
    rows.append(
        {
            "kind": IDLE,
            "calls": 0,
            "seconds": idle_s,
            "share": idle_s / step_s,
            "operation_s": 0,
        }
    )
    return rows


def phase_rows(trace: Trace) -> list[PhaseRow]:
    """Returns time by phase per step, of the phases that occur."""
    step_s = mean_step_s(trace)
    intervals_by_phase: dict[str, list[Interval]] = {phase: [] for phase in PHASES}
    for event in in_steps(trace):
        intervals_by_phase[phase_of(event.name, event.category)].append(_interval(event))
    rows: list[PhaseRow] = []
    for phase, intervals in intervals_by_phase.items():
        if intervals:
            seconds = busy_seconds(intervals) / len(trace.steps)
            rows.append({"phase": phase, "seconds": seconds, "share": seconds / step_s})
    return rows


def _convolution_intervals(events: Iterable[Event]) -> list[Interval]:
    return [_interval(event) for event in events if event_kind(event) in CONVOLUTIONS]


def convolutions_s(trace: Trace) -> float:
    """Returns the time in which at least one convolution runs, mean per step, s.

    It is t_comp of the paper.
    """
    return busy_seconds(_convolution_intervals(in_steps(trace))) / len(trace.steps)


def exchange_facts(trace: Trace) -> ExchangeFacts:
    """Returns how long divided samples exchange borders, and how much of it convolutions hide.

    Times are means per step. An exchange begins with the request of the rank. Operations that wait
    for the thread of Horovod, whose own times are in its timeline, do not count.
    """
    names = {event.name for event in trace.events if event.category == EXCHANGE}
    events = in_steps(trace)
    exchanges = []
    calls = 0
    for event in events:
        if event.category in (EXCHANGE, COORDINATION) and event.name in names:
            exchanges.append(_interval(event))
        if event.category == EXCHANGE:
            calls += 1
    convolutions = _convolution_intervals(events)
    exchange_s = busy_seconds(exchanges)
    hidden_s = exchange_s + busy_seconds(convolutions) - busy_seconds([*exchanges, *convolutions])
    steps = len(trace.steps)
    return {"calls": calls / steps, "seconds": exchange_s / steps, "hidden_s": hidden_s / steps}


def algorithm_rows(trace: Trace) -> list[AlgorithmRow]:
    """Returns the algorithms of the convolutions' kernels per step.

    There are none if the kernels' names do not tell.
    """
    if trace.device != "GPU":
        return []
    groups: dict[tuple[str, str, bool], list[float]] = {}
    for event in in_steps(trace):
        kind = event_kind(event)
        if kind in CONVOLUTIONS:
            algorithm = algorithm_of(event.name) or "unknown"
            key = (algorithm, kind, uses_tensor_cores(event.name))
            groups.setdefault(key, []).append(event.seconds)
    steps = len(trace.steps)
    rows: list[AlgorithmRow] = []
    for (algorithm, kind, tensor_cores), times in groups.items():
        rows.append(
            {
                "algorithm": algorithm,
                "kind": kind,
                "calls": len(times) / steps,
                "operation_s": sum(times) / steps,
                "tensor_cores": tensor_cores,
            }
        )
    return sorted(rows, key=lambda row: -row["operation_s"])


def operation_rows(trace: Trace) -> list[OperationRow]:
    """Returns the operations that take the most time per step, the longest first."""
    groups: dict[tuple[str, str], list[float]] = {}
    for event in in_steps(trace):
        if event.category not in WAITS:
            groups.setdefault((event.name, event_kind(event)), []).append(event.seconds)
    steps = len(trace.steps)
    rows: list[OperationRow] = []
    for (name, kind), times in groups.items():
        rows.append(
            {
                "name": name,
                "kind": kind,
                "calls": len(times) / steps,
                "operation_s": sum(times) / steps,
            }
        )
    return sorted(rows, key=lambda row: -row["operation_s"])[:LONGEST_OPERATIONS]


class DrawnStep(NamedTuple):
    """One step as a timeline."""

    bars: list[Bars]
    seconds: float


def timeline(trace: Trace, kinds: Sequence[KindRow]) -> DrawnStep:
    """Returns the step whose time is the median.

    Args:
        kinds: Rows of kinds, of which bars have the indices.
    """
    by_time = sorted(trace.steps, key=lambda step: step[1] - step[0])
    start, end = by_time[len(by_time) // 2]
    index = {row["kind"]: position for position, row in enumerate(kinds)}
    shortest_gap = SHORTEST_GAP * (end - start)
    rows: dict[str, list[Bar]] = {}
    for event in sorted(trace.events, key=lambda event: event.start_s):
        if start <= event.start_s < end:
            bar = (event.start_s - start, event.seconds, index[event_kind(event)])
            _add_bar(rows.setdefault(event.row, []), bar, shortest_gap)
    last = {REDUCTION_ROW: 1, COORDINATION_ROW: 2, INPUT_ROW: 3}
    names = sorted(rows, key=lambda row: (last.get(row, 0), row))
    bars: list[Bars] = [{"row": name, "bars": rows[name]} for name in names]
    return DrawnStep(bars, end - start)


def _add_bar(bars: list[Bar], bar: Bar, shortest_gap: float) -> None:
    """Adds a bar behind others, or lengthens the last one if it is of the same kind and near."""
    start, seconds, kind = bar
    if bars:
        last_start, last_seconds, last_kind = bars[-1]
        gap = start - last_start - last_seconds
        if kind == last_kind and gap <= shortest_gap:
            end = max(last_start + last_seconds, start + seconds)
            bars[-1] = (last_start, end - last_start, kind)
            return
    bars.append(bar)
