"""Runs the parts of the evidence on one GPU in turn, each in a process of its own and bounded in
time.

    scripts/gpu_evidence.sh [--parts tests,engines] [--out FOLDER] [--seconds 520] [--rehearse]

Most important parts come first: those of which docs/benchmarks/gpu.md lacks numbers. A part that
fails or takes too long ends alone; what it does not use is the next ones'. Where not all have the
time that they may take, each leaves to the later ones the least with which they give a result: the
five parts under JAX fit into 250 s. FOLDER gets gpu.json, which is written again after each part,
and gpu.log with all that the parts print. The exit code is 1 if a part failed. --rehearse takes
sizes for a processor, about a hundredth; there, parts that need a device end with "no device",
which is no failure. `gpu_page.py` makes docs/benchmarks/gpu.md of gpu.json.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import frame

ROOT = frame.ROOT
BENCH = "scripts/bench"
TESTS = (
    "tests/namsa/engines",
    "tests/namsa/test_scatter.py",
    "tests/train/optimization/test_gpu_jax.py",
    "tests/train/optimization/test_gpu_steps.py",
)
NVIDIA = ("cupy-cuda13x", "nvidia-cuda-nvrtc", "nvidia-cufft")
PACKAGES = ("numpy", "scipy", "jax", "keras", "pydantic", *NVIDIA)
SLOWER = 6  # than a machine with a card are two processors that other work shares
NO_DEVICE = 2  # exit code of a part that needs a GPU where there is none
# JAX shares the card with CuPy, and compiles nothing twice in a run; {cache} is a temporary folder.
ENVIRONMENT = {
    "KERAS_BACKEND": "jax",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "JAX_COMPILATION_CACHE_DIR": "{cache}",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.3",
}
JOB = ("--json", "--seconds", "{seconds}")
SMALL_VARIATION = (
    "specimen.lateral_angstrom=[9,9]",
    "specimen.thickness_angstrom=[40]",
    "materials.limit=12",
    "variation.thickness_angstrom=[15,40]",
)
SMALL_TRAINING = (
    *SMALL_VARIATION,
    "network.growth=4",
    "network.layers=[1,1,1]",
    "split={train: 0.7, dev: 0.3, test: 0.0, by: formula}",
    "data.source.samples_per_epoch=80",
    "data.source.window=20",
    "data.source.baseline_samples=10",
    "training.validation.samples=4",
)
TINY = (
    "materials.limit=10",
    "specimen.thickness_angstrom=[20]",
    "training.epochs=1",
    "training.validation=null",
)


@dataclass(frozen=True)
class Part:
    """A part of the evidence.

    Attributes:
        name: Its name.
        seconds: The most that it may take.
        least: What it needs for a result.
        command: Python's arguments, with {out} for the folder of the results and {seconds} for the
            time it has. The last line of its output that is a JSON object is its result.
        rehearsal: Further arguments that make it small.
        changes: Changes of its configuration that make it small.
        cases: Whether the result is a list of all such lines.
    """

    name: str
    seconds: int
    least: int
    command: tuple[str, ...]
    rehearsal: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    cases: bool = False


PARTS = (
    Part("machine", 30, 5, (f"{BENCH}/gpu_evidence.py", "--machine")),
    Part(
        "step",
        130,
        70,
        (f"{BENCH}/step_jax.py", "--steps", "8", "--seconds", "{seconds}"),
        ("--image", "16", "--steps", "2"),
        ("network.growth=4", "network.first_filters=4"),
        cases=True,
    ),
    Part(
        "networks",
        80,
        35,
        (f"{BENCH}/networks_jax.py", *JOB),
        ("--side", "24", "--networks", "200kv-20mrad-fast", "--compared"),
    ),
    Part(
        "source",
        60,
        30,
        (f"{BENCH}/simulate_source.py", "--json", "--seconds", "8", "--workers", "0", "1", "3"),
        ("--workers", "1", "--seconds", "3"),
        SMALL_VARIATION,
    ),
    Part(
        "quickstart",
        100,
        45,
        (f"{BENCH}/jobs_jax.py", "quickstart", *JOB),
        changes=TINY,
    ),
    Part(
        "training",
        240,
        60,
        (f"{BENCH}/jobs_jax.py", "reality", *JOB, "--rates", "{out}/gpu.json"),
        changes=SMALL_TRAINING,
    ),
    Part("tests", 150, 40, (f"{BENCH}/gpu_evidence.py", "--tests"), ("--rehearse",)),
    Part("engines", 100, 40, (f"{BENCH}/simulate_gpu.py", "--json", "--repeats", "3")),
)


def main() -> int:
    options = parse()
    if options.machine:
        print(json.dumps(machine()))
        return 0
    if options.tests:
        return tests(options.rehearse)
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    slower = SLOWER if options.rehearse else 1
    end = time.monotonic() + options.seconds * slower
    known = {part.name: part for part in PARTS}
    chosen = [known[name] for name in options.parts]
    results: dict[str, Any] = {"rehearsal": True} if options.rehearse else {}
    log_file = (options.out / "gpu.log").open("w", encoding="utf-8")
    with log_file as log, tempfile.TemporaryDirectory() as cache:
        for index, part in enumerate(chosen):
            words = part.command
            if options.rehearse:
                words = (*words, *part.rehearsal, *frame.override_words(part.changes))
            left = end - time.monotonic()
            seconds = time_of(part, left / slower, chosen[index + 1 :]) * slower
            results[part.name] = run(replace(part, command=words), seconds, log, options.out, cache)
            (options.out / "gpu.json").write_text(
                json.dumps(results, indent=1) + "\n", encoding="utf-8"
            )
    fine = ("well", "no device") if options.rehearse else ("well",)
    code = 0
    for part in chosen:
        result = results[part.name]
        print(f"{part.name:10} {result['ended']:14} {result['seconds']:6.1f} s")
        if result["ended"] not in fine:
            code = 1
    return code


def time_of(part: Part, left: float, later: Sequence[Part]) -> float:
    """Returns the time of a part, s: what the later ones need is left to them, if it is more than
    this one needs.
    """
    return min(part.seconds, left, max(part.least, left - sum(other.least for other in later)))


def parse() -> argparse.Namespace:
    parser = frame.parser(__doc__)
    names = [part.name for part in PARTS]
    parser.add_argument(
        "--parts",
        type=lambda text: text.split(","),
        default=names,
        help=f"in this order: {', '.join(names)}",
    )
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), metavar="FOLDER")
    parser.add_argument("--seconds", type=float, default=520, help="of all parts together")
    parser.add_argument("--rehearse", action="store_true", help="sizes for a processor")
    parser.add_argument("--machine", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--tests", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.parts) - set(names):
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return options


def run(part: Part, seconds: float, log: TextIO, out: Path, cache: str) -> dict[str, Any]:
    """Returns how a part ended, its time and its result; what it prints is shown and added to the
    log.
    """
    if seconds <= 5:
        return {"ended": "not begun", "seconds": 0.0, "result": None}
    _tell(log, f"\n== {part.name}: at most {seconds:.0f} s\n")
    start = time.monotonic()
    answers = []
    given = {"out": str(out), "seconds": f"{max(1.0, seconds - 5):.0f}", "cache": cache}
    process = subprocess.Popen(
        [
            "timeout",
            "--signal=INT",
            "--kill-after=5",
            f"{seconds:.0f}",
            sys.executable,
            *(_filled(word, given) for word in part.command),
        ],
        cwd=ROOT,
        env={name: _filled(value, given) for name, value in ENVIRONMENT.items()} | os.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        _tell(log, line)
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                answers.append(json.loads(line))
    code = process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # what the part may have left running
    took = time.monotonic() - start
    words = {0: "well", NO_DEVICE: "no device"} | dict.fromkeys((124, 137, -9), "out of time")
    ended = words.get(code, f"with exit {code}")
    result = answers if part.cases else answers[-1] if answers else None
    return {"ended": ended, "seconds": round(took, 1), "result": result}


def _filled(word: str, given: dict[str, str]) -> str:
    for name, value in given.items():
        word = word.replace("{" + name + "}", value)
    return word


def _tell(log: TextIO, text: str) -> None:
    print(text, end="", flush=True)
    log.write(text)
    log.flush()


def tests(rehearsal: bool) -> int:
    """Runs the tests that need a GPU. All skipped is a failure, but for a rehearsal."""
    import pytest

    class Count:
        def __init__(self) -> None:
            self.outcomes: Counter[str] = Counter()

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.when == "call" or report.outcome != "passed":
                self.outcomes[report.outcome] += 1

        def pytest_collectreport(self, report: pytest.CollectReport) -> None:
            if report.failed:
                self.outcomes["not collected"] += 1

    count = Count()
    words = ["-n0", "-pno:cacheprovider", "-mgpu", "-rs", "--durations=5", "--timeout=60"]
    code = pytest.main([*words, "--continue-on-collection-errors", *TESTS], plugins=[count])
    print(json.dumps(count.outcomes))
    if code or count.outcomes["passed"]:
        return int(code)
    return NO_DEVICE if rehearsal and count.outcomes["skipped"] else 1


def machine() -> dict[str, Any]:
    """Returns the names and versions of what the evidence was measured with."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    query = [
        "nvidia-smi",
        "--query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit",
        "--format=csv",
    ]
    try:
        gpu = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        gpu = "no nvidia-smi"
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "none"
    return {
        "gpu": gpu.splitlines(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "versions": versions,
    }


if __name__ == "__main__":
    sys.exit(main())
