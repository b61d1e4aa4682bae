"""Where the patterns of a simulation go, batch by batch: an array in memory, or a file that is written as they come.

A simulation adds the patterns of one thermal configuration after the other to each batch of the scan, in a fixed order,
so that a batch has the same bits wherever it lies, and however often the simulation is interrupted between batches.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


class PatternSink(Protocol):
    """Takes the patterns of one simulation. `namsa.io.stack_file.StackFile` is one that writes a file."""

    def begin(
        self,
        shape: tuple[int, int, int],  # number of patterns and pixels of each, (n, dy, dx)
        dtype: np.dtype[Any],  # type of the patterns
        scan_shape: tuple[int, int] | None,  # rows and columns (sy, sx) if the positions are a raster, x fastest
        multiple: int,  # a batch holds a multiple of this number of patterns, except the last
        fingerprint: str,  # names everything that the patterns' bits depend on
    ) -> int:
        """Prepares for patterns, or continues with those of an interrupted simulation of the same fingerprint.

        Returns:
            The largest number of patterns in a batch.
        """
        ...

    def pending(self, configuration: int) -> Sequence[slice]:
        """Returns the batches to which the patterns of a thermal configuration, counted from 0, are not yet added."""
        ...

    def read(self, rows: slice) -> npt.NDArray[Any]:
        """Returns a batch as it is so far, (rows, dy, dx), zero at first. The caller may change it."""
        ...

    def write(self, rows: slice, patterns: npt.NDArray[Any], configurations: int) -> None:
        """Takes a batch, to which the patterns of this number of configurations are added."""
        ...

    def patterns(self) -> npt.NDArray[Any]:
        """Returns the patterns that lie in memory, (n, dy, dx): none of them, (0, dy, dx), if they lie in a file."""
        ...


class MemorySink:
    """Keeps all patterns in one array, as one batch, which is allocated when it is first read."""

    def begin(
        self,
        shape: tuple[int, int, int],
        dtype: np.dtype[Any],
        scan_shape: tuple[int, int] | None,
        multiple: int,
        fingerprint: str,
    ) -> int:
        """Returns the number of patterns; see `PatternSink.begin`."""
        self._shape, self._dtype = shape, dtype
        self._patterns: npt.NDArray[Any] | None = None
        return shape[0]

    def pending(self, configuration: int) -> Sequence[slice]:
        """Returns one batch of all patterns."""
        return (slice(0, self._shape[0]),)

    def read(self, rows: slice) -> npt.NDArray[Any]:
        """Returns all patterns."""
        return np.zeros(self._shape, self._dtype) if self._patterns is None else self._patterns

    def write(self, rows: slice, patterns: npt.NDArray[Any], configurations: int) -> None:
        """Keeps all patterns."""
        self._patterns = patterns

    def patterns(self) -> npt.NDArray[Any]:
        """Returns all patterns."""
        return self.read(slice(None))
