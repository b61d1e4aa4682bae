"""Sums up a trace: time by kind of operation, algorithms of the convolutions, and one step as a timeline.

The time of a kind is that in which at least one of its operations runs, as on a clock: with one stream on a GPU it is
the sum of the kernels' durations. Operations of several threads that run at the same time count once.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from .kinds import (
    CONVOLUTIONS,
    COORDINATION,
    EXCHANGE,
    IDLE,
    INPUT,
    KINDS,
    PHASES,
    REDUCTION,
    algorithm_of,
    kind_of,
    phase_of,
    uses_tensor_cores,
)
from .profile_results import AlgorithmRow, Bars, ExchangeFacts, KindRow, OperationRow, PhaseRow
from .trace import COORDINATION_ROW, INPUT_ROW, REDUCTION_ROW, Event, Trace

LONGEST_OPERATIONS = 15
WAITS = (REDUCTION, EXCHANGE, COORDINATION, INPUT)  # kinds that do not follow from names
SHORTEST_GAP = 1 / 2000  # of a step: a shorter one between bars of one kind is not drawn


def event_kind(event: Event) -> str:
    """Returns the kind of an event."""
    return event.category if event.category in WAITS else kind_of(event.name, event.category)


def in_steps(trace: Trace) -> list[Event]:
    """Returns the events that begin within one of the steps."""
    starts = np.array([start for start, _ in trace.steps])
    ends = np.array([end for _, end in trace.steps])
    index = np.searchsorted(starts, [event.start_s for event in trace.events], side="right") - 1
    return [event for event, step in zip(trace.events, index, strict=True) if step >= 0 and event.start_s < ends[step]]


def busy_seconds(intervals: Iterable[tuple[float, float]]) -> float:
    """Returns the length of the union of intervals (start, end)."""
    ordered = np.array(sorted(intervals), np.float64).reshape(-1, 2)
    if not len(ordered):
        return 0.0
    reached = np.maximum.accumulate(ordered[:, 1])
    before = np.concatenate([[-np.inf], reached[:-1]])
    return float(np.sum(np.maximum(0.0, reached - np.maximum(ordered[:, 0], before))))


def kind_rows(trace: Trace, forward_flop: float) -> list[KindRow]:
    """Returns time by kind per step, with idle last.

    Args:
        forward_flop: FLOP of the convolutions' forward pass, and as many again by input and by weights: as in the
            paper, the first layer's gradient by input counts, although it is not computed.
    """
    events, steps = in_steps(trace), len(trace.steps)
    step_s = sum(end - start for start, end in trace.steps) / steps
    members: dict[str, list[Event]] = {kind: [] for kind in KINDS}
    for event in events:
        members[event_kind(event)].append(event)
    rows: list[KindRow] = []
    for kind, group in members.items():
        if group:
            seconds = busy_seconds((event.start_s, event.end_s) for event in group) / steps
            row: KindRow = {
                "kind": kind,
                "calls": len(group) / steps,
                "seconds": seconds,
                "share": seconds / step_s,
                "operation_s": sum(event.seconds for event in group) / steps,
            }
            if kind in CONVOLUTIONS:
                row["flop_per_s"] = forward_flop / seconds
            rows.append(row)
    idle_s = max(0.0, step_s - busy_seconds((event.start_s, event.end_s) for event in events) / steps)
    idle: KindRow = {"kind": IDLE, "calls": 0, "seconds": idle_s, "share": idle_s / step_s, "operation_s": 0}
    return [*rows, idle]


def phase_rows(trace: Trace) -> list[PhaseRow]:
    """Returns time by phase per step, of the phases that occur."""
    steps = len(trace.steps)
    step_s = sum(end - start for start, end in trace.steps) / steps
    intervals: dict[str, list[tuple[float, float]]] = {phase: [] for phase in PHASES}
    for event in in_steps(trace):
        intervals[phase_of(event.name, event.category)].append((event.start_s, event.end_s))
    times = {phase: busy_seconds(each) / steps for phase, each in intervals.items() if each}
    return [{"phase": phase, "seconds": seconds, "share": seconds / step_s} for phase, seconds in times.items()]


def convolutions_s(trace: Trace) -> float:
    """Returns the time in which at least one convolution runs, t_comp of the paper, mean per step, s."""
    busy = busy_seconds((each.start_s, each.end_s) for each in in_steps(trace) if event_kind(each) in CONVOLUTIONS)
    return busy / len(trace.steps)


def exchange_facts(trace: Trace) -> ExchangeFacts:
    """Returns how long divided samples exchange their borders, and how much of it convolutions hide.

    Times are means per step. An exchange begins with the request of the rank. Operations that wait for the thread of
    Horovod, whose own times are in its timeline, do not count.
    """
    exchanged = {event.name for event in trace.events if event.category == EXCHANGE}
    events = in_steps(trace)
    intervals = [
        (event.start_s, event.end_s)
        for event in events
        if event.category in (EXCHANGE, COORDINATION) and event.name in exchanged
    ]
    computed = [(event.start_s, event.end_s) for event in events if event_kind(event) in CONVOLUTIONS]
    both = busy_seconds(intervals) + busy_seconds(computed) - busy_seconds([*intervals, *computed])
    calls = sum(event.category == EXCHANGE for event in events)
    steps = len(trace.steps)
    return {"calls": calls / steps, "seconds": busy_seconds(intervals) / steps, "hidden_s": both / steps}


def algorithm_rows(trace: Trace) -> list[AlgorithmRow]:
    """Returns the algorithms of the convolutions' kernels per step; none if their names do not tell."""
    groups: dict[tuple[str, str, bool], list[float]] = {}
    for event in in_steps(trace):
        kind, algorithm = event_kind(event), algorithm_of(event.name)
        if trace.device == "GPU" and kind in CONVOLUTIONS:
            key = (algorithm or "unknown", kind, uses_tensor_cores(event.name))
            groups.setdefault(key, []).append(event.seconds)
    steps = len(trace.steps)
    rows: list[AlgorithmRow] = [
        {
            "algorithm": algorithm,
            "kind": kind,
            "calls": len(times) / steps,
            "operation_s": sum(times) / steps,
            "tensor_cores": tensor_cores,
        }
        for (algorithm, kind, tensor_cores), times in groups.items()
    ]
    return sorted(rows, key=lambda row: -row["operation_s"])


def operation_rows(trace: Trace) -> list[OperationRow]:
    """Returns the operations that take the most time per step, the longest first."""
    groups: dict[tuple[str, str], list[float]] = {}
    for event in in_steps(trace):
        if event.category not in WAITS:
            groups.setdefault((event.name, event_kind(event)), []).append(event.seconds)
    steps = len(trace.steps)
    rows: list[OperationRow] = [
        {"name": name, "kind": kind, "calls": len(times) / steps, "operation_s": sum(times) / steps}
        for (name, kind), times in groups.items()
    ]
    return sorted(rows, key=lambda row: -row["operation_s"])[:LONGEST_OPERATIONS]


def timeline(trace: Trace, kinds: Sequence[KindRow]) -> tuple[list[Bars], float]:
    """Returns the bars of the step whose time is the median, with indices into the rows of kinds, and its time, s."""
    start, end = sorted(trace.steps, key=lambda step: step[1] - step[0])[len(trace.steps) // 2]
    index = {row["kind"]: number for number, row in enumerate(kinds)}
    rows: dict[str, list[tuple[float, float, int]]] = {}
    for event in sorted(trace.events, key=lambda event: event.start_s):
        if start <= event.start_s < end:
            bar = (event.start_s - start, event.seconds, index[event_kind(event)])
            bars = rows.setdefault(event.row, [])
            before, seconds, kind = bars[-1] if bars else (0.0, 0.0, -1)
            if kind == bar[2] and bar[0] - before - seconds <= SHORTEST_GAP * (end - start):
                bars[-1] = before, max(before + seconds, bar[0] + bar[1]) - before, kind
            else:
                bars.append(bar)
    last = {REDUCTION_ROW: 1, COORDINATION_ROW: 2, INPUT_ROW: 3}
    names = sorted(rows, key=lambda row: (last.get(row, 0), row))
    return [{"row": name, "bars": rows[name]} for name in names], end - start
