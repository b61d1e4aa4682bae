"""The model of divided samples, fitted on two ranks, against four ranks.

    scripts/uv run python scripts/bench/ways.py [--steps 20] [--rounds 3] [--config FILE.yaml] [--json]

One rank trains on whole samples, two and four ranks on their parts. Every rank has the same share of a core: one where
the machine has four, and otherwise cores/4, which a control group of Linux enforces every 2 ms (as root). The model of
`train.scaling.division` is fitted as Oyama et al. do: the computation to one rank, the time and rate of an exchange to
exchanges alone of two ranks, and `kernel_rows` to the step of two ranks. The step of four ranks is predicted.

A step time is the median of the slowest rank's; the lowest of all rounds counts. "ratio" is the predicted over the
measured time of four ranks.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import brentq

from namsa.config.loading import read_yaml, validate
from train.experiment.sections import Training
from train.networks import read_network
from train.scaling.division import Division, divided_step
from train.scaling.model import estimate_step
from train.scaling.strategy import Machine, strategy_of
from train.scaling.workload import workload

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RANKS = 1, 2, 4
PERIOD_US = 2000
LONGEST_KERNEL_ROWS = 1000.0


def main() -> int:
    options = parse()
    cores = len(os.sched_getaffinity(0))
    share = min(cores / max(RANKS), 1.0)
    rounds: list[dict[int, Any]] = []
    with ExitStack() as stack:
        groups = [stack.enter_context(limited(share)) for _ in range(max(RANKS))] if share < 1 else []
        for _ in range(options.rounds):
            rounds.append({ranks: measure(options, ranks, cores, groups[:ranks]) for ranks in RANKS})
    steps = {ranks: min(each[ranks]["step_s"] for each in rounds) for ranks in RANKS}
    exchanges = {size: min(each[2]["exchange_s"][size] for each in rounds) for size in rounds[0][2]["exchange_s"]}
    predicted, machine = predict(options.config, steps, exchanges)
    console = Console(markup=False)
    console.print(f"{share:g} core per rank; {vars_of(machine)}")
    table = Table("ranks", "measured, s", "model, s", "fitted to it", box=None)
    for ranks in RANKS:
        table.add_row(str(ranks), f"{steps[ranks]:.4f}", f"{predicted[ranks]:.4f}", "no" if ranks == 4 else "yes")
    console.print(table)
    ratio = predicted[4] / steps[4]
    console.print(f"ratio {ratio:.3f}")
    if options.json:
        result = {"share": share, "measured_s": steps, "model_s": predicted, "machine": vars_of(machine)}
        print(json.dumps(result | {"exchange_s": exchanges, "rounds": rounds, "ratio": ratio}))
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=HERE / "ways.yaml", help="with sections network and training")
    parser.add_argument("--steps", type=int, default=20, help="of a job")
    parser.add_argument("--rounds", type=int, default=3, help="in which each job runs once")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    return parser.parse_args()


@contextmanager
def limited(share: float) -> Iterator[Path]:
    """A control group whose processes get `share` of a core."""
    parent = Path("/sys/fs/cgroup/cpu")
    quota = {"cpu.cfs_period_us": f"{PERIOD_US}", "cpu.cfs_quota_us": f"{round(share * PERIOD_US)}"}
    if not parent.exists():
        parent, quota = Path("/sys/fs/cgroup"), {"cpu.max": f"{round(share * PERIOD_US)} {PERIOD_US}"}
    try:
        folder = Path(tempfile.mkdtemp(prefix="ways_", dir=parent))
        for name, value in quota.items():
            (folder / name).write_text(value)
    except OSError as error:
        raise SystemExit(f"cannot limit processes to {share:g} core ({error}): run as root, or on four cores") from None
    try:
        yield folder
    finally:
        folder.rmdir()


def measure(options: argparse.Namespace, ranks: int, cores: int, groups: list[Path]) -> dict[str, Any]:
    """Median times of a step, and of an exchange of some bytes to each rank, of the slowest rank, s."""
    with tempfile.TemporaryDirectory() as directory:
        words = [sys.executable, HERE / "workers" / "ways_rank.py", directory, options.config, options.steps, cores]
        if ranks > 1:
            words = [Path(sys.executable).with_name("horovodrun"), "-np", ranks, "--gloo", *words]
        line = [str(word) for word in [*words, *groups]]
        settings = os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
        ended = subprocess.run(line, env=settings, capture_output=True, text=True, timeout=3600, check=False)
        if ended.returncode:
            raise SystemExit(ended.stdout + ended.stderr)
        found = [json.loads(path.read_text()) for path in Path(directory).glob("*.json")]
    return {
        "step_s": max(statistics.median(each["steps"]) for each in found),
        "exchange_s": {
            int(size): max(statistics.median(each["exchanges"][size]) for each in found)
            for size in found[0]["exchanges"]
        },
    }


def predict(config: Path, steps: dict[int, float], exchanges: dict[int, float]) -> tuple[dict[int, float], Machine]:
    """The model's step times, and the machine that is fitted to one and two ranks."""
    tree = read_yaml(config)
    network, training = read_network(tree, str(config)), validate(Training, tree["training"], str(config))
    gradients = workload(network, "float32", 1.0).gradients
    strategy = strategy_of(training, gradients)
    sizes = np.array(list(exchanges))
    per_byte, start_s = np.polyfit(sizes, list(exchanges.values()), 1)
    # An exchange of two ranks: half a cycle, two hops of the agreement and back, and two of the halos.
    hop_s = max((start_s - strategy.cycle_s / 2) / 4, 0.0)
    machine = Machine(
        name="this machine",
        ranks_per_node=max(RANKS),
        within_node_bytes_per_s=1 / max(per_byte, 1e-12),
        hop_between_nodes_s=hop_s,
        hop_within_node_s=hop_s,
        jitter=0.0,
        late_rate=0.0,
    )

    def step_s(ranks: int, kernel_rows: float) -> float:
        changed = machine.model_copy(update={"kernel_rows": kernel_rows})
        part = divided_step(network, "float32", steps[1], changed, strategy, Division(ranks), training.batch_size)
        return estimate_step(changed, part.work, strategy, ranks).seconds

    kernel_rows = 0.0
    if step_s(2, 0.0) < steps[2] < step_s(2, LONGEST_KERNEL_ROWS):
        kernel_rows = float(brentq(lambda rows: step_s(2, rows) - steps[2], 0.0, LONGEST_KERNEL_ROWS))
    fitted = machine.model_copy(update={"kernel_rows": kernel_rows})
    return {ranks: step_s(ranks, kernel_rows) for ranks in RANKS}, fitted


def vars_of(machine: Machine) -> dict[str, float]:
    return {
        "kernel_rows": machine.kernel_rows,
        "hop_s": machine.hop_within_node_s,
        "bytes_per_s": machine.within_node_bytes_per_s,
    }


if __name__ == "__main__":
    raise SystemExit(main())
