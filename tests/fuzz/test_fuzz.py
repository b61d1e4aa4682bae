"""Forty cases of hostile input, the same in every run. CI runs 2,500 with `run.py`, before the tests."""

import os
import signal
import sys
import time
from pathlib import Path

import launch
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import harness

RUN = Path(__file__).with_name("run.py")
KINDS = (
    "configuration",
    "extreme",
    "override",
    "cif",
    "hdf5-bytes",
    "hdf5-structure",
    "side-files",
    "records",
    "repaired",
    "arguments",
)


@pytest.mark.slow
def test_every_command_ends_well_whatever_it_reads():
    ended = launch.run(sys.executable, RUN, "--cases", 4, timeout=600)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert [line.partition(" in ")[0] for line in ended.stderr.splitlines()] == [f"{kind}: 4 cases" for kind in KINDS]


def test_every_kind_is_tested():
    ended = launch.run(sys.executable, RUN, "--cases", 0)
    assert [line.partition(":")[0] for line in ended.stderr.splitlines()] == list(KINDS)


def test_a_case_is_determined_by_its_number():
    """The same fault at the same place, whichever worker runs it."""
    code = (
        f"import sys; sys.path[:0] = [{str(RUN.parent)!r}]; import run; "
        "run.harness.fault = lambda outcome, seconds: repr((outcome.code, outcome.stderr)); run.main()"
    )
    outputs = []
    for options in (("--cases", 12), ("--cases", 12, "--workers", 2), ("--first", 8, "--cases", 4)):
        ended = launch.run(sys.executable, "-c", code, "--kinds", "override", *options)
        outputs.append([line for line in ended.stdout.splitlines() if line.startswith("override ")])
    assert len(outputs[0]) == 12
    assert outputs[0] == outputs[1]
    assert outputs[0][8:] == outputs[2]


# ---- How commands are judged ----------------------------------------------------------------------------------------


def ends(code, text=""):
    def command():
        sys.stderr.write(text)
        return code

    return command


def raises(error):
    def command():
        raise error

    return command


def allocates():
    return len(bytearray(2**30)) and 0


def ignores_the_end():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(60)


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        (ends(0), None),
        (ends(2, "error: a value\n"), None),
        (ends(1, "warning: odd: warning: odder\nerror: full\n"), None),
        (raises(SystemExit("usage")), None),
        (ends(2), "exit code 2 with 0 lines on stderr"),
        (ends(1, "a\nb\n"), "exit code 1 with 2 lines on stderr"),
        (ends(3, "a\n"), "exit code 3"),
        (ends(2, "x" * 2000), "a line of 2000 characters"),
        (raises(KeyError("x")), "traceback, ending in \"KeyError: 'x'\""),
        (ends(1, "error: unexpected KeyError: 'x'\n"), "traceback, ending in"),
        (ends(1, "error: not enough memory: use less\n"), "needs more memory than it may have"),
        (allocates, "traceback, ending in 'MemoryError'"),
        (lambda: os.kill(os.getpid(), signal.SIGUSR1), "ended by SIGUSR1"),
        (ignores_the_end, "hangs for 0.5 s"),
    ],
)
def test_the_harness_finds_what_is_wrong(command, fault, tmp_path):
    seconds = 0.5 if command is ignores_the_end else 20
    found = harness.fault(harness.run(command, tmp_path, seconds, memory_mib=512), seconds)
    assert (found is None) == (fault is None), found
    assert not fault or found.startswith(fault)
