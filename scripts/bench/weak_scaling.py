"""Weak and strong scaling on one machine: 1, 2 and 4 ranks with a core each.

    scripts/uv run python scripts/bench/weak_scaling.py [--ranks 1 2 4] [--rounds 5] [--set KEY=VALUE] [--json]

The network and `training.exchange` are those of a configuration (the quickstart's); the data are random. With weak
scaling, the number of samples per rank is the same. All jobs are alive at once and take turns: each runs a block of
steps while the others are stopped. The efficiency is the median over the rounds of the step time of one rank divided by
that of N ranks. A step time is the median of a block, of the slowest rank. "Machine" is the same for N independent
processes: the part that memory, caches and other users of the cores account for, without any reduction. "Reduction" is
the rest: the step time of N independent processes divided by that of N ranks. Then every job trains on the same
samples, divided among its ranks. The losses must agree, except for normalisations, which see the samples of one rank.
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

    def __init__(
        self, out: Path, ranks: int, samples: int, options: argparse.Namespace, cores: list[int], kind: str = "together"
    ) -> None:
        self.out, self.ranks = out, ranks
        launcher = Path(sys.executable).with_name("horovodrun")
        words = [launcher, "-np", ranks, "--gloo", sys.executable, HERE / "workers" / "scaling_rank.py"]
        words += [out, options.config, samples, options.steps, kind, *options.set]
        settings = os.environ | {
            "BENCH_CORES": " ".join(map(str, cores)),
            "PYTHONPATH": str(ROOT),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "HOROVOD_GLOO_TIMEOUT_SECONDS": "3600",  # a rank that is stopped is not lost
            "HOROVOD_START_TIMEOUT": "600",  # nor is one that waits for its core
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
    return words[2] if len(words) > 2 and words[1] == str(HERE / "workers" / "scaling_rank.py") else None


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
        jobs = {(n, kind): n * options.samples for n in options.ranks for kind in KINDS[: 1 + (n > 1)]}
        weak = rounds(options, Path(directory), jobs, cores, options.rounds)
        most = max(options.ranks)
        jobs = {(n, "together"): most * options.samples for n in options.ranks}
        same = rounds(options, Path(directory), jobs, cores, 2)
    summary = summarise(weak, same)
    show(summary)
    if options.json:
        print(json.dumps(summary))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=ROOT / "configs/quickstart.yaml")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the configuration")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4], help="1 among them, and more")
    parser.add_argument("--samples", type=int, default=2, help="of a rank and step")
    parser.add_argument("--rounds", type=int, default=5, help="in which each job has its turn")
    parser.add_argument("--steps", type=int, default=10, help="a turn")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    return parser.parse_args()


Blocks = dict[tuple[int, str], list[tuple[float, list[float]]]]  # by ranks and kind, every turn's step time and losses
KINDS = "together", "alone"


def rounds(
    options: argparse.Namespace, directory: Path, samples: dict[tuple[int, str], int], cores: list[int], number: int
) -> Blocks:
    """`number` turns of each job; `samples` are of all its ranks together."""
    with ExitStack() as stack:
        jobs = {}
        for (n, kind), together in samples.items():
            out = Path(tempfile.mkdtemp(prefix=f"{kind}_{n}_", dir=directory))
            jobs[n, kind] = job = Job(out, n, together, options, cores, kind)
            stack.callback(job.end)
        for job in jobs.values():
            job.begin()
        turns = [{key: job.block() for key, job in jobs.items()} for _ in range(number)]
    return {key: [turn[key] for turn in turns] for key in jobs}


def summarise(weak: Blocks, same: Blocks) -> dict[str, Any]:
    """`ratio` is the efficiency of most ranks."""

    def ratios(a: tuple[int, str], b: tuple[int, str]) -> list[float]:
        return [one[0] / other[0] for one, other in zip(weak[a], weak[b], strict=True)]

    one, many = (1, "together"), [n for n, kind in weak if kind == "alone"]
    every = {
        "efficiency": {n: ratios(one, (n, "together")) for n in many},
        "machine": {n: ratios(one, (n, "alone")) for n in many},
        "reduction": {n: ratios((n, "alone"), (n, "together")) for n in many},
    }
    found = {name: {n: statistics.median(values) for n, values in by.items()} for name, by in every.items()}
    return {
        "ratio": found["efficiency"][max(many)],
        **found,
        "rounds": every,
        "step_s": {n: statistics.median(turn[0] for turn in weak[n, "together"]) for n in (1, *many)},
        "loss": {n: same[n, "together"][-1][1][-1] for n in (1, *many)},
        "first_loss": {n: same[n, "together"][0][1][0] for n in (1, *many)},
    }


def show(summary: dict[str, Any]) -> None:
    print(f"{'ranks':>5} {'step':>9} {'efficiency':>11} {'(rounds)':>16} {'machine':>8} {'reduction':>10} {'loss':>16}")
    for n, step_s in summary["step_s"].items():
        numbers = f"{'':47}"
        if n in summary["efficiency"]:
            every = summary["rounds"]["efficiency"][n]
            numbers = f"{summary['efficiency'][n]:11.3f}   {min(every):5.3f} to {max(every):5.3f}"
            numbers += f" {summary['machine'][n]:8.3f} {summary['reduction'][n]:10.3f}"
        print(f"{n:5} {1e3 * step_s:6.1f} ms {numbers} {summary['first_loss'][n]:.6f} to {summary['loss'][n]:.6f}")


if __name__ == "__main__":
    main()
