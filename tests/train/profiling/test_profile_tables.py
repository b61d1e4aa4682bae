"""Traces and timelines made by hand, summed up: unions of intervals, kinds, clocks of TensorFlow
and of Horovod.
"""

import json

import pytest
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from train.profiling import profile_tables
from train.profiling.trace import Event, Trace, read_horovod_timeline, read_trace, trace_of

CONV = "net/c/convolution:Conv2D"
WEIGHTS = "gradient_tape/net/c/Conv2DBackpropFilter:Conv2DBackpropFilter"


def trace(*events, steps=((0.0, 1.0), (1.0, 3.0)), device="CPU"):
    return Trace(device, 0.0, list(steps), [Event(*event) for event in events])


def plane(space, name, lines):
    """Adds a plane with lines of events (name, start in ns, duration in ns, statistics)."""
    added = space.planes.add(name=name)
    numbers = {}

    def number(table, text):
        if (id(table), text) not in numbers:
            numbers[id(table), text] = len(numbers) + 1
            table[len(numbers)].name = text
        return numbers[id(table), text]

    for index, (line_name, events) in enumerate(lines.items()):
        line = added.lines.add(id=index, name=line_name, timestamp_ns=1000)
        for event_name, start, duration, stats in events:
            event = line.events.add(metadata_id=number(added.event_metadata, event_name))
            event.offset_ps = (start - 1000) * 1000
            event.duration_ps = duration * 1000
            for key, value in stats.items():
                stat = event.stats.add(metadata_id=number(added.stat_metadata, key))
                stat.ref_value = number(added.stat_metadata, value)
    return added


def host(space):
    main = [
        ("train_step", 2000, 9000, {}),
        ("wait_for_input", 2100, 400, {}),
        ("EagerExecute", 2600, 8000, {}),
    ]
    worker = [
        ("ExecutorState::Process", 3000, 7000, {}),
        (CONV, 3000, 2000, {}),
        ("call/call:PartitionedCall", 3000, 6000, {}),
    ]
    plane(space, "/host:CPU", {"python": main, "tf_Compute/12": worker})
    environment = space.planes.add(name="Task Environment")
    environment.stat_metadata[1].name = "profile_start_time"
    environment.stats.add(metadata_id=1).uint64_value = 5_000_000_000
    return space


def test_phases_follow_from_the_scopes_of_the_step():
    rows = profile_tables.phase_rows(
        trace(
            ("forward/" + CONV, "", "a", 0.0, 0.4),
            ("forward/" + CONV, "", "b", 0.2, 0.4),  # at the same time
            (WEIGHTS.replace("tape/", "tape/forward/"), "", "a", 0.6, 0.2),
            ("volta_sgemm", "gradient_tape/forward/net/d/MatMul:MatMul", "stream", 1.0, 0.1),
            ("update/ResourceApplyAdam:ResourceApplyAdam", "", "a", 1.2, 0.3),
            ("synchronise/concat:ConcatV2", "", "a", 2.0, 0.1),
            ("average_1of1", "reduction", "reduction", 2.1, 0.2),
            ("ncclAllReduceKernel", "", "stream", 2.3, 0.1),
            ("global_norm/L2Loss:L2Loss", "", "a", 2.6, 0.1),
            ("wait_for_input", "input", "input", 2.8, 0.1),
        )
    )
    seconds = {row["phase"]: row["seconds"] for row in rows}
    wanted = {
        "input": 0.1,
        "forward": 0.6,
        "backward": 0.3,
        "update": 0.3,
        "synchronisation": 0.4,
        "other": 0.1,
    }
    assert seconds == pytest.approx(
        {phase: both / 2 for phase, both in wanted.items()}
    )  # of two steps
    assert rows[1]["share"] == pytest.approx(0.3 / 1.5)


def test_kinds_are_times_on_a_clock_per_step():
    rows = profile_tables.kind_rows(
        trace(
            (CONV, "", "a", 0.0, 0.4),
            (CONV, "", "b", 0.2, 0.4),  # at the same time
            ("net/r/Relu:Relu", "", "a", 0.4, 0.1),
            (WEIGHTS, "", "a", 1.5, 1.0),
            ("x", "reduction", "reduction", 2.4, 0.2),
            ("wait_for_input", "input", "input", 1.0, 0.1),
            (CONV, "", "a", 7.0, 1.0),  # after the steps
        ),
        forward_flop=6.0,
    )
    kinds = [row["kind"] for row in rows]
    assert kinds == [
        "convolution forward",
        "convolution by weights",
        "pointwise",
        "reduction",
        "input",
        "idle",
    ]
    forward, weights, *_, idle = rows
    assert (forward["calls"], forward["seconds"], forward["operation_s"]) == pytest.approx(
        (1, 0.3, 0.4)
    )
    assert forward["share"] == pytest.approx(0.2)
    assert forward["flop_per_s"] == pytest.approx(20.0)
    assert weights["flop_per_s"] == pytest.approx(12.0)
    assert idle["seconds"] == pytest.approx((3 - 0.6 - 1.1 - 0.1) / 2)


def test_peak_counts_the_time_in_which_any_convolution_runs():
    made = trace(
        (CONV, "", "a", 0.0, 0.4),
        (WEIGHTS, "", "b", 0.3, 0.3),
        ("net/r/Relu:Relu", "", "a", 0.7, 0.1),
    )
    assert profile_tables.convolutions_s(made) == pytest.approx(0.3)


def test_the_timeline_is_the_median_step_with_adjacent_bars_joined():
    made = trace(
        *((CONV, "", "t 1", 1.0 + 0.1 * step, 0.0999) for step in range(5)),
        (WEIGHTS, "", "t 2", 1.7, 0.2),
        ("x", "reduction", "reduction", 1.2, 0.2),
        (CONV, "", "t 1", 0.0, 0.1),
        steps=((0.0, 0.5), (1.0, 2.0), (3.0, 9.0)),
    )
    kinds = profile_tables.kind_rows(made, 1.0)
    bars, seconds = profile_tables.timeline(made, kinds)
    assert seconds == 1.0
    assert [row["row"] for row in bars] == ["t 1", "t 2", "reduction"]
    drawn = []
    for row in bars:
        drawn.append([pytest.approx(bar) for bar in row["bars"]])
    assert drawn == [[(0.0, 0.4999, 0)], [(0.7, 0.2, 1)], [(0.2, 0.2, 2)]]


def test_a_cpus_trace_is_its_operations_without_what_contains_them(tmp_path):
    (tmp_path / "host.xplane.pb").write_bytes(host(xplane_pb2.XSpace()).SerializeToString())
    read = read_trace(tmp_path)
    assert read.device == "CPU"
    assert read.began_s == 5.0
    assert read.steps == [pytest.approx((2e-6, 11e-6))]
    assert sorted((event.name, event.category) for event in read.events) == [
        (CONV, ""),
        ("wait_for_input", "input"),
    ]
    with pytest.raises(FileNotFoundError, match="no profile"):
        read_trace(tmp_path / "empty")


def test_a_gpus_trace_is_its_kernels_with_the_operations_that_started_them():
    space = host(xplane_pb2.XSpace())
    kernel = "volta_scudnn_128x64_relu_interior_nn_v1"
    stream = [(kernel, 4000, 1000, {"tf_op": CONV}), ("MemcpyH2D", 5000, 500, {})]
    derived = [(CONV, 4000, 1000, {})]  # TensorFlow repeats the kernels by operation
    plane(space, "/device:GPU:0", {"Stream #13(Compute)": stream, "TensorFlow Ops": derived})
    read = trace_of(space)
    assert read.device == "GPU"
    kinds = [row["kind"] for row in profile_tables.kind_rows(read, 1.0)]
    assert kinds == ["convolution forward", "memory", "input", "idle"]
    (algorithm,) = profile_tables.algorithm_rows(read)
    assert (algorithm["algorithm"], algorithm["kind"]) == ("implicit GEMM", "convolution forward")
    assert algorithm["calls"] == 1
    assert profile_tables.operation_rows(read)[0]["name"] == kernel


def test_convolutions_hide_a_part_of_the_exchange_of_divided_samples():
    made = trace(
        ("halo", "coordination", "coordination", 0.0, 0.2),
        ("halo", "exchange", "reduction", 0.2, 0.2),
        ("forward/" + CONV, "", "a", 0.1, 0.2),
        ("update/HorovodAlltoall:HorovodAlltoall", "", "a", 0.5, 0.3),  # waits for Horovod's thread
        ("grad", "coordination", "coordination", 0.9, 0.05),
        ("grad", "reduction", "reduction", 0.95, 0.05),
    )
    facts = profile_tables.exchange_facts(made)
    assert facts == pytest.approx({"calls": 0.5, "seconds": 0.2, "hidden_s": 0.1})  # of two steps


@pytest.mark.parametrize("end", ["]", ",\n"])
def test_horovods_timeline_is_put_on_the_clock_of_the_trace(tmp_path, end):
    rows = [
        {
            "name": "process_name",
            "ph": "M",
            "pid": 0,
            "args": {"start_time_since_epoch_in_micros": 7_000_000},
        },
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grad_g0_1of2"}},
        {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 100, "pid": 1},
        {"ph": "X", "name": "1", "ts": 110, "pid": 1, "dur": 0},
        {"ph": "E", "ts": 200, "pid": 1},
        {"ph": "B", "name": "ALLREDUCE", "ts": 250_000, "pid": 1},
        {"ph": "B", "name": "GLOO_ALLREDUCE", "ts": 250_100, "pid": 1},
        {"ph": "E", "ts": 300_000, "pid": 1},
        {"ph": "E", "ts": 350_000, "pid": 1, "args": {"dtype": "float32", "shape": "[3]"}},
        {"name": "process_name", "ph": "M", "pid": 2, "args": {"name": "halo"}},
        {"ph": "B", "name": "ALLTOALL", "ts": 400_000, "pid": 2},
        {"ph": "E", "ts": 500_000, "pid": 2},
    ]
    path = tmp_path / "horovod.json"
    path.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + end)
    coordination, reduction, exchange = read_horovod_timeline(path, began_s=6.5)
    assert (exchange.name, exchange.category, exchange.row) == ("halo", "exchange", "reduction")
    assert (coordination.name, coordination.category) == ("grad_g0_1of2", "coordination")
    assert (coordination.start_s, coordination.seconds) == pytest.approx((0.5001, 0.0001))
    assert (reduction.name, reduction.category) == ("grad_g0_1of2", "reduction")
    assert (reduction.start_s, reduction.seconds) == pytest.approx((0.75, 0.1))
