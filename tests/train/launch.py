"""Starting the scripts beside the tests, which start ranks of their own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def script(name: str, *arguments: object) -> str:
    """What the script `name` prints, started from the repository's root, where the packages are; it must end well."""
    line = [sys.executable, f"tests/train/{name}", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"}
    ended = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=400, env=environment, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
