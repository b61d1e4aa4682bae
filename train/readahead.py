"""Work done ahead in threads, and memory that NumPy fills and TensorFlow reads in place.

Fresh memory comes from the kernel page by page: filling it was measured at 3.4 GB/s, filling memory that has been used
before at 12.7 GB/s. So a batch's memory is used again once its tensors are gone.
"""

import math
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf

Item = TypeVar("Item")
Result = TypeVar("Result")

_ALIGNMENT = 64  # what TensorFlow's kernels ask for; it ends the process on a shared tensor that has less


class Buffers:
    """Blocks of memory by their size. Several threads may take from it at once."""

    def __init__(self) -> None:
        self._free: defaultdict[int, list[npt.NDArray[np.uint8]]] = defaultdict(list)

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An array that is not initialised. Its memory is given out again when this very array is gone.

        So no view of it may outlive it; a tensor of `as_tensor` keeps it.
        """
        size = math.prod(shape) * np.dtype(dtype).itemsize
        free = self._free[size]
        try:
            block = free.pop()
        except IndexError:
            block = np.empty(size + _ALIGNMENT, np.uint8)
        start = -block.ctypes.data % _ALIGNMENT
        array = block[start : start + size].view(dtype).reshape(shape)
        weakref.finalize(array, free.append, block).atexit = False
        return array


def as_tensor(array: npt.NDArray[Any]) -> Any:
    """A host's tensor on the memory of `array`, which must come from `Buffers` and not be written to any more."""
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def ahead(
    work: Callable[[Item], Result], items: Sequence[Item], threads: int, waiting: int
) -> Generator[Result, None, None]:
    """work(item) of all `items` in their order, with at most `waiting` begun or done beyond the one in use.

    An error comes where its result would have. Closing it waits for what has begun.
    """
    pool: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads, "read-ahead") as executor:
        try:
            for item in items:
                pool.append(executor.submit(work, item))
                if len(pool) == waiting:
                    yield pool.popleft().result()
            while pool:
                yield pool.popleft().result()
        finally:
            executor.shutdown(cancel_futures=True)
