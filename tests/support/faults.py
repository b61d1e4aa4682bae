"""Behaviour of two ranks when one of them, or an input, is at fault: OUT/faults.json;
`test_faults.py` starts it.

Each job is {"codes": by rank, "out": what all ranks wrote}.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from kills import CHANGES, Job
from tiny import lines, rows, write_config

from namsa.base.errors import WorkError
from namsa.dataset import drawn, manifest
from train.optimization import checkpoint
from train.optimization.loop import EpochPlan
from train.phases import connect, training


def job(
    out: Path,
    name: str,
    *overrides: str,
    ranks: int = 2,
    run_dir: Path | None = None,
    prepare: Callable[[int], None] = lambda rank: None,
) -> dict[str, Any]:
    run_dir = run_dir or out / name
    log = out / f"{name}.log"
    arguments = [
        str(out / "tiny.yaml"),
        "--run-dir",
        str(run_dir),
        *(f"--set={override}" for override in overrides),
    ]
    codes = Job(ranks, arguments, log, prepare).end(30)
    return {"codes": [codes[rank] for rank in sorted(codes)], "out": log.read_text()}


def other_configuration(rank: int) -> None:
    original = connect.load
    connect.load = lambda path, overrides=(): original(path, [*overrides, f"seed={3 + rank}"])


def other_samples(rank: int) -> None:
    original = manifest.present

    def present(directory: Path, ids: Collection[str]) -> list[Any]:
        entries = original(directory, ids)
        if rank:
            return [replace(entries[0], id=entries[1].id), *entries[1:]]
        return entries

    manifest.present = present


def no_space(rank: int) -> None:
    original = checkpoint.np.savez
    count = [0]

    def savez(file: Any, **arrays: Any) -> None:
        count[0] += 1
        if count[0] == 3:
            file.write(bytes(100))
            raise OSError(28, "No space left on device")
        original(file, **arrays)

    checkpoint.np.savez = savez  # type: ignore[assignment]


def signal_rank_1(rank: int, signal_number: signal.Signals = signal.SIGUSR1) -> None:
    original = training.train_epoch

    def train_epoch(*arguments: Any, **named: Any) -> Iterator[Any]:
        for row in original(*arguments, **named):
            yield row
            if (rank, row["step"]) == (1, 5):
                os.kill(os.getpid(), signal_number)

    training.train_epoch = train_epoch


SIMULATE = (
    "data.source={kind: simulate, samples_per_epoch: 24, reuse: 3, window: 2, workers: 0, "
    "baseline_samples: 2}"
)


def late_on_rank_1(rank: int, run_dir: Path) -> None:
    """Rank 1's last sample of the second epoch is never there, and this rank is asked to stop while
    it waits.
    """
    original = drawn.prepare_samples
    asked = False

    def prepare_samples(
        config: Any, material: Any, entries: Any, on_progress: Callable[[str, int, int], None]
    ) -> Any:
        nonlocal asked
        while "-d7-" in entries[0].id:
            if not asked and len(lines(run_dir)) == 12:
                asked = True
                os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.05)
            on_progress("probes", 0, 1)
        return original(config, material, entries, on_progress)

    drawn.prepare_samples = prepare_samples  # type: ignore[assignment]


def not_finite_on_rank_1(rank: int) -> None:
    original = training.train_epoch

    def train_epoch(step: Any, batches: Iterator[Any], *rest: Any, **named: Any) -> Iterator[Any]:
        poisoned = ((x * float("nan") if rank else x, y) for x, y in batches)
        yield from original(step, poisoned, *rest, **named)

    training.train_epoch = train_epoch


def no_configuration_on_rank_1(rank: int) -> None:
    original = connect.load
    connect.load = lambda path, overrides=(): original(
        path.with_name("none.yaml") if rank else path, overrides
    )


def on_fire_on_rank_1(rank: int) -> None:
    original = training.train_epoch

    def train_epoch(
        step: Any, batches: Iterator[Any], config: Any, plan: EpochPlan, **named: Any
    ) -> Iterator[Any]:
        def burning() -> Iterator[Any]:
            for index, batch in enumerate(batches):
                if (rank, plan.epoch, index) == (1, 1, 2):
                    raise WorkError("the disk is on fire")
                yield batch

        yield from original(step, burning(), config, plan, **named)

    training.train_epoch = train_epoch  # type: ignore[assignment]


def main(out: Path) -> None:
    write_config(out, **CHANGES)
    stopped = out / "stopped"
    outcomes = {
        "stopped": job(out, "stopped", prepare=signal_rank_1),
        "checkpoints": sorted(path.name for path in stopped.glob("checkpoints/*")),
        "steps": len(lines(stopped)),
        "another network": job(out, "another", "network.growth=5", run_dir=stopped),
        "fewer ranks": job(out, "fewer", ranks=1, run_dir=stopped),
        "rows": rows(stopped),
        "no configuration": job(out, "none", prepare=no_configuration_on_rank_1),
        "on fire": job(out, "fire", prepare=on_fire_on_rank_1),
        "other configuration": job(out, "configuration", prepare=other_configuration),
        "other samples": job(out, "samples", prepare=other_samples),
        "killed": job(out, "killed", prepare=lambda rank: signal_rank_1(rank, signal.SIGKILL)),
        "too few": job(out, "few", "training.batch_size=5"),
        "unwritable": job(out, "unwritable", run_dir=Path("/proc/run")),
        "no space": job(out, "space", prepare=no_space),
        "not finite": job(
            out, "nan", "training.precision.compute=float32", prepare=not_finite_on_rank_1
        ),
        "late": job(
            out,
            "late",
            SIMULATE,
            "training.validation.every_epochs=1",
            prepare=lambda rank: late_on_rank_1(rank, out / "late"),
        ),
        "late checkpoints": sorted(path.name for path in out.glob("late/checkpoints/*")),
        "late validations": len((out / "late/validation.jsonl").read_text().splitlines()),
        "left": sorted(path.name for path in out.glob("space/checkpoints/*")),
    }
    (out / "faults.json").write_text(json.dumps(outcomes))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
