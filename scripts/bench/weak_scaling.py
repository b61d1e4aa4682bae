"""Weak scaling on one machine: 1, 2, 4 ranks, a core each, as many samples a rank; and the same samples among them.

    scripts/uv run python scripts/bench/weak_scaling.py [--ranks 1 2 4] [--rounds 5] [--json]

The network and `training.reduction` of a configuration (the quickstart's), on numbers made up. All jobs are alive at
once and take turns, a block of steps each, while the others are stopped. Efficiency is the median over the rounds of
one rank's step time over N ranks'; a step time is the median of a block, of the slowest rank. It says something where
nobody else uses these cores: others slow down N ranks as soon as they slow down one. Then every job trains on the
same samples, divided among its ranks: the losses must agree, but for normalisations, which see the samples of one
rank.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


class Job:
    """N ranks that stand still but for `block`."""

    def __init__(self, out: Path, ranks: int, samples: int, options: argparse.Namespace, cores: list[int]) -> None:
        self.out, self.ranks = out, ranks
        out.mkdir()
        launcher = Path(sys.executable).with_name("horovodrun")
        words = [launcher, "-np", ranks, "--gloo", sys.executable, HERE / "worker_scaling.py"]
        words += [out, options.config, samples, options.steps]
        settings = os.environ | {
            "BENCH_CORES": " ".join(map(str, cores)),
            "PYTHONPATH": str(ROOT),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "HOROVOD_GLOO_TIMEOUT_SECONDS": "3600",  # a rank that is stopped is not lost
        }
        self.log = (out / "log").open("w")
        self.process = subprocess.Popen(
            [str(word) for word in words], env=settings, stdout=self.log, stderr=self.log, start_new_session=True
        )
        self.workers: list[int] = []

    def begin(self) -> None:
        self.workers = self._found()

    def _found(self) -> list[int]:
        while len(found := [pid for pid in _processes() if _argument(pid) == str(self.out)]) < self.ranks:
            self._check()
        self._wait(found)
        return found

    def _wait(self, workers: list[int]) -> None:
        while not all(_stopped(pid) for pid in workers):
            self._check()

    def _check(self) -> None:
        if self.process.poll() is not None:
            raise SystemExit((self.out / "log").read_text())
        time.sleep(0.05)

    def block(self) -> tuple[float, list[float]]:
        """(median step time of the slowest rank in s, the losses)."""
        for pid in self.workers:
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.2)
        self._wait(self.workers)
        last = [json.loads((self.out / f"{n}.jsonl").read_text().splitlines()[-1]) for n in range(self.ranks)]
        return max(statistics.median(each["times"]) for each in last), last[0]["losses"]

    def end(self) -> None:
        """Ends all that it started: the launcher's session, and workers, which have sessions of their own."""
        for pid in [pid for pid in _processes() if _argument(pid) == str(self.out)]:
            os.kill(pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _argument(pid: int) -> str | None:
    """The worker's first argument, if `pid` is a worker (and not the shell or the launcher around it)."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return None
    return words[2] if len(words) > 2 and words[1] == str(HERE / "worker_scaling.py") else None


def _stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except FileNotFoundError:
        return False  # it has ended, and so will its launcher, whose log says why


def main() -> None:
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no stopped process is left behind
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < max(options.ranks):
        raise SystemExit(f"{max(options.ranks)} ranks need as many cores, here are {len(cores)}: give --ranks")
    with tempfile.TemporaryDirectory() as directory:
        weak = rounds(options, Path(directory), {n: n * options.samples for n in options.ranks}, cores, options.rounds)
        most = max(options.ranks)
        same = rounds(options, Path(directory), dict.fromkeys(options.ranks, most * options.samples), cores, 2)
    summary = summarise(weak, same)
    show(summary)
    if options.json:
        print(json.dumps(summary))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=ROOT / "configs/quickstart.yaml")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4], help="1 among them")
    parser.add_argument("--samples", type=int, default=2, help="of a rank and step")
    parser.add_argument("--rounds", type=int, default=5, help="in which each job has its turn")
    parser.add_argument("--steps", type=int, default=10, help="a turn")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    return parser.parse_args()


Blocks = dict[int, list[tuple[float, list[float]]]]


def rounds(
    options: argparse.Namespace, directory: Path, samples: dict[int, int], cores: list[int], number: int
) -> Blocks:
    """By the number of ranks, (step time, losses) of every turn; `samples` are of all ranks together."""
    kind = "-".join(map(str, samples.values()))
    with ExitStack() as stack:
        jobs = {}
        for n, together in samples.items():
            jobs[n] = Job(directory / f"{kind}_{n}", n, together, options, cores)
            stack.callback(jobs[n].end)
            jobs[n].begin()
        turns = [{n: job.block() for n, job in jobs.items()} for _ in range(number)]
    return {n: [turn[n] for turn in turns] for n in jobs}


def summarise(weak: Blocks, same: Blocks) -> dict[str, Any]:
    """`ratio` is the efficiency of most ranks."""
    efficiency = {
        n: statistics.median(one[0] / many[0] for one, many in zip(weak[1], weak[n], strict=True)) for n in weak
    }
    return {
        "ratio": efficiency[max(weak)],
        "efficiency": efficiency,
        "efficiencies": {n: [one[0] / many[0] for one, many in zip(weak[1], weak[n], strict=True)] for n in weak},
        "step_s": {n: statistics.median(turn[0] for turn in weak[n]) for n in weak},
        "loss": {n: [loss for turn in same[n] for loss in turn[1]][-1] for n in same},
        "first_loss": {n: same[n][0][1][0] for n in same},
    }


def show(summary: dict[str, Any]) -> None:
    print(f"{'ranks':>5} {'step':>9} {'efficiency':>11} {'(rounds)':>14} {'same samples: loss':>26}")
    for n, efficiency in summary["efficiency"].items():
        every = summary["efficiencies"][n]
        print(
            f"{n:5} {1e3 * summary['step_s'][n]:6.1f} ms {efficiency:11.3f} {min(every):6.3f} to {max(every):.3f} "
            f"{summary['first_loss'][n]:10.6f} to {summary['loss'][n]:.6f}"
        )


if __name__ == "__main__":
    main()
