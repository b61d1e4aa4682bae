"""A signal ends a command wherever it arrives, and is neither swallowed nor made another error."""

import os
import signal
import subprocess
import sys
import time
import weakref

import h5py
import numpy as np
import pytest

from namsa.base.interrupts import is_interrupt, signals_interrupt, uninterrupted
from namsa.io import unfailing_file

SIGNALS = (signal.SIGTERM,)


class Target:
    """Target of a weak reference."""


def send():
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(1000):  # instructions, between which a handler runs
        pass


def interrupted(work):
    """Whether a signal that arrives during some work interrupts it, or what follows."""
    try:
        with signals_interrupt(SIGNALS):
            work()
            time.sleep(5)
    except KeyboardInterrupt:
        return True
    return False


def test_a_signal_in_the_callback_of_a_weak_reference_is_not_swallowed(capfd):
    targets = [Target()]
    reference = weakref.ref(targets[0], lambda _: send())
    assert interrupted(targets.clear)
    assert reference() is None
    assert capfd.readouterr().err == ""


def test_a_signal_in_a_finaliser_waits_for_its_end():
    ended = []

    class Finalised:
        def __del__(self):
            send()
            ended.append(True)

    assert interrupted(Finalised)
    assert ended == [True]


def test_a_function_that_is_marked_runs_to_its_end():
    ended = []

    @uninterrupted
    def commit():
        send()
        ended.append(True)

    assert interrupted(commit)
    assert ended == [True]


def test_a_signal_while_hdf5_writes_is_an_interrupt(tmp_path, monkeypatch):
    written = unfailing_file.os.write

    def write(descriptor, view):
        send()
        return written(descriptor, view)

    def work():
        with (tmp_path / "a.h5").open("w+b", buffering=0) as file:
            target = unfailing_file.UnfailingFile(file)
            with h5py.File(target, "w") as hdf5:
                monkeypatch.setattr(unfailing_file.os, "write", write)
                hdf5["data"] = np.zeros(2**20)
                hdf5.flush()

    assert interrupted(work)


def test_what_c_code_makes_of_an_interrupt_is_one():
    def convert():
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise SystemError("returned a result with an exception set") from error

    with pytest.raises(SystemError) as caught:
        convert()
    assert is_interrupt(caught.value)
    assert not is_interrupt(SystemError())
    assert not is_interrupt(ValueError())


def test_a_command_that_is_interrupted_in_a_callback_ends_with_130(tmp_path):
    code = (
        "import os, signal, sys, time, weakref\n"
        "from namsa.cli.command_line import exit_code\n"
        "class Target: pass\n"
        "def work():\n"
        " target = Target()\n"
        " kept = weakref.ref(target, lambda _: os.kill(os.getpid(), signal.SIGTERM))\n"
        " del target\n"
        " time.sleep(20)\n"
        "sys.exit(exit_code(work))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=15
    )
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
