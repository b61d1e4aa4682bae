"""Kills a training job at random, starts it again until it ends, and compares it with one that was
left alone.

    python tests/support/kills.py --kills 50 --ranks 2 [--seed 1] [--set training.batch_size=2 ...]

A kill is SIGKILL to all ranks or to one of them, at a random moment or after a random step, or
SIGTERM to one or all. Ranks are forked from this process, which has TensorFlow's modules loaded but
runs nothing itself; otherwise they are what horovodrun starts. The last line is JSON.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tiny
from horovod.runner.http.http_server import RendezvousServer
from local_ranks import gloo_variables, slots
from tiny import CONFIG, lines, numbers, write_config

import train.main
import train.optimization.checkpoint
import train.optimization.loop
from train.__main__ import main as command

SLOW_S = 0.05  # a step of this job takes 10 ms, which leaves no time to hit it
PRECISION = {
    "compute": "mixed_float16",
    "initial_loss_scale": 1e7,
    "growth_steps": 4,
}  # grows and shrinks
CHANGES = {
    "training": CONFIG["training"] | {"precision": PRECISION, "checkpoints": {"every_steps": 3}}
}


def slowly(function: Callable[..., Any]) -> Callable[..., Any]:
    def slow(*arguments: Any, **named: Any) -> Any:
        time.sleep(SLOW_S)
        return function(*arguments, **named)

    return slow


class Job:
    """`ranks` forked processes that are the ranks of one training job; `prepare(rank)` runs first
    in each.
    """

    def __init__(
        self,
        ranks: int,
        arguments: list[str],
        log: Path,
        prepare: Callable[[int], None] = lambda rank: None,
    ) -> None:
        self.pids: dict[int, int] = {}
        self.codes: dict[int, int] = {}
        environments: list[dict[str, str]] = [{}]
        if ranks > 1:
            server = RendezvousServer()
            plan = slots(ranks, ranks)
            port = server.start()
            server.init(plan)
            environments = [gloo_variables(slot, port) for slot in plan]
        for rank, environment in enumerate(environments):
            pid = os.fork()
            if not pid:
                self._be(environment, arguments, log, partial(prepare, rank))
            self.pids[rank] = pid

    @staticmethod
    def _be(
        environment: dict[str, str], arguments: list[str], log: Path, prepare: Callable[[], None]
    ) -> None:
        code = 70
        try:
            with log.open("ab") as out:
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
            os.environ.update(environment)
            # Pictures take longer than all the rest of this job.
            train.main.write_report = lambda run_dir: run_dir
            train.optimization.checkpoint.np.savez = slowly(np.savez)
            train.optimization.loop.learning_rate = slowly(train.optimization.loop.learning_rate)
            prepare()
            code = command(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def alive(self) -> bool:
        """Reaps; once a rank has failed the others have five seconds, as with a launcher."""
        for rank, pid in self.pids.items():
            if rank not in self.codes:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    self.codes[rank] = os.waitstatus_to_exitcode(status)
        return len(self.codes) < len(self.pids)

    def kill(self, signal_number: int, ranks: list[int]) -> None:
        for rank in ranks:
            if rank not in self.codes:
                os.kill(self.pids[rank], signal_number)

    def end(self, patience_s: float) -> dict[int, int]:
        """Waits; ranks that are left `patience_s` after the first has ended are killed, as
        launchers do.
        """
        first_ended = None
        while self.alive():
            first_ended = first_ended or (time.monotonic() if self.codes else None)
            if first_ended and time.monotonic() - first_ended > patience_s:
                self.kill(signal.SIGKILL, list(self.pids))
            time.sleep(0.02)
        return self.codes


def differences(run_dir: Path, undisturbed: Path) -> list[str]:
    """Differences, bit for bit, the evaluation included."""
    samples = []
    for path in (run_dir, undisturbed):
        samples.append(json.loads((path / "evaluation.json").read_text())["samples"])
    return tiny.differences(run_dir, undisturbed) + ["evaluation"] * (samples[0] != samples[1])


def disturb(
    job: Job, run_dir: Path, steps: int, duration_s: float, chance: random.Random
) -> str | None:
    """Waits for a random moment and kills; None where the job had ended before."""
    by_step = chance.random() < 0.75
    until = time.monotonic() + chance.uniform(0, duration_s)
    forgotten = max(
        (int(path.stem[5:]) for path in run_dir.glob("checkpoints/step-*.npz")), default=0
    )
    step = min(steps, forgotten + 1 + int(chance.expovariate(1 / 4)))
    taken_up = len(lines(run_dir)) == forgotten
    while job.alive() and (
        not taken_up or len(lines(run_dir)) < step if by_step else time.monotonic() < until
    ):
        taken_up = taken_up or len(lines(run_dir)) == forgotten
        time.sleep(0.003)
    time.sleep(chance.uniform(0, SLOW_S))
    if not job.alive():
        return None
    sent = chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
    ranks = chance.choice([list(job.pids), [chance.choice(list(job.pids))]])
    job.kill(sent, ranks)
    return f"{sent.name} to rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def harness(kills: int, ranks: int, seed: int, overrides: list[str], place: Path) -> dict:
    chance = random.Random(seed)
    config = write_config(place, **CHANGES)
    line = [str(config), *(f"--set={override}" for override in overrides)]
    undisturbed = place / "undisturbed"
    run_dir = place / "killed"
    started = time.monotonic()
    codes = Job(ranks, [*line, "--run-dir", str(undisturbed)], place / "undisturbed.log").end(30)
    assert set(codes.values()) == {0}, (place / "undisturbed.log").read_text()
    duration_s = time.monotonic() - started
    steps = len(numbers(undisturbed))
    done: list[str] = []
    runs = 0
    equal = 0
    while len(done) < kills or not runs:
        log = place / f"job-{runs}.log"
        for attempt in range(100):
            job = Job(ranks, [*line, "--run-dir", str(run_dir)], log)
            what = disturb(job, run_dir, steps, duration_s, chance) if len(done) < kills else None
            codes = job.end(5)
            if what:
                done.append(what)
                print(
                    f"kill {len(done)}: {what} at step {len(lines(run_dir))}, exit codes {codes}",
                    flush=True,
                )
            elif set(codes.values()) == {0}:
                break
            else:
                raise AssertionError(
                    f"start {attempt} of job {runs} failed by itself: {log.read_text()[-3000:]}"
                )
        differ = differences(run_dir, undisturbed)
        print(f"job {runs} ended: {'; '.join(differ[:5]) or 'equal'}", flush=True)
        runs = runs + 1
        equal = equal + (not differ)
        run_dir.rename(place / f"killed-{runs}")
    return {
        "ranks": ranks,
        "seed": seed,
        "steps": steps,
        "kills": len(done),
        "jobs": runs,
        "equal": equal,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        begun = time.monotonic()
        result = harness(
            options.kills, options.ranks, options.seed, options.overrides, Path(directory)
        )
        result["seconds"] = round(time.monotonic() - begun)
    print(json.dumps(result))
    sys.exit(result["equal"] != result["jobs"])
