"""Jobs of `namsa-train` under JAX, as a user starts them, with their times and scores.

    python scripts/bench/jobs_jax.py quickstart [--set KEY=VALUE ...] [--json]
    python scripts/bench/jobs_jax.py reality [--seconds 180] [--rates FILE] [--set KEY=VALUE ...]

"quickstart" runs configs/quickstart.yaml from nothing to its report: the simulation of all samples
by `namsa dataset`, then the job. "reality" trains the network of configs/reality.yaml with samples
that are simulated beside it (data.source of kind simulate); its validations are of samples of the
dev split, the first of them after the first epoch. Its split is train and dev alone, so that few
samples are simulated before the training. A job is stopped before --seconds are over, as by Ctrl-C,
and its results are those until then. --rates is a results file of gpu_evidence.py: the fastest row
of its part "source" says who simulates, and how many samples an epoch can have. "ratio" is the SSIM
over that of the mean image, or the last validation's over the first's.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import frame

ROOT = frame.ROOT
SPLIT = "split={train: 0.96, dev: 0.04, test: 0.0, by: prototype}"
# seconds between the signal and the end of the part: a step, a validation or simulation, a
# checkpoint
ENDING = 20.0


def main() -> int:
    parser = frame.parser(__doc__)
    parser.add_argument("job", choices=("quickstart", "reality"))
    parser.add_argument("--seconds", type=float, default=180.0, help="all in all")
    parser.add_argument(
        "--rates",
        type=Path,
        metavar="FILE",
        help="gpu.json, whose part source chooses the simulator",
    )
    frame.add_overrides(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = (quickstart if options.job == "quickstart" else reality)(options, Path(folder))
    for key, value in result.items():
        if not isinstance(value, list):
            print(f"{key}: {value}")
    frame.finish(options, result)
    # 130: the job was stopped, which is no fault of one without an end.
    if result["steps"] and result["code"] in ((0,) if options.job == "quickstart" else (0, 130)):
        return 0
    return 1


def quickstart(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    config = ROOT / "configs/quickstart.yaml"
    run = folder / "run"
    overrides = frame.override_words(options.overrides)
    began = time.perf_counter()
    simulation = Command("namsa", "dataset", config, "--out", folder / "data", *overrides)
    simulation.stop_after(options.seconds / 2, ENDING / 2)
    simulated_s = simulation.seconds()
    if simulation.process.returncode:
        raise SystemExit(
            f"jobs_jax: the simulation ended with exit code {simulation.process.returncode}"
        )
    job = Command(
        "train", config, "--run-dir", run, *overrides, "--set", f"data.directory={folder / 'data'}"
    )
    job.stop_after(began + options.seconds - ENDING / 2 - time.perf_counter(), ENDING / 2)
    steps = rows(run / "metrics.jsonl")
    result = {
        "simulation_s": simulated_s,
        "code": job.process.returncode,
        **of_steps(steps),
    }
    if job.process.returncode:
        return result
    evaluation = json.loads((run / "evaluation.json").read_text())
    facts = evaluation["run"]
    return result | {
        "start_s": facts["seconds"] - result["steps_s"],
        "evaluation_and_report_s": job.seconds() - facts["seconds"],
        "samples": len(evaluation["samples"]),
        "mean": evaluation["mean"],
        "mean_predictor": evaluation["mean_predictor"],
        "ratio": evaluation["mean"]["ssim"] / evaluation["mean_predictor"]["ssim"],
    }


def reality(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    began = time.perf_counter()
    run = folder / "run"
    source = source_of(options.rates, options.seconds)
    changes = [f"data.source={json.dumps(source)}", SPLIT]
    changes += [
        "training.epochs=1000",
        "training.validation.every_epochs=1",
        "training.validation.samples=50",
        "training.inputs.redraw_epochs=1",
        f"training.simulate_seconds={min(40, options.seconds / 6):.0f}",
    ]
    changes += options.overrides
    words = frame.override_words([f"data.directory={folder / 'data'}", *changes])
    job = Command("train", ROOT / "configs/reality.yaml", "--run-dir", run, *words)
    job.stop_after(began + options.seconds - ENDING - time.perf_counter(), ENDING)
    steps = rows(run / "metrics.jsonl")
    validations = rows(run / "validation.jsonl")
    losses = frame.column(steps, "loss")
    tenth = max(1, len(losses) // 10)
    result = {
        "code": job.process.returncode,
        "source": source,
        **of_steps(steps),
        "first_losses": statistics.mean(losses[:tenth]) if losses else None,
        "last_losses": statistics.mean(losses[-tenth:]) if losses else None,
        "simulated": sum(step.get("simulated", 0) for step in steps),
        "waited_for_simulator_s": sum(step.get("simulator_wait_s", 0) for step in steps),
        "validations": validations,
    }
    if len(validations) > 1:
        result["ratio"] = validations[-1]["ssim"] / validations[0]["ssim"]
    return result


def source_of(rates: Path | None, seconds: float) -> dict[str, Any]:
    """Returns data.source: an epoch takes a tenth of the time at the rate of the part "source", if
    that is there.
    """
    source = {"kind": "simulate", "reuse": 4, "memory_gib": 8, "baseline_samples": 20}
    rates_result = None
    if rates and rates.exists():
        rates_result = (json.loads(rates.read_text()).get("source") or {}).get("result")
    drawn = 80  # samples of an epoch; ten of a specimen
    if rates_result:
        best = max(rates_result["rows"], key=lambda row: row["samples_per_s"])
        source["workers"] = best["workers"]
        drawn = 10 * min(64, max(8, round(best["samples_per_s"] * seconds / 100)))
    return source | {"samples_per_epoch": 4 * drawn, "window": min(160, drawn)}


class Command:
    """A module of this tree, as a command that runs beside this process."""

    def __init__(self, module: str, *words: Any) -> None:
        command = [sys.executable, "-m", module, *map(str, words)]
        self.began = time.perf_counter()
        self.ended = 0.0
        environment = {"KERAS_BACKEND": "jax"} | os.environ
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment)

    def seconds(self) -> float:
        return self.ended - self.began

    def stop_after(self, seconds: float, patience: float) -> None:
        """Lets it run for so long, then interrupts it, and kills it if it has not ended well before
        `patience`.
        """
        frame.ended(self.process, seconds, patience - 4)
        self.ended = time.perf_counter()


def rows(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of a file of JSON lines; none if there is no file."""
    if path.exists():
        return frame.json_lines(path.read_text())
    return []


def of_steps(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the number of steps, and medians of their times in milliseconds, without the
    first.
    """
    times = {}
    rate = {}
    if len(steps) > 1:
        for name in ("step", "compute", "data"):
            times[f"{name}_ms"] = 1e3 * statistics.median(frame.column(steps[1:], f"{name}_s"))
        rate["samples_per_s"] = statistics.median(frame.column(steps[1:], "samples_per_s"))
    first_step = {"first_step_s": steps[0]["step_s"]} if steps else {}
    steps_s = sum(step.get("wall_s", step["step_s"]) for step in steps)
    return {"steps": len(steps), "steps_s": steps_s, **first_step, **times, **rate}


if __name__ == "__main__":
    sys.exit(main())
