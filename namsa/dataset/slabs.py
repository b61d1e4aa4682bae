"""Reads slabs of samples, and nothing else of records that have tiles along the slab.

The file is read with `pread`, not through LMDB's map, where the kernel would read pages ahead that
belong to other parts. Where a record lies in its shard follows from the shard's keys; no record is
ever moved.
"""

import math
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array
from namsa.base.errors import WorkError
from namsa.base.files import Closing, system_errors
from namsa.base.pixels import raster_shape
from namsa.base.text import shorten
from namsa.dataset import lmdb_structure, records
from namsa.dataset.record_header import StoredArray, tiling_of
from namsa.dataset.shards import Dataset
from namsa.dataset.tiles import Slab, Tiling, digests


@dataclass(frozen=True)
class SampleSlab:
    """A slab of a sample's patterns, and all of its density."""

    raster: tuple[int, ...]  # shape (sy, sx, dy, dx) of the patterns of the whole sample
    scale: float  # factor of the stored patterns
    patterns: Array  # the slab (sy', sx', dy', dx'), fractions of the incident beam times `scale`
    density: npt.NDArray[np.float32]  # electron density (ty, tx), float32, e/Å²


class SlabLayout(NamedTuple):
    """Shared properties of the samples in one file of slabs."""

    tiling: Tiling  # of the patterns
    dtype: str  # NumPy's name of their type
    image: tuple[int, ...]  # shape (ty, tx) of the density

    def __str__(self) -> str:
        patterns = list(self.tiling.patterns)
        counts = list(self.tiling.counts)
        return f"{self.dtype} patterns {patterns} in tiles {counts} and density {list(self.image)}"


class _Stored(NamedTuple):
    """Places of the arrays of a record with tiles."""

    patterns: StoredArray  # description of the patterns
    density: StoredArray  # description of the density
    tiling: Tiling  # of the patterns
    body: int  # where the first array starts in the record


class SlabReader(Closing):
    """Reads slabs of a dataset's samples; close it before the dataset. Several threads may call it
    at once.

    A record without tiles along the slab is read through the dataset, and all of it where digests
    are compared.

    Raises:
        WorkError: If a shard is damaged or cannot be read; from every method, too.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._paths = {sample_id: dataset.path_of(sample_id) for sample_id in dataset.ids}
        self._locations: dict[str, tuple[int, int]] = {}
        self._files: dict[Path, int] = {}
        self._known: dict[str, _Stored | None] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Closes the files."""
        while self._files:
            os.close(self._files.popitem()[1])

    def has(self, sample_id: str, slab: Slab) -> bool:
        """Returns whether a sample's record has tiles that make up a slab, so that it is read
        alone.
        """
        stored = self._stored(sample_id)
        return stored is not None and stored.tiling.has(slab)

    def layout(self, sample_id: str) -> SlabLayout | None:
        """Returns the layout of a sample's record; `None` if it has no tiles."""
        if (stored := self._stored(sample_id)) is None:
            return None
        return SlabLayout(stored.tiling, stored.patterns["dtype"], tuple(stored.density["shape"]))

    def read(self, sample_id: str, slab: Slab, check: bool = True) -> SampleSlab:
        """Returns a slab of a sample.

        Args:
            slab: A range of the patterns.
            check: Whether to compare the digests of its tiles and of the density, or else of the
                record.

        Raises:
            InputError: If the sample is no raster.
            WorkError: If a digest does not match.
        """
        stored = self._stored(sample_id)
        if stored is None or not stored.tiling.has(slab):
            return self._cut(sample_id, slab, check)
        tiling = stored.tiling
        dtype = np.dtype(stored.patterns["dtype"])
        tiles_of_slab = tiling.part(slab)
        tile_bytes = dtype.itemsize * math.prod(tiling.tile)
        tiles = np.empty((math.prod(tiles_of_slab.counts), tile_bytes), np.uint8)
        for tile, count, place in tiling.runs(slab):
            run = tiles[place : place + count]
            self._read_array(
                sample_id, stored.body + stored.patterns["offset"] + tile * tile_bytes, run
            )
            if check and digests(run, count) != stored.patterns["digests"][tile : tile + count]:
                raise self._damaged(
                    sample_id,
                    f"the checksum of one of tiles {tile} to {tile + count - 1} is wrong",
                )
        density = np.empty(stored.density["shape"], stored.density["dtype"])
        self._read_array(sample_id, stored.body + stored.density["offset"], density)
        if check and digests(density) != stored.density["digests"]:
            raise self._damaged(sample_id, "the checksum of its density is wrong")
        patterns = tiles_of_slab.whole(tiles.reshape(-1).view(dtype)).reshape(
            tiles_of_slab.patterns
        )
        return SampleSlab(tiling.patterns, stored.patterns["scale"], patterns, density)

    def _cut(self, sample_id: str, slab: Slab, check: bool) -> SampleSlab:
        with self._dataset.view(sample_id, check) as record:
            raster = (
                *raster_shape(record.header["provenance"], len(record.cbed)),
                *record.cbed.shape[1:],
            )
            patterns = record.cbed.reshape(raster)[slab.index]
            return SampleSlab(
                raster, record.header["arrays"]["cbed"]["scale"], patterns, record.density
            )

    def _stored(self, sample_id: str) -> _Stored | None:
        """Returns where the arrays of a record are; `None` if it has no tiles. The header is read
        once.
        """
        if sample_id not in self._known:
            prefix = np.empty(min(records.PREFIX_BYTES, self._locate(sample_id)[2]), np.uint8)
            self._read_array(sample_id, 0, prefix)
            length = records.header_bytes(prefix.tobytes())
            self._known[sample_id] = (
                None if length is None else self._read_header(sample_id, length)
            )
        return self._known[sample_id]

    def _read_header(self, sample_id: str, length: int) -> _Stored | None:
        if length > self._locate(sample_id)[2]:
            raise self._damaged(sample_id, "its header is longer than the record")
        text = np.empty(length, np.uint8)
        self._read_array(sample_id, 0, text)
        try:
            header = records.decode_header(text.tobytes())
        except WorkError as error:
            raise self._damaged(sample_id, str(error)) from None
        tiling = header and tiling_of(header)
        if header is None or tiling is None:
            return None
        arrays = header["arrays"]
        return _Stored(arrays["cbed"], arrays["density"], tiling, records.aligned(length))

    def _read_array(self, sample_id: str, offset: int, out: Array) -> None:
        """Fills a contiguous array from a place in a record."""
        file, start, size = self._locate(sample_id)
        if offset + out.nbytes > size:
            raise self._damaged(sample_id, "its header does not fit its bytes")
        view = out.reshape(-1).view(np.uint8).data
        done = 0
        while done < len(view):
            with system_errors(f"cannot read {self._paths[sample_id]}"):
                count = os.preadv(file, [view[done:]], start + offset + done)
            if not count:
                raise lmdb_structure.damaged(self._paths[sample_id], "it is cut short")
            done += count

    def _locate(self, sample_id: str) -> tuple[int, int, int]:
        """Returns the file of a record, where the record starts in it, and its size."""
        path = self._paths[sample_id]
        with self._lock:
            if path not in self._files:
                self._locations |= lmdb_structure.locations(path)
                with system_errors(f"cannot read {path}"):
                    file = self._files[path] = os.open(path, os.O_RDONLY)
                if hasattr(os, "posix_fadvise"):  # no pages ahead, which belong to other parts
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
            return self._files[path], *self._locations[sample_id]

    def _damaged(self, sample_id: str, problem: str) -> WorkError:
        return WorkError(
            f"{shorten(sample_id)} in {self._paths[sample_id]}: the record is damaged, {problem}"
        )
