import os
import signal

import pytest

from train.ranks.signals import STOPPING, listening


@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_interrupts_or_waits_to_be_heeded(number):
    before = signal.getsignal(number)
    with listening() as wish:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        with wish.heeded():
            wish.name = None
            os.kill(os.getpid(), number)
        assert wish.name == number.name
        with pytest.raises(KeyboardInterrupt):
            wish.check()
        wish.agreed = True
        wish.check()
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_is_impatient():
    with listening() as wish, wish.heeded():
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_no_signal_is_no_wish():
    with listening() as wish:
        wish.check()
        assert wish.name is None
