"""Work done ahead in threads, and memory that NumPy fills and the execution reads without a copy.

The kernel provides fresh memory page by page: filling it was measured at 3.4 GB/s, filling memory
that has been used before at 12.7 GB/s. A batch's memory is therefore used again when its tensors
are gone.
"""

import math
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array
from namsa.physics.backend import available_cores

from ..experiment.experiment import Experiment

Item = TypeVar("Item")
Result = TypeVar("Result")

# bytes; TensorFlow's kernels require it and end the process on a shared tensor with less
_ALIGNMENT = 64


# the address of its first aligned byte, and the array that owns it
_Block = tuple[int, npt.NDArray[np.uint8]]


class _ReusableBlock:
    """The base of an array in a block of memory. Returns the block when the array and all its views
    are gone.
    """

    def __init__(
        self, block: _Block, free: list[_Block], shape: tuple[int, ...], dtype: np.dtype[np.generic]
    ) -> None:
        self._block = block
        self._free = free
        self.__array_interface__ = {
            "version": 3,
            "data": (block[0], False),
            "shape": shape,
            "typestr": dtype.str,
        }

    def __del__(self) -> None:
        self._free.append(self._block)


class Buffers:
    """Blocks of memory that are used again, by size. Several threads may call it at once."""

    def __init__(self) -> None:
        self._free: defaultdict[int, list[_Block]] = defaultdict(list)

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """Returns an uninitialised array. Its memory is used again when its views and tensors are
        gone.
        """
        element = np.dtype(dtype)
        size = math.prod(shape) * element.itemsize
        free = self._free[size]
        try:
            block = free.pop()
        except IndexError:
            memory = np.empty(size + _ALIGNMENT, np.uint8)
            block = memory.ctypes.data + -memory.ctypes.data % _ALIGNMENT, memory
        return np.asarray(_ReusableBlock(block, free, shape, element))


def ahead(
    work: Callable[[Item], Result], items: Sequence[Item], threads: int, waiting: int
) -> Generator[Result, None, None]:
    """Yields work(item) of all `items` in their order, computed ahead in threads.

    An error is raised where its result would have been yielded. Closing the generator waits for
    work that has started.

    Args:
        work: The function, called in threads.
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


def read_ahead(experiment: Experiment, size: int) -> tuple[int, int, int]:
    """Returns threads, batches of `size` samples that one reads at a time, and how often, with what
    is in use.
    """
    inputs = experiment.training.inputs
    pixels = math.prod(experiment.window_shapes()[0])
    cores = available_cores()
    busy = inputs.dose_electrons_per_pattern or inputs.imperfections
    threads = cores if busy else min(cores, 1 + pixels // 2**20)
    # A batch takes up to 12 bytes per pixel: the stored values, float32 in between, and the
    # network's input.
    batch_bytes = 12 * size * pixels
    per_task = max(1, min(16, 2**25 // batch_bytes))
    return (
        threads,
        per_task,
        max(2, min(2 * threads, int(inputs.read_ahead_gib * 2**30 / (per_task * batch_bytes)))),
    )


def read_ahead_bytes(experiment: Experiment, size: int) -> int:
    """Returns the memory of batches of `size` samples beside the one in use: those that wait, and
    one that is made.
    """
    _, per_task, tasks = read_ahead(experiment, size)
    ways = experiment.training.split.ranks
    float32 = np.dtype(np.float32).itemsize
    x = experiment.images_per_sample() * math.prod(experiment.network.input_shape) // ways
    y, pixels = (math.prod(shape) for shape in experiment.window_shapes()[::-1])
    x_bytes = 4 if experiment.training.precision.compute == "float32" else 2
    waiting = (tasks - 1) * per_task * (x * x_bytes + y * float32)
    return size * (waiting + pixels * (np.dtype(experiment.data.dtype).itemsize + float32))
