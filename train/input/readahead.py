"""Work done ahead in threads, and memory that NumPy fills and the execution reads without a copy.

The kernel provides fresh memory page by page: filling it was measured at 3.4 GB/s, filling memory that has been used
before at 12.7 GB/s. A batch's memory is therefore used again when its tensors are gone.
"""

import math
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Item = TypeVar("Item")
Result = TypeVar("Result")

_ALIGNMENT = 64  # bytes; TensorFlow's kernels require it and end the process on a shared tensor with less


_Block = tuple[int, npt.NDArray[np.uint8]]  # the address of its first aligned byte, and the array that owns it


class _LentBlock:
    """The base of an array in a block of memory. Returns the block when the array and all its views are gone."""

    def __init__(self, block: _Block, free: list[_Block], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._block, self._free = block, free
        self.__array_interface__ = {"version": 3, "data": (block[0], False), "shape": shape, "typestr": dtype.str}

    def __del__(self) -> None:
        self._free.append(self._block)


class Buffers:
    """Blocks of memory that are used again, by size. Several threads may call it at once."""

    def __init__(self) -> None:
        self._free: defaultdict[int, list[_Block]] = defaultdict(list)

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Returns an uninitialised array. Its memory is used again when its views and tensors are gone."""
        element = np.dtype(dtype)
        size = math.prod(shape) * element.itemsize
        free = self._free[size]
        try:
            block = free.pop()
        except IndexError:
            memory = np.empty(size + _ALIGNMENT, np.uint8)
            block = memory.ctypes.data + -memory.ctypes.data % _ALIGNMENT, memory
        return np.asarray(_LentBlock(block, free, shape, element))


def ahead(
    work: Callable[[Item], Result], items: Sequence[Item], threads: int, waiting: int
) -> Generator[Result, None, None]:
    """Yields work(item) of all `items` in their order, computed ahead in threads.

    An error is raised where its result would have been yielded. Closing the generator waits for work that has started.

    Args:
        work: The function, called in threads.
        items: Its arguments.
        waiting: Most results that are in progress or done beyond the one in use.
    """
    futures: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads, "read-ahead") as executor:
        try:
            for item in items:
                futures.append(executor.submit(work, item))
                if len(futures) == waiting:
                    yield futures.popleft().result()
            while futures:
                yield futures.popleft().result()
        finally:
            executor.shutdown(cancel_futures=True)
