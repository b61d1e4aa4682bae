"""The shape that all engines share: `Engine.prepare(lens)` gives `Probes`, and
`Probes.patterns(positions)` patterns.

An engine holds one specimen and is prepared for one lens after another: partially coherent patterns
need several lenses (see `namsa.physics.coherence`). `namsa.engines.dispatch` chooses an engine;
from there on no code asks which one it is.

The patterns go batch by batch to an array in memory, or to a file that is written as they come. A
simulation adds those of one thermal configuration after the other to each batch of the scan, in a
fixed order, so that a batch has the same bits wherever it lies, and however often the simulation is
interrupted between batches.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from namsa.engines.device_copies import add_behind
from namsa.physics.backend import run_in_batches
from namsa.physics.detector import bin_patterns
from namsa.physics.grid import Array

if TYPE_CHECKING:
    import cupy

ProgressCallback = Callable[[str, int, int], None]
"""Called as `callback(stage, done, total)` while a simulation runs."""

HOST_BATCH_BYTES = 2**20  # waves of this size stay in the second-level cache of a core
DEVICE_BATCH_BYTES = 2**28  # waves of this size keep a GPU busy


class Probes(Protocol):
    """The probes of one lens in one specimen. Several threads may share it."""

    def patterns(self, positions: npt.NDArray[np.float64]) -> Array:
        """Returns the diffraction patterns of probes at positions (n, 2) as (y, x), Å.

        Returns:
            Intensities (n, ny, nx) as fractions of the beam, zero frequency in the centre, on the
            host or the device.
        """
        ...

    def add_patterns(
        self,
        cbed: npt.NDArray[np.floating],  # patterns (n, dy, dx) on the host, changed in place
        positions: npt.NDArray[np.float64],  # probe positions (n, 2) as (y, x), Å
        # The detector's matrices as `namsa.physics.detector.bin_matrices` makes them. `None` leaves
        # the patterns on the reciprocal grid.
        binning: tuple[Array, Array] | None,
        # called as `on_probes(done, total)` after each batch
        on_probes: Callable[[int, int], None],
    ) -> None:
        """Adds the patterns that the detector records to `cbed`."""
        ...


class Engine(Protocol):
    """Propagates probes through the slices of one specimen."""

    def prepare(self, lens: Array) -> Probes:
        """Returns the probes of a lens: the reciprocal probe at the origin, (ny, nx) complex, zero
        frequency first.
        """
        ...


class PlaneWaves(Protocol):
    """Propagates plane waves through the slices of one specimen."""

    def exit_waves(
        self, indices: npt.NDArray[np.int64], depths: Sequence[int], pixels: npt.NDArray[np.int64]
    ) -> Array:
        """Returns the waves behind the specimen's first slices, for plane waves of amplitude 1.

        Args:
            indices: Flat indices (n,) of the plane waves on the reciprocal grid, zero frequency
                first.
            depths: Numbers of slices (m,), increasing, behind which the waves are returned.
            pixels: Flat indices (p,) on the reciprocal grid, within the band limit, at which they
                are returned.

        Returns:
            Waves (m, n, p) in reciprocal space.
        """
        ...


class BatchedProbes(ABC):
    """Probes whose patterns are computed in independent batches: in threads on the host, in order
    on a device.

    Attributes:
        batch: Positions per batch.
        on_host: Whether waves lie in the host's memory.
    """

    def __init__(self, batch: int, on_host: bool) -> None:
        self.batch = batch
        self.on_host = on_host

    @abstractmethod
    def patterns(self, positions: npt.NDArray[np.float64]) -> Array:
        """Returns the patterns (n, ny, nx) of probes at `positions` (n, 2); see
        `Probes.patterns`.
        """

    def add_patterns(
        self,
        cbed: npt.NDArray[np.floating],
        positions: npt.NDArray[np.float64],
        binning: tuple[Array, Array] | None,
        on_probes: Callable[[int, int], None],
    ) -> None:
        """Adds the patterns that the detector records to `cbed`; see `Probes.add_patterns`.

        Each batch writes to its own rows. The result therefore does not depend on the number of
        threads.
        """

        def work(rows: slice) -> None:
            cbed[rows] += bin_patterns(self.patterns(positions[rows]), binning)

        def compute(batch: int, rows: slice) -> tuple[Array, "cupy.cuda.Event"]:
            import cupy

            return self.patterns(positions[rows]), cupy.cuda.get_current_stream().record()

        if self.on_host:
            run_in_batches(work, len(positions), self.batch, True, on_probes)
        else:
            add_behind(compute, cbed, self.batch, 2, binning, on_probes)


def waves_per_batch(wave: Array) -> int:
    """Returns how many waves of the size of `wave` are propagated together."""
    limit = HOST_BATCH_BYTES if isinstance(wave, np.ndarray) else DEVICE_BATCH_BYTES
    return max(1, limit // int(wave.nbytes))


class PatternSink(Protocol):
    """Takes the patterns of one simulation. `namsa.io.stack_file.StackFile` is one that writes a
    file.
    """

    def begin(
        self,
        shape: tuple[int, int, int],  # number of patterns and pixels of each, (n, dy, dx)
        dtype: np.dtype[np.generic],  # type of the patterns
        scan_shape: tuple[int, int]
        | None,  # rows and columns (sy, sx) if the positions are a raster, x fastest
        multiple: int,  # a batch holds a multiple of this number of patterns, except the last
        fingerprint: str,  # names everything that the patterns' bits depend on
    ) -> int:
        """Prepares for patterns, or continues those of a `fingerprint`; returns the most patterns
        in a batch.
        """
        ...

    def pending(self, configuration: int) -> Iterable[slice]:
        """Returns the batches to which the patterns of a thermal configuration, counted from 0, are
        not yet added. Each is read, changed and written before the next is asked for.
        """
        ...

    def read(self, rows: slice) -> npt.NDArray[np.floating]:
        """Returns a batch as it is so far, (rows, dy, dx), zero at first. The caller may change
        it.
        """
        ...

    def write(self, rows: slice, patterns: npt.NDArray[np.floating], configurations: int) -> None:
        """Takes a batch, to which the patterns of this number of configurations are added."""
        ...

    def patterns(self) -> npt.NDArray[np.floating]:
        """Returns the patterns that lie in memory, (n, dy, dx): none of them, (0, dy, dx), if they
        lie in a file.
        """
        ...


class MemorySink:
    """Keeps all patterns in one array, as one batch, which is allocated when it is first read."""

    def begin(
        self,
        shape: tuple[int, int, int],
        dtype: np.dtype[np.generic],
        scan_shape: tuple[int, int] | None,
        multiple: int,
        fingerprint: str,
    ) -> int:
        """Returns the number of patterns; see `PatternSink.begin`."""
        self._shape = shape
        self._dtype = dtype
        self._patterns: npt.NDArray[np.floating] | None = None
        return shape[0]

    def pending(self, configuration: int) -> Sequence[slice]:
        """Returns one batch of all patterns."""
        return (slice(0, self._shape[0]),)

    def read(self, rows: slice) -> npt.NDArray[np.floating]:
        """Returns all patterns."""
        if self._patterns is None:
            return np.zeros(self._shape, self._dtype)
        return self._patterns

    def write(self, rows: slice, patterns: npt.NDArray[np.floating], configurations: int) -> None:
        """Keeps all patterns."""
        self._patterns = patterns

    def patterns(self) -> npt.NDArray[np.floating]:
        """Returns all patterns."""
        return self.read(slice(None))
