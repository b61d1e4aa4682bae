import gc
import threading

import numpy as np
import pytest

from train.execution.tensorflow import host_tensor
from train.input.readahead import Buffers, ahead


def test_a_tensor_is_the_arrays_memory_and_keeps_it():
    buffers = Buffers()
    array = buffers.empty((3, 5), np.float16)
    array[...] = 1.5
    tensor = host_tensor(array)
    array[1, 2] = 7
    assert tensor.numpy()[1, 2] == 7
    del array
    others = [buffers.empty((3, 5), np.float16) for _ in range(4)]
    for other in others:
        other[...] = 0
    assert tensor.numpy()[1, 2] == 7


def test_memory_goes_round_once_its_tensor_is_gone():
    buffers = Buffers()
    first, other = buffers.empty((7, 11), np.float32), buffers.empty((7, 11), np.float32)
    address, taken = first.ctypes.data, other.ctypes.data
    assert address != taken
    assert address % 64 == taken % 64 == 0
    tensor = host_tensor(first)
    del first
    assert buffers.empty((7, 11), np.float32).ctypes.data != address
    del tensor
    gc.collect()
    again = [buffers.empty((11, 7), np.float32) for _ in range(2)]
    assert address in [array.ctypes.data for array in again]
    assert taken not in [array.ctypes.data for array in again]


@pytest.mark.parametrize("threads", [1, 3])
def test_results_come_in_order_and_no_more_is_begun_than_may_wait(threads):
    begun, taken = [], []

    def work(item):
        begun.append(item)
        assert item < len(taken) + 1 + 4
        return -item

    for result in ahead(work, range(20), threads, waiting=4):
        taken.append(result)
    assert taken == [-item for item in range(20)]
    assert sorted(begun) == list(range(20))


def test_an_error_comes_in_its_turn():
    def work(item):
        if item == 2:
            raise OSError("unreadable")
        return item

    results = ahead(work, range(9), 2, 3)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(OSError, match="unreadable"):
        next(results)


def test_closing_leaves_no_thread_at_work():
    begun, go_on = [], threading.Event()

    def work(item):
        begun.append(item)
        assert go_on.wait(10)
        return item

    results = ahead(work, range(100), 2, 8)
    threading.Timer(0.1, go_on.set).start()
    next(results)
    results.close()
    done = len(begun)
    assert done <= 9
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("read-ahead")]
