"""Runs the parts of the evidence on one GPU in turn, each in a process of its own and bounded in time.

    scripts/gpu_evidence.sh [--parts tests,engines] [--out FOLDER] [--seconds 520]

Most important parts come first. A part that fails or takes too long ends alone. FOLDER gets gpu.json, which is written
again after each part, and gpu.log with all that the parts print. The exit code is 1 if a part failed.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).parents[2]
BENCH = "scripts/bench"
PYTEST = ("-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-m", "gpu", "-rs", "--durations=5", "--timeout=60")


@dataclass(frozen=True)
class Part:
    """A part of the evidence.

    Attributes:
        name: Its name.
        seconds: The most that it may take.
        command: Python's arguments. The last line of its output that is a JSON object is its result.
    """

    name: str
    seconds: int
    command: tuple[str, ...]


PARTS = (
    Part("machine", 30, (f"{BENCH}/gpu_evidence.py", "--machine")),
    Part("tests", 120, (*PYTEST, "tests/namsa/engines", "tests/namsa/test_scatter.py")),
    Part("engines", 150, (f"{BENCH}/simulate_gpu.py", "--json", "--repeats", "3")),
)


def main() -> int:
    options = parse()
    if options.machine:
        print(json.dumps(machine()))
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + options.seconds
    results: dict[str, Any] = {}
    with (options.out / "gpu.log").open("w", encoding="utf-8") as log:
        for part in PARTS:
            if part.name in options.parts:
                results[part.name] = run(part, min(part.seconds, end - time.monotonic()), log)
                (options.out / "gpu.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    for name, result in results.items():
        print(f"{name:10} {result['ended']:14} {result['seconds']:6.1f} s")
    return int(any(result["ended"] != "well" for result in results.values()))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [part.name for part in PARTS]
    parser.add_argument("--parts", type=lambda text: text.split(","), default=names, help=", ".join(names))
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), metavar="FOLDER")
    parser.add_argument("--seconds", type=float, default=520, help="of all parts together")
    parser.add_argument("--machine", action="store_true", help="only describe the machine")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(names):
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return options


def run(part: Part, seconds: float, log: TextIO) -> dict[str, Any]:
    """Returns how a part ended, its time and its result; what it prints is shown and added to the log."""
    if seconds <= 5:
        return {"ended": "not begun", "seconds": 0.0, "result": None}
    _tell(log, f"\n== {part.name}: at most {seconds:.0f} s\n")
    start, result = time.monotonic(), None
    process = subprocess.Popen(
        ["timeout", "--signal=INT", "--kill-after=5", f"{seconds:.0f}", sys.executable, *part.command],
        cwd=ROOT,
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
            try:
                result = json.loads(line)
            except ValueError:
                continue
    code = process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # what the part may have left running
    took = time.monotonic() - start
    ended = "well" if code == 0 else "out of time" if code in (124, 137) else f"with exit {code}"
    return {"ended": ended, "seconds": round(took, 1), "result": result}


def _tell(log: TextIO, text: str) -> None:
    print(text, end="", flush=True)
    log.write(text)
    log.flush()


def machine() -> dict[str, Any]:
    """Returns the names and versions of what the evidence was measured with."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit", "--format=csv"]
    try:
        gpu = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        gpu = "no nvidia-smi"
    versions = {}
    for name in ("numpy", "scipy", "cupy-cuda13x", "jax", "keras", "nvidia-cuda-nvrtc", "nvidia-cufft", "pydantic"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "none"
    from namsa.engines import fused
    from namsa.version import __version__

    return {
        "gpu": gpu.splitlines(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "namsa": __version__,
        "versions": versions,
        "vector_bytes": fused.vector_bytes(),
    }


if __name__ == "__main__":
    sys.exit(main())
