"""Reads what TensorFlow's profiler and Horovod's timeline have recorded of some steps.

TensorFlow writes an XSpace, a protocol buffer whose Python class its wheels contain. Of its planes,
`/host:CPU` has one line per thread and `/device:GPU:0` one line per stream. Times in a plane count
from the start of the profile, which the plane `Task Environment` has in nanoseconds since 1970;
Horovod's timeline counts from a time that it gives since 1970, too, so that both are put on one
clock.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..measure.kinds import COORDINATION, EXCHANGE, INPUT, REDUCTION
from ..measure.profile_results import COORDINATION_ROW, INPUT_ROW, REDUCTION_ROW

if TYPE_CHECKING:
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

# regions of the main thread that the profile marks
STEP_MARK = "train_step"
INPUT_MARK = "wait_for_input"
_PHASES = {
    "ALLREDUCE": (REDUCTION, REDUCTION_ROW),
    "NEGOTIATE_ALLREDUCE": (COORDINATION, COORDINATION_ROW),
    "ALLTOALL": (EXCHANGE, REDUCTION_ROW),
    "NEGOTIATE_ALLTOALL": (COORDINATION, COORDINATION_ROW),
}
_OPERATION = re.compile(r"[\w.\-/]*:[\w]+")
# They contain other operations, or wait for them.
_CONTAINERS = re.compile(
    r".*:(Stateful|Stateless)?(PartitionedCall|While|If|Case)\w*|.*:(NoOp|Const|_Arg|_Retval)"
)


class Event(NamedTuple):
    """An operation, a kernel, a reduction or a wait for data."""

    # name of the kernel, or `path:Type` of the operation; see `train.profiling.classification`
    name: str
    # `path:Type` of the operation that started a kernel; of reductions and waits the kind; else
    # empty
    category: str
    row: str  # the thread or the stream
    start_s: float  # time since the start of the profile, s
    seconds: float  # duration, s

    @property
    def end_s(self) -> float:
        """Time of the end since the start of the profile, s."""
        return self.start_s + self.seconds


class Trace(NamedTuple):
    """The recording of a profile of some steps."""

    device: str  # "GPU" if kernels of a GPU were recorded, else "CPU"
    began_s: float  # time since 1970 of the start of the profile, s
    steps: list[tuple[float, float]]  # start and end of each step, s
    events: list[Event]  # all else, in no order


def read_trace(folder: Path) -> Trace:
    """Reads the newest profile in the folder of `tf.profiler.experimental.start`. Raises
    FileNotFoundError for none.
    """
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    files = sorted(folder.rglob("*.xplane.pb"))
    if not files:
        raise FileNotFoundError(f"{folder} holds no profile")
    space = xplane_pb2.XSpace()
    space.ParseFromString(files[-1].read_bytes())
    return trace_of(space)


def trace_of(space: "xplane_pb2.XSpace") -> Trace:
    """Returns the events of an `XSpace`. With a GPU they are its kernels, without one TensorFlow's
    operations.
    """
    began_ns = 0
    steps = []
    kernels: list[Event] = []
    operations: list[Event] = []
    waits = []
    for plane in space.planes:
        if plane.name == "Task Environment":
            stats = _stats(plane, plane.stats)
            began_ns = int(stats.get("profile_start_time", 0))
        elif plane.name.startswith("/device:GPU"):
            for line in plane.lines:
                if line.name.startswith("Stream"):
                    kernels += _events(plane, line)
        elif plane.name == "/host:CPU":
            for line in plane.lines:
                for event in _events(plane, line):
                    if event.name == STEP_MARK:
                        steps.append((event.start_s, event.end_s))
                    elif event.name == INPUT_MARK:
                        waits.append(event._replace(category=INPUT, row=INPUT_ROW))
                    elif _OPERATION.fullmatch(event.name) and not _CONTAINERS.fullmatch(event.name):
                        operations.append(event)
    device = "GPU" if kernels else "CPU"
    return Trace(device, began_ns / 1e9, sorted(steps), (kernels or operations) + waits)


def _events(plane: "xplane_pb2.XPlane", line: "xplane_pb2.XLine") -> Iterator[Event]:
    """Yields the events of a thread or a stream."""
    row = re.sub(r"[/#(].*", "", line.display_name or line.name)
    for event in line.events:
        if event.duration_ps:
            start_s = line.timestamp_ns / 1e9 + event.offset_ps / 1e12
            if plane.name.startswith("/device"):
                category = str(_stats(plane, event.stats).get("tf_op", ""))
            else:
                category = ""
            name = plane.event_metadata[event.metadata_id].name
            yield Event(name, category, f"{row} {line.id}", start_s, event.duration_ps / 1e12)


def _stats(
    plane: "xplane_pb2.XPlane", stats: "Iterable[xplane_pb2.XStat]"
) -> Mapping[str, str | int | float]:
    """Returns statistics by name. A text may be a reference to the name of another statistic."""
    statistics = {}
    for stat in stats:
        value = getattr(stat, stat.WhichOneof("value") or "int64_value")
        is_reference = stat.WhichOneof("value") == "ref_value"
        statistics[plane.stat_metadata[stat.metadata_id].name] = (
            plane.stat_metadata[value].name if is_reference else value
        )
    return statistics


def read_horovod_timeline(path: Path, began_s: float) -> list[Event]:
    """Reads the reductions and exchanges in a timeline of Horovod.

    Args:
        path: The file, which Horovod writes on rank 0.
        began_s: Time since 1970 that the events' times count from, s.

    Returns:
        For each tensor, its coordination, until all ranks are ready, and its reduction or exchange.
    """
    text = path.read_text(encoding="utf-8").rstrip().rstrip(",")
    rows = json.loads(text if text.endswith("]") else text + "]")
    zero_s = 0.0
    names = {}
    events = []
    opened: dict[int, list[tuple[str, float]]] = {}
    for row in rows:
        arguments = row.get("args", {})
        tensor = row.get("pid")
        zero_s = arguments.get("start_time_since_epoch_in_micros", zero_s * 1e6) / 1e6
        if "name" in arguments:
            names[tensor] = arguments["name"]
        if row["ph"] == "B":
            opened.setdefault(tensor, []).append((row["name"], row["ts"]))
        elif row["ph"] == "E" and opened.get(tensor):
            phase, start = opened[tensor].pop()
            if phase in _PHASES:
                start_s = zero_s + start / 1e6 - began_s
                name = names.get(tensor, "")
                events.append(Event(name, *_PHASES[phase], start_s, (row["ts"] - start) / 1e6))
    return events
