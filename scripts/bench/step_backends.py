"""Samples per second of a training step by TensorFlow and by JAX, in turn, with and without
dropout.

    python scripts/bench/step_backends.py [configs/quickstart.yaml] [--cores 1 2] [--rounds 10]
        [--steps 10] [--set KEY=VALUE ...] [--json]

Each backend has a process of its own, which takes --steps steps on random patterns per round while
the others wait. The first round compiles, and is not counted. Wall time is right on an idle machine
alone. Processor time per sample is given beside it: that of all threads of the process, which other
programs change less. Numbers are medians over the rounds. "ratio" is the largest of JAX's processor
time per sample over TensorFlow's.
"""

import argparse
import os
import sys
from pathlib import Path
from statistics import median
from typing import Any

import frame

BACKENDS = ("tensorflow", "jax")
DROPOUTS = {"with dropout": [], "without": ["network.dropout=0"]}


def main() -> None:
    parser = frame.parser(__doc__)
    parser.add_argument(
        "config", nargs="?", type=Path, default=frame.ROOT / "configs/quickstart.yaml"
    )
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2], help="of each process")
    parser.add_argument("--rounds", type=int, default=10, help="rounds that are counted")
    parser.add_argument("--steps", type=int, default=10, help="steps of a process per round")
    frame.add_overrides(parser)
    options = parser.parse_args()
    rows = []
    for cores in options.cores:
        if cores > len(os.sched_getaffinity(0)):
            sys.exit(f"step_backends: this process has fewer cores than {cores}: give fewer")
        for name, changes in DROPOUTS.items():
            measured = measure(options, cores, [*options.overrides, *changes])
            rows.append({"cores": cores, "dropout": name, **measured})
    show(rows)
    ratio = max(row["processor_ratio"] for row in rows)
    frame.finish(options, {"config": str(options.config), "rows": rows, "ratio": ratio})


def measure(options: argparse.Namespace, cores: int, overrides: list[str]) -> dict[str, Any]:
    """Returns the numbers of both backends on so many cores."""
    worker = frame.WORKERS / "step_backend.py"
    programs = {}
    rounds: dict[str, list[dict[str, Any]]] = {}
    for backend in BACKENDS:
        rounds[backend] = []
        variables = [f"KERAS_BACKEND={backend}", "JAX_PLATFORMS=cpu", f"PYTHONPATH={frame.ROOT}"]
        command = [sys.executable, worker, options.config, cores, *overrides]
        programs[backend] = frame.start(["env", *variables, *command])
    for round_index in range(options.rounds + 1):
        for backend, program in programs.items():
            answer = frame.ask(program, {"steps": options.steps if round_index else 2})
            if round_index:
                rounds[backend].append(answer)
    result: dict[str, Any] = {}
    for backend, program in programs.items():
        program.communicate()
        answers = rounds[backend]
        samples = options.steps * answers[0]["samples"]
        processor_s = frame.column(answers, "processor_s")
        result[backend] = {
            "samples_per_s": samples / median(frame.column(answers, "wall_s")),
            "processor_s_per_sample": median(processor_s) / samples,
            "least_processor_s_per_sample": min(processor_s) / samples,
        }
    jax = result["jax"]["processor_s_per_sample"]
    tensorflow = result["tensorflow"]["processor_s_per_sample"]
    return result | {"processor_ratio": jax / tensorflow}


def show(rows: list[dict[str, Any]]) -> None:
    table = frame.table(
        "cores", "dropout", "backend", "samples/s", "processor ms per sample", "least", "ratio"
    )
    for row in rows:
        for backend in BACKENDS:
            numbers = row[backend]
            table.add_row(
                str(row["cores"]),
                row["dropout"],
                backend,
                f"{numbers['samples_per_s']:.1f}",
                f"{1e3 * numbers['processor_s_per_sample']:.1f}",
                f"{1e3 * numbers['least_processor_s_per_sample']:.1f}",
                f"{row['processor_ratio']:.2f}" if backend == "jax" else "",
            )
    frame.show(table)


if __name__ == "__main__":
    main()
