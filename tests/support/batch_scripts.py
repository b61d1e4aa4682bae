"""The batch scripts on this machine, with the stand-ins for `jsrun` and `srun` of this folder."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from paths import ROOT


def job_environment(tmp_path: Path, nodes: int, ranks_per_node: int) -> dict[str, str]:
    """The environment of a job that has its files in a folder."""
    inherited = {}
    for key, value in os.environ.items():
        if not key.startswith(("HOROVOD", "SLURM", "LSB")):
            inherited[key] = value
    return inherited | {
        "PATH": os.pathsep.join(
            [str(ROOT / "tests" / "support"), str(Path(sys.executable).parent), os.environ["PATH"]]
        ),
        "PYTHON": sys.executable,
        "NODES": str(nodes),
        "RANKS_PER_NODE": str(ranks_per_node),
        "BB": str(tmp_path / "bb"),
        "RUN": str(tmp_path / "run"),
        "LOG": str(tmp_path / "log"),
    }


def started(
    command: Sequence[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Runs a command in the repository's root, and returns how it ended."""
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False
    )
