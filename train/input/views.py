"""Views of stored samples, whose headers and checksums a process reads once."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array, Floats, Tensor
from namsa.base.errors import WorkError
from namsa.base.pixels import raster_shape
from namsa.dataset.entry import Entry
from namsa.dataset.records import Record

from ..experiment import symmetries
from ..experiment.experiment import Experiment
from . import imperfections, noise, windows
from .normalisation import Batch, record_symmetries
from .readahead import Buffers
from .source import fault_of_sample

# From a sample's entry, the epoch and what finds the view of a stored sample, to what the epoch
# takes in its place.
Compose = Callable[[Entry, int, Callable[[str], "SampleView"]], "SampleView"]


class Readable(Protocol):
    """The methods of `namsa.dataset.shards.Dataset` that readers call, several threads at once."""

    def view(self, sample_id: str, check: bool = False) -> AbstractContextManager[Record]:
        """Opens a record; compares its checksum if `check` is set."""
        ...


class SampleReader(Protocol):
    """The method of `namsa.dataset.shards.Dataset` that evaluation calls."""

    def read(self, sample_id: str) -> Record:
        """Returns a sample."""
        ...


@dataclass(frozen=True)
class WithTarget:
    """Samples with another target in place of the density, as training reads them (`view`) and
    evaluation (`read`).
    """

    dataset: Any  # the stored samples
    target: Callable[[Record], Array]  # returns the target of a sample

    @contextmanager
    def view(self, sample_id: str, check: bool = False) -> Iterator[Record]:
        """Opens a record; see `Readable`."""
        with self.dataset.view(sample_id, check) as record:
            yield replace(record, density=self.target(record))

    def read(self, sample_id: str) -> Record:
        """Returns a sample."""
        record: Record = self.dataset.read(sample_id)
        return replace(record, density=self.target(record))


class SampleView(NamedTuple):
    """The arrays of a stored sample, as views of its shard."""

    patterns: Array  # `(sy, sx, dy, dx)`, fractions of the beam times `scale`
    scale: float  # factor of the stored patterns
    density: npt.NDArray[np.float32]  # `(ty, tx)`, or `(bins, ty, tx)` by depth, e/Å²
    # The symmetries of a window that augmentation draws from; `None` without augmentation.
    symmetries: symmetries.Symmetries | None
    geometry: imperfections.Geometry | None = None  # of the patterns; `None` without imperfections


class KeptWindow(NamedTuple):
    """A window that is used in several epochs."""

    draw: int  # number of the draw
    x: Tensor  # `(1, ...)`, the network's input in data.dtype, which the sample was stored in
    y: Tensor  # `(1, ...)`, its target, float32


class ReadCache:
    """Samples and buffers that a job keeps between epochs.

    These are views of samples with correct checksums, windows, memory for batches, and their
    compiled normalisation.
    """

    def __init__(self, keep_views: bool = True) -> None:
        self.keep_views = keep_views  # of files, not of what other ranks have sent
        self.views: dict[str, SampleView] = {}
        self.kept: dict[str, KeptWindow] = {}
        self.buffers = Buffers()
        self.normalise: Callable[[Batch], tuple[Tensor, Tensor]] | None = None


def find_view(
    dataset: Readable, experiment: Experiment, cache: ReadCache, sample_id: str
) -> SampleView:
    """Returns the view of a sample, from `cache` or, after comparing its checksum and its shapes,
    from `dataset`.
    """
    kept = cache.views.get(sample_id)
    if kept:
        return kept
    inputs = experiment.training.inputs
    with dataset.view(sample_id, check=True) as record:
        raster = raster_shape(record.header["provenance"], len(record.cbed))
        stored_shape = (*raster, *record.cbed.shape[1:])
        dtype = record.cbed.dtype
        if inputs.dose_electrons_per_pattern:
            # they are read as float32, whatever data.dtype is
            dtype = np.dtype(experiment.data.dtype)
            noise.check_noiseless(record.header["provenance"])
        problem = fault_of_sample(stored_shape, record.density.shape, dtype, experiment)
        if problem:
            raise WorkError(f"{sample_id} {problem}")
        mirrors = None
        if inputs.augment:
            # Those of all windows: they are about the middle of a window wherever that lies.
            window = windows.cut(record, (0, 0), experiment.window_shapes()[0][:2])
            mirrors = record_symmetries(window, experiment.drawn_in_all_directions())
        geometry = None
        if inputs.imperfections:
            geometry = imperfections.Geometry.of(record.provenance)
        view = SampleView(
            record.cbed.reshape(stored_shape),
            record.header["arrays"]["cbed"]["scale"],
            record.density,
            mirrors,
            geometry,
        )
        if cache.keep_views:
            cache.views[sample_id] = view
    return view


def mean_target(
    dataset: Readable, ids: Sequence[str], window: tuple[int, int] | None = None
) -> Floats:
    """Returns the mean density of windows over `ids`, `(h, w)` or `(bins, h, w)`, e/Å²: the best
    answer without input.

    Without a window it is that of whole samples.
    """
    total: Floats | float = 0.0
    for sample_id in ids:
        with dataset.view(sample_id) as record:
            density = (windows.middle(record, window) if window else record).density
            total = total + density.astype(np.float64)
    return np.asarray(total / len(ids))
