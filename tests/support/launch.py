"""Starts commands, launchers and the scripts beside the tests."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from paths import ROOT, SUPPORT

Ended = subprocess.CompletedProcess[str]
HOROVODRUN = Path(sys.executable).with_name("horovodrun")  # a script of Python


@cache
def forked_python(*imports: str) -> str:
    """Returns what stands in for `python` and need not import TensorFlow; see `fork_server`,
    started here once.

    imports: Modules that the server imports instead. One process has one server.

    What a test asserts about the start of Python or TensorFlow needs `sys.executable` instead.
    """
    folder = Path(tempfile.mkdtemp(prefix="fork_server"))
    path = folder / "socket"
    command = folder / "python"
    # The python3 of PATH may be a script that changes PATH, as pyenv's.
    command.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -S "{SUPPORT / "forked_python"}" "$@"\n'
    )
    command.chmod(0o755)
    line = [sys.executable, str(SUPPORT / "fork_server.py"), str(path), *imports]
    pipe = subprocess.PIPE
    quiet = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}  # whatever the test that comes first has set
    server = subprocess.Popen(
        line, cwd=ROOT, stdin=pipe, stdout=pipe, env=quiet, start_new_session=True
    )
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    _servers.append(server)
    os.environ["FORK_SERVER"] = str(path)
    return str(command)


_servers: list[
    subprocess.Popen[bytes]
] = []  # each ends when its standard input is closed, with this process


def run(*command: object, timeout: float = 240) -> Ended:
    """Runs a command in the repository's root, where the packages are."""
    line = [*map(str, command)]
    return subprocess.run(
        line, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False
    )


def horovodrun(
    *command: object,
    ranks: int = 2,
    timeout: float = 240,
    more: Sequence[str] = (),
    python: str | None = None,
) -> Ended:
    """Runs `python` with `command` on every rank; `more` are the launcher's own arguments.

    The launcher imports TensorFlow to know whether Horovod has Gloo, so it is forked, too.
    """
    line = [
        forked_python(),
        HOROVODRUN,
        "-np",
        ranks,
        *more,
        "--gloo",
        python or forked_python(),
        *command,
    ]
    return run(*line, timeout=timeout)


def job(*words: object, ranks: int = 2, timeout: float = 240) -> Ended:
    """Runs a job without its report on every rank, which must end well."""
    ended = horovodrun(SUPPORT / "job_without_report.py", *words, ranks=ranks, timeout=timeout)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended


def on_ranks(name: str, out: Path, *arguments: object, ranks: int = 2) -> tuple[list[Any], str]:
    """Runs a test or a script of this folder on every rank; returns what each wrote, OUT/RANK.json,
    and the output.
    """
    ended = horovodrun(SUPPORT / name, out, *arguments, ranks=ranks)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(ranks)], ended.stdout


def script(name: str, *arguments: object) -> str:
    """Runs a test or a script of this folder, which must end well. Returns what it prints."""
    ended = run(forked_python(), SUPPORT / name, *arguments, timeout=400)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
