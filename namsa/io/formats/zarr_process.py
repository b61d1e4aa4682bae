"""The process in which the package zarr unpacks chunks: a script that `namsa.io.formats.zarr_store`
starts.

A chunk of a few bytes may unpack to all memory. Here it meets the limits of
`namsa.io.confined_process`.
"""

import mmap
import os

import numpy as np
import zarr
from zarr.storage import LocalStore, ZipStore

from namsa.io import confined_process


class ZarrReader:
    """Answers requests about one store."""

    def __init__(self, path: str, shared: mmap.mmap) -> None:
        self._store: LocalStore | ZipStore
        if os.path.isdir(path):
            self._store = LocalStore(path, read_only=True)
        else:
            self._store = ZipStore(path, mode="r")
        self._shared = shared

    def describe(self, path: str) -> dict[str, object]:
        """Returns the shape, the type and the pieces of an array."""
        stored = zarr.open_array(self._store, path=path, mode="r")
        pieces = stored.shards or stored.chunks
        return {
            "shape": list(stored.shape),
            "dtype": np.dtype(stored.dtype).str,
            "chunks": list(pieces),
        }

    def read(self, path: str, selection: list[list[int]]) -> None:
        """Reads a part of an array, [start, stop] per axis, into the shared memory."""
        stored = zarr.open_array(self._store, path=path, mode="r")
        shape = tuple(stop - start for start, stop in selection)
        array: np.ndarray = np.ndarray(shape, stored.dtype, self._shared)
        array[...] = stored[tuple(slice(start, stop) for start, stop in selection)]


if __name__ == "__main__":
    zarr.config.set({"threading.max_workers": 1, "async.concurrency": 1})
    confined_process.serve(ZarrReader, open_files=None)
