"""Commands of `train`, one after another in a process that computes with JAX and cannot import
TensorFlow or Horovod.

Standard input holds the commands as JSON, and whether the first of them writes its report. The
process ends with the code of the first that fails.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def run(
    commands: Sequence[Sequence[object]], cache: Path, devices: int = 1, report: bool = True
) -> subprocess.CompletedProcess[str]:
    """Runs commands; returns what the process printed.

    Args:
        commands: The words of each.
        cache: A folder for what XLA has compiled.
        devices: Number of devices that JAX makes of the processor.
        report: Whether the first job writes its report, which takes longer than the rest.
    """
    environment = os.environ | {
        "KERAS_BACKEND": "jax",
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
    }
    words = []
    for command in commands:
        words.append([str(word) for word in command])
    return subprocess.run(
        [sys.executable, __file__],
        input=json.dumps({"commands": words, "report": report}),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def main() -> int:
    for name in ("tensorflow", "horovod"):
        sys.modules[name] = None  # type: ignore[assignment]
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from train import main as job
    from train.__main__ import main as command

    task = json.load(sys.stdin)
    for index, words in enumerate(task["commands"]):
        if index or not task["report"]:
            job.write_report = lambda run_dir: run_dir
        if code := command(words):
            print(f"{words}: {code}", file=sys.stderr)
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
