"""Processes that the frame of benchmarks waits for and ends."""

import signal
import subprocess
import sys

import frame
import pytest

SLEEPS = "import time; print('begun', flush=True); time.sleep(60)"
IGNORES = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {SLEEPS}"
STOPS = f"""
import signal
signal.signal(signal.SIGINT, lambda *_: exit(7))
{SLEEPS}
"""


def started(code):
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    if code != "exit(3)":
        process.stdout.readline()
    return process


@pytest.mark.parametrize(
    ("code", "patience", "expected"),
    [
        ("exit(3)", 0.0, 3),
        (SLEEPS, 0.0, -signal.SIGKILL),
        (STOPS, 60.0, 7),
        (IGNORES, 1.0, -signal.SIGKILL),
    ],
)
def test_a_process_ends_by_itself_or_is_interrupted_or_killed(code, patience, expected):
    seconds = 60.0 if code == "exit(3)" else 1.0
    with started(code) as process:
        assert frame.ended(process, seconds, patience) == expected


def test_changes_become_words_of_a_command():
    assert frame.override_words(["a=1", "b=2"]) == ["--set", "a=1", "--set", "b=2"]


def test_processes_under_jax_find_the_packages_of_this_tree(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    environment = frame.under_jax(JAX_PLATFORMS="cpu")
    assert environment["KERAS_BACKEND"] == "jax"
    assert environment["PYTHONPATH"] == f"{frame.ROOT}:/elsewhere"
    assert environment["JAX_PLATFORMS"] == "cpu"
