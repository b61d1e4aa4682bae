"""A signal is acted on at the next safe point of a job, wherever it arrives."""

import os
import signal
import time
import weakref

import h5py
import numpy as np
import pytest

from namsa.base.interrupts import RETRY_S, signals_interrupt
from namsa.io import unfailing_file
from train.ranks import signals

NAMES = ("SIGTERM", "SIGHUP", "SIGINT", "SIGUSR1")


@pytest.fixture(autouse=True)
def hang_up_is_not_ignored():
    """Also where the tests themselves were started by nohup."""
    handler = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, handler)


class Referent:
    """An object that a weak reference refers to."""


def send(name):
    os.kill(os.getpid(), signal.Signals[name])
    for _ in range(1000):  # instructions, between which a handler runs
        pass


def in_weak_reference(name, folder):
    """Sends a signal from the callback of a weak reference."""
    referents = [Referent()]
    reference = weakref.ref(referents[0], lambda _: send(name))
    referents.clear()
    assert reference() is None


def in_finaliser(name, folder):
    """Sends a signal from a finaliser."""

    class Finalised:
        def __del__(self):
            send(name)

    Finalised()


def in_hdf5(name, folder):
    """Sends a signal while HDF5, in C, writes into a Python file."""
    written = unfailing_file.os.write
    sizes = []

    def write(descriptor, view):
        if not sizes:
            send(name)
        sizes.append(len(view))
        return written(descriptor, view)

    with (folder / "a.h5").open("w+b", buffering=0) as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(unfailing_file.os, "write", write)
        with h5py.File(unfailing_file.UnfailingFile(file), "w") as hdf5:
            hdf5["data"] = np.zeros(2**12)
            hdf5.flush()


PLACES = (in_weak_reference, in_finaliser, in_hdf5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", PLACES)
def test_while_a_job_trains_a_signal_is_a_request_and_nothing_else(place, name, tmp_path, capfd):
    with signals.listen() as request:
        with request.deferred():
            place(name, tmp_path)
            time.sleep(2 * RETRY_S)
        assert request.signal_name == name
        request.agreed = True
        request.check()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", PLACES)
def test_before_and_after_training_a_signal_interrupts_a_job_a_moment_later(
    place, name, tmp_path, capfd
):
    interrupted = False
    try:
        with signals.listen() as request:
            place(name, tmp_path)
            time.sleep(5)
    except KeyboardInterrupt:
        interrupted = True
    assert interrupted
    assert request.signal_name == name
    assert capfd.readouterr().err == ""


def test_a_signal_on_which_the_ranks_did_not_agree_interrupts_at_the_end_of_training():
    with signals.listen() as request, request.deferred():
        send("SIGTERM")
        with pytest.raises(KeyboardInterrupt):
            request.check()


def test_a_signal_in_a_callback_at_the_end_of_a_job_interrupts_what_follows(tmp_path):
    job_ended = False
    interrupted = False
    try:
        with signals_interrupt((signal.SIGTERM,)):
            with signals.listen():
                in_weak_reference("SIGTERM", tmp_path)
            job_ended = True
            time.sleep(5)
    except KeyboardInterrupt:
        interrupted = True
    assert (job_ended, interrupted) == (True, True)


def test_handlers_are_as_they_were_after_a_job():
    numbers = (*signals.STOPPING, signal.SIGALRM)
    handlers = [signal.getsignal(signal_number) for signal_number in numbers]
    with signals.listen():
        pass
    assert [signal.getsignal(signal_number) for signal_number in numbers] == handlers
