"""One rank of the jobs of `local_sgd.py`, one after the other in the same process.

    horovodrun -np 2 python scripts/bench/workers/local_sgd_rank.py OUT CONFIG VARIANTS PROFILED COMMON...

VARIANTS is a JSON object of overrides by name, COMMON are overrides of all. The job of a variant is that of `python -m
train` up to its evaluation, in the run directory OUT/NAME. Then so many steps of each are PROFILED (0: none) into
OUT/NAME/profile.json.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"  # for the profile

import train.main
from train.experiment.experiment import load
from train.profiling.profile import profile
from train.ranks import reduction


class Trained(Exception):
    """Ends a job before its evaluation."""


def main(out: Path, config: Path, variants: dict[str, list[str]], profiled: int, common: list[str]) -> None:
    """Trains every variant, then profiles every variant."""

    def end(*_: Any) -> None:
        raise Trained

    train.main.evaluate = end  # type: ignore[assignment]
    for name, overrides in variants.items():
        try:
            train.main.train(config, [*common, *overrides], run_dir=out / name)
        except Trained:
            continue
    for name, overrides in variants.items() if profiled else ():
        result = profile(load(config, [*common, *overrides]), profiled, "")
        if reduction.rank() == 0:
            (out / name / "profile.json").write_text(json.dumps(result))
    reduction.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
