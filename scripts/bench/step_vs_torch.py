"""A training step against the same step of the same network in PyTorch.

    scripts/uv run python scripts/bench/step_vs_torch.py [--networks quickstart benchmark paper] [--rounds 9] [--json]

Three networks: those of configs/quickstart.yaml and configs/benchmark.yaml, with their batches, and one of the paper's
kind (5×5 kernels, growth 256, 1×1 transitions, normalised transitions) on fewer and smaller maps, with one sample. The
step is that of the training job: forward, Huber and L2, backward, LARS before Adam, float32, one rank, with the loss
and the norm of the gradient on the host. Samples are random and at hand.

PyTorch runs in an environment that uv creates: eager and compiled by Inductor, each in PyTorch's layout and with
channels last, Adam fused, LARS by multi-tensor operations. First, without dropout, all take three steps from the same
weights, and the losses and weights are compared. Then all processes are alive, and take turns of about a second each;
only one runs at a time. Ratios are those within a round; the table has their medians and quartiles.

"ratio" is the smallest of the networks' ratios of PyTorch's best to ours; above 1, ours is faster.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from turns import ask

from fcdensenet.config import NetworkConfig
from namsa.physics.backend import available_cores
from train.experiment.experiment import load
from train.experiment.sections import Training

HERE = Path(__file__).parent
CONFIGS = HERE.parents[1] / "configs"
TORCH = "torch==2.15.0"
OURS = "ours"
RIVALS = "eager", "eager channels_last", "compiled", "compiled channels_last"
TURN_S = 1.0
CHECKED_STEPS = 3
TOLERANCE = 5e-4  # of losses and weights
MOVE_TOLERANCE = 2e-2  # of what the steps change


def main() -> None:
    options = parse()
    results = {}
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in options.networks:
            results[name] = compare(name, options, work)
    show(results)
    if options.json:
        ratio = min(result["ratios"][result["best"]]["median"] for result in results.values())
        print(json.dumps({"networks": results, "torch": TORCH, "threads": options.threads, "ratio": ratio}))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    networks = ("quickstart", "benchmark", "paper")
    parser.add_argument("--networks", nargs="+", default=networks, choices=networks)
    parser.add_argument("--variants", nargs="+", default=RIVALS, choices=RIVALS, help="of PyTorch")
    parser.add_argument("--rounds", type=int, default=9, help="in which each program has its turn")
    parser.add_argument("--threads", type=int, default=available_cores(), help="of each program")
    parser.add_argument("--python", help="an interpreter that has PyTorch, instead of the environment that uv creates")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    return parser.parse_args()


def workload(name: str) -> tuple[NetworkConfig, Training]:
    """A network and how it is trained."""
    if name == "paper":
        network = NetworkConfig(input_shape=(256, 64, 96), layers=(1, 2, 1), transition_up_kernel=1)
        return network, Training.model_validate({"epochs": 1})
    experiment = load(CONFIGS / f"{name}.yaml")
    return experiment.network, experiment.training


def compare(name: str, options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """The times of all programs for one network, after it is found that they compute the same."""
    network, training = workload(name)
    job = {
        "training": training.model_dump(mode="json"),
        "rate": training.optimizer.learning_rate,
        "delta": training.loss.huber_delta,
        "weights": str(work / f"{name}-weights.npz"),
        "batch": str(work / f"{name}-batch.npz"),
        "threads": options.threads,
    }
    torch = [HERE.parent / "uv", "run", "--no-project", "--isolated", "--python", "3.11"]
    torch += ["--with", TORCH, "--with", "numpy", "python"]
    torch = [options.python] if options.python else torch
    with ExitStack() as stack:
        programs = {OURS: start([sys.executable, HERE / "workers" / "own_step.py"], stack)}
        programs |= {
            variant: start([*torch, HERE / "workers" / "torch_step.py"], stack) for variant in options.variants
        }
        exact = network.model_copy(update={"dropout": 0.0})
        differences = check(programs, job | {"network": exact.model_dump(mode="json")}, work)
        for variant, program in programs.items():
            ask(program, {"prepare": job | {"network": network.model_dump(mode="json"), "variant": variant}})
        steps = {}
        for variant, program in programs.items():  # compiles, then tells how many steps are a turn
            ask(program, {"steps": 3})
            steps[variant] = max(3, round(TURN_S / min(ask(program, {"steps": 3})["times"])))
        rounds, cpu = [], []
        for number in range(options.rounds):
            order = list(programs) if number % 2 == 0 else list(programs)[::-1]
            answers = {variant: ask(programs[variant], {"steps": steps[variant]}) for variant in order}
            rounds.append({variant: statistics.median(answers[variant]["times"]) for variant in programs})
            cpu.append({variant: answers[variant]["cpu_s"] for variant in programs})
            said = ", ".join(f"{variant} {1e3 * rounds[-1][variant]:.1f}" for variant in programs)
            print(f"{name}, round {number + 1} of {options.rounds}, ms: {said}", file=sys.stderr)
        memory = {variant: answers[variant]["peak_mib"] for variant in programs}
    ratios = {variant: spread([r[variant] / r[OURS] for r in rounds]) for variant in options.variants}
    return {
        "seconds": {variant: spread([r[variant] for r in rounds]) for variant in programs},
        "ratios": ratios,
        "cpu_seconds": {variant: spread([c[variant] for c in cpu]) for variant in programs},
        "best": min(ratios, key=lambda variant: ratios[variant]["median"]),
        "differences": differences,
        "peak_mib": memory,
    }


def check(programs: dict[str, "subprocess.Popen[str]"], job: dict[str, Any], work: Path) -> dict[str, float]:
    """The relative difference of each rival's losses or weights from ours, the larger; ends if it is above TOLERANCE.

    Rounding flips the sign of values before a ReLU that are next to zero, the more of them the longer the steps are.
    The rate is therefore a tenth of the configuration's.
    """
    losses: dict[str, np.ndarray] = {}
    weights: dict[str, np.ndarray] = {}
    for variant, program in programs.items():
        ask(program, {"prepare": job | {"variant": variant, "rate": 0.1 * job["rate"]}})
        losses[variant] = np.array(ask(program, {"steps": CHECKED_STEPS})["numbers"])
        path = work / "after.npz"
        ask(program, {"save": str(path)})
        weights[variant] = trained_weights(path)
    before = trained_weights(Path(job["weights"]))
    differences = {}
    for variant in [variant for variant in programs if variant != OURS]:
        difference = max(relative(losses[OURS], losses[variant]), relative(weights[OURS], weights[variant]))
        moved = relative(weights[OURS] - before, weights[variant] - before)
        differences[variant] = difference
        if difference > TOLERANCE or moved > MOVE_TOLERANCE:
            raise SystemExit(f"{variant} differs by {difference:.1e}, its move by {moved:.1e}")
    return differences


def trained_weights(path: Path) -> np.ndarray:
    """All trained weights in a file, one vector."""
    with np.load(path) as stored:
        names = sorted(name for name in stored if not name.endswith(("moving_mean", "moving_variance", "state")))
        return np.concatenate([stored[name].ravel() for name in names])


def relative(ours: np.ndarray, rival: np.ndarray) -> float:
    return float(np.linalg.norm(ours - rival) / np.linalg.norm(ours))


def spread(values: list[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"low": low, "median": middle, "high": high}


def start(command: list[Any], stack: ExitStack) -> "subprocess.Popen[str]":
    """A worker that ends with `stack`."""
    environment = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    environment["PYTHONPATH"] = str(HERE.parents[1])
    words = [str(word) for word in command]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    stack.callback(process.communicate)  # it has no more requests to read, and ends
    return process


def show(results: dict[str, Any]) -> None:
    table = Table("network", box=None)
    for column in ("ours, ms", "eager, ms", "best, ms", "PyTorch's best", "ratio to eager", "ratio to best"):
        table.add_column(column, justify="right")
    for name, result in results.items():
        best, seconds = result["best"], result["seconds"]

        def ms(variant: str, seconds: Any = seconds) -> str:
            return text(seconds[variant], 1e3, ".1f") if variant in seconds else ""

        def ratio(variant: str, ratios: Any = result["ratios"]) -> str:
            return text(ratios[variant], 1, ".2f") if variant in ratios else ""

        table.add_row(name, ms(OURS), ms("eager"), ms(best), best, ratio("eager"), ratio(best))
    Console(width=200).print(table)


def text(values: dict[str, float], unit: float, form: str) -> str:
    low, middle, high = (format(unit * values[key], form) for key in ("low", "median", "high"))
    return f"{middle} ({low} to {high})"


if __name__ == "__main__":
    main()
