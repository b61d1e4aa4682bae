"""Starting commands and the scripts beside the tests, which start ranks of their own."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from paths import ROOT

Ended = subprocess.CompletedProcess[str]


def run(*line: object, timeout: float = 240) -> Ended:
    """A command from the repository's root, where the packages are."""
    return subprocess.run([*map(str, line)], cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)


def horovodrun(*command: object, ranks: int = 2, timeout: float = 240, more: Sequence[str] = ()) -> Ended:
    """Python with `command` on every rank; `more` are the launcher's own arguments."""
    launcher = Path(sys.executable).with_name("horovodrun")
    return run(launcher, "-np", ranks, *more, "--gloo", sys.executable, *command, timeout=timeout)


def script(name: str, *arguments: object) -> str:
    """What the script `name` prints; it must end well."""
    ended = run(sys.executable, f"tests/support/{name}", *arguments, timeout=400)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
