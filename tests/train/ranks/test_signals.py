import os
import signal

import pytest

from train.ranks.signals import STOPPING, listen


@pytest.fixture(params=STOPPING)
def number(request):
    """A signal with its default action: one that is ignored, as SIGHUP under nohup, stays so."""
    before = signal.signal(request.param, signal.SIG_DFL)
    yield request.param
    signal.signal(request.param, before)


def test_a_signal_interrupts_unless_it_is_deferred(number):
    before = signal.getsignal(number)
    with listen() as request:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        with request.deferred():
            request.signal_name = None
            os.kill(os.getpid(), number)
        assert request.signal_name == number.name
        with pytest.raises(KeyboardInterrupt):
            request.check()
        request.agreed = True
        request.check()
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_interrupts_always():
    with listen() as request, request.deferred():
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_without_a_signal_nothing_is_requested():
    with listen() as request:
        request.check()
        assert request.signal_name is None
