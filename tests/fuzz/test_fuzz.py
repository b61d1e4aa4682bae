"""The fuzzer finds every fault, and a case is determined by its number. CI runs thousands with
`run.py`.
"""

import os
import sys
from pathlib import Path

import launch
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import harness

RUN = Path(__file__).with_name("run.py")

# A kind of which some cases have a fault of one sort each; the others end well.
PLANTED = f"""
import sys; sys.path[:0] = [{str(RUN.parent)!r}]
import os, signal, time, run

def planted(words):
    match int(words[0]):
        case 5: return [][0]
        case 9: time.sleep(60)
        case 11: return len(bytearray(2**32))
        case 14: os.kill(os.getpid(), 11)
        case 17: open("../../evil", "w").close()
        case 18: open(".half", "w").close()
        case 20: print("one", "two", sep=chr(10), file=sys.stderr); return 1
        case 21: os.environ["LEFT"] = "1"; os.chdir("/"); signal.signal(signal.SIGTERM, signal.SIG_IGN)
        case 22:
            left = "LEFT" in os.environ, os.getcwd() == "/", signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
            if any(left): open(os.path.join(os.environ["TMPDIR"], "left"), "w").close()
    return 0

def kinds(folder, own=run.kinds):
    list(own(folder))
    yield run.Kind("planted", lambda rng, folder: ("planted", [folder.name[8:]]), ("planted",), 0.5)

run.kinds, run.main_function, run.warm_up = kinds, lambda program: planted, lambda folder: None
sys.exit(run.main())
"""  # noqa: E501


@pytest.mark.slow
def test_a_case_is_determined_by_its_number():
    """The same line at the same place, whichever worker runs it, alone or after others."""
    code = (
        f"import sys; sys.path[:0] = [{str(RUN.parent)!r}]; import run; run.harness.fault = lambda "
        "outcome, seconds: repr((outcome.code, outcome.stderr)); run.main()"
    )
    outputs = []
    for options in (("--cases", 12, "--workers", 2), ("--first", 8, "--cases", 4)):
        ended = launch.run(launch.forked_python(), "-c", code, "--kinds", "overrides", *options)
        outputs.append(
            [line for line in ended.stdout.splitlines() if line.startswith("overrides ")]
        )
    assert len(outputs[0]) == 12
    assert outputs[0][8:] == outputs[1]


@pytest.mark.slow
def test_every_fault_is_found_with_its_number():
    ended = launch.run(launch.forked_python(), "-c", PLANTED, "--cases", 30)
    lines = []
    for line in ended.stdout.splitlines():
        if line.startswith("planted "):
            lines.append(line)
    assert [line.partition(": ")[::2] for line in lines] == [
        ("planted 5", "traceback, ending in 'IndexError: list index out of range'"),
        ("planted 9", "hangs for 0.5 s"),
        ("planted 11", "traceback, ending in 'MemoryError'"),
        ("planted 14", "ended by SIGSEGV"),
        ("planted 17", lines[4].partition(": ")[2]),
        ("planted 18", "leaves .half"),
        ("planted 20", "exit code 1 with 2 lines on stderr: 'one | two'"),
    ]
    assert lines[4].startswith("planted 17: writes outside of its folder: [")
    assert not Path(
        os.environ["TMPDIR"], "left"
    ).exists()  # a command finds nothing of the one before
    assert ended.returncode == 1


# ---- How commands are judged


def ends(code, text=""):
    def command():
        sys.stderr.write(text)
        return code

    return command


def raises(error):
    def command():
        raise error

    return command


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        (ends(0), None),
        (ends(2, "error: a value\n"), None),
        (ends(1, "warning: odd: warning: odder\nerror: full\n"), None),
        (raises(SystemExit("usage")), None),
        (ends(2), "exit code 2 with 0 lines on stderr"),
        (ends(3, "a\n"), "exit code 3"),
        (ends(2, "x" * 2000), "a line of 2000 characters"),
        (ends(1, "error: unexpected KeyError: 'x'\n"), "traceback, ending in"),
        (ends(1, "error: not enough memory: use less\n"), "needs more memory than it may have"),
    ],
)
def test_the_harness_finds_what_is_wrong(command, fault, tmp_path):
    """What else it finds is planted above."""
    with harness.Runner(lambda _: command()) as runner:
        message = harness.fault(runner.run(None, tmp_path, 20))
    assert (message is None) == (fault is None), message
    assert not fault or message.startswith(fault)
