"""Reads slabs of samples from an HDF5 file of `namsa.dataset.slab_file`, and nothing else of it.

The file is inspected first, in a process of its own (`namsa.io.safe_hdf5`): a damaged or malicious
file cannot end the job without a message, and its arrays are in the file itself. Then h5py reads
tiles one by one. A tile is contiguous in the file and in memory.
"""

import importlib
import math
import os
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array
from namsa.base.errors import InputError, WorkError
from namsa.base.files import Closing
from namsa.base.json_files import parse_json, parse_typed
from namsa.base.text import shorten
from namsa.dataset.slab_file import DIGEST_BYTES, VERSION, SlabHeader, header_digest
from namsa.dataset.slabs import SampleSlab, SlabLayout
from namsa.dataset.tiles import Slab, Tiling, digests
from namsa.io.confined_library import DamagedFileError
from namsa.io.hdf5_items import Hdf5Dataset, Hdf5Group
from namsa.io.safe_hdf5 import Hdf5File, open_hdf5

NAMES = ("patterns", "density", "digests")


class SlabFile(Closing):
    """Reads slabs of samples. Several threads may call it at once; h5py lets one of them read at a
    time.

    Collective with MPI-IO (`driver_options`): all ranks open and close it.

    Args:
        ranks: Number of ranks of the job that opens it.

    Attributes:
        path: The file.
        config_hash: Of the samples, as of `namsa.dataset.shards.Dataset`.
        layout: Shapes, type and tiles of every sample.
        scales: Factor of the stored patterns, by the sample's id.

    Raises:
        InputError: If it is no such file.
    """

    def __init__(self, path: Path, ranks: int = 1) -> None:
        self.path = path
        header, self.layout = inspect(path)
        self.config_hash = header["config_hash"]
        self.scales = header["scales"]
        self._numbers = {sample_id: index for index, sample_id in enumerate(self.scales)}
        try:
            self._file = h5py.File(path, "r", **driver_options(ranks))
            self._patterns, self._density, self._digests = (self._file[name] for name in NAMES)
        except Exception as error:  # what h5py raises for a file that it cannot read
            raise DamagedFileError(path, shorten(str(error), 300)) from None
        if self._file.driver == "sec2" and hasattr(
            os, "posix_fadvise"
        ):  # no pages ahead, which belong to other parts
            os.posix_fadvise(self._file.id.get_vfd_handle(), 0, 0, os.POSIX_FADV_RANDOM)
        for array in (self._patterns, self._density, self._digests):
            if array.id.get_create_plist().get_nfilters():
                problem = (
                    f"{path}: {array.name} is compressed, and parts are read as they are stored"
                )
                self.close()
                raise InputError(f"{problem}: {REMEDY}")

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def has(self, sample_id: str, slab: Slab) -> bool:
        """Returns whether a sample is there and has tiles that make up a slab."""
        return sample_id in self._numbers and self.layout.tiling.has(slab)

    def digests(self, sample_id: str) -> list[str]:
        """Returns the digests of a sample's tiles, in their order, and of its density.

        Raises:
            WorkError: If the file cannot be read.
        """
        stored = np.empty(self._digests.shape[1:], np.uint8)
        self._read(self._digests, stored, self._numbers[sample_id])
        return [digest.tobytes().hex() for digest in stored]

    def read(self, sample_id: str, slab: Slab, check: bool = True) -> SampleSlab:
        """Returns a slab of a sample.

        Args:
            slab: A range of the patterns of whole tiles.
            check: Whether to compare the digests of its tiles and of the density.

        Raises:
            InputError: If there is no such sample, or the slab does not consist of tiles.
            WorkError: If a digest does not match, or the file cannot be read.
        """
        if not self.has(sample_id, slab):
            raise InputError(
                f"{self.path} has no tiles of {shorten(sample_id)} from {slab.start} to {slab.stop}"
            )
        sample_index = self._numbers[sample_id]
        tiling = self.layout.tiling
        tiles_of_slab = tiling.part(slab)
        dtype = np.dtype(self.layout.dtype)
        tiles = np.empty((math.prod(tiles_of_slab.counts), *tiling.tile), dtype)
        wanted = np.empty(self._digests.shape[1:], np.uint8)
        if check:
            self._read(self._digests, wanted, sample_index)
        for start_tile, count, place in tiling.runs(slab):
            for step in range(count):
                start = [int(at) for at in np.unravel_index(start_tile + step, tiling.counts)]
                index = (
                    slice(at * size, (at + 1) * size)
                    for at, size in zip(start, tiling.tile, strict=True)
                )
                self._read(self._patterns, tiles[place + step], sample_index, *index)
                if check:
                    self._compare(
                        sample_id,
                        f"tile {start_tile + step}",
                        tiles[place + step],
                        wanted[start_tile + step],
                    )
        density = np.empty(self.layout.image, np.float32)
        self._read(self._density, density, sample_index)
        if check:
            self._compare(sample_id, "its density", density, wanted[-1])
        patterns = tiles_of_slab.whole(tiles.reshape(-1)).reshape(tiles_of_slab.patterns)
        return SampleSlab(tiling.patterns, self.scales[sample_id], patterns, density)

    def _read(self, array: h5py.Dataset, out: Array, *index: int | slice) -> None:
        try:
            array.read_direct(out, index)
        except Exception as error:  # what h5py raises for a file that it cannot read
            raise WorkError(f"cannot read {self.path}: {shorten(str(error), 300)}") from None

    def _compare(
        self, sample_id: str, what: str, values: Array, digest: npt.NDArray[np.uint8]
    ) -> None:
        if digests(values) != [digest.tobytes().hex()]:
            raise WorkError(
                f"{shorten(sample_id)} in {self.path}: the file is damaged, the checksum of {what} "
                f"is wrong: {REMEDY}"
            )


def driver_options(ranks: int) -> dict[str, object]:
    """Returns arguments of `h5py.File` for reading: MPI-IO where h5py has it and the job's ranks
    are those of MPI.

    Threads read beside Horovod's, so that MPI must allow several at once. No chunk is cached: it is
    read once.
    """
    if ranks > 1 and h5py.get_config().mpi:
        mpi = importlib.import_module("mpi4py.MPI")
        if mpi.COMM_WORLD.Get_size() == ranks and mpi.Query_thread() == mpi.THREAD_MULTIPLE:
            return {"rdcc_nbytes": 0, "driver": "mpio", "comm": mpi.COMM_WORLD}
    return {"rdcc_nbytes": 0}


REMEDY = "write it again with namsa export DATASET --tiles"


def inspect(path: Path) -> tuple[SlabHeader, SlabLayout]:
    """Returns what a file says about its samples, and the layout that they have in it.

    Raises:
        InputError: If there is no such file, or it is not what namsa writes.
    """
    with open_hdf5(path) as file:
        header = _header(file)
        return header, _layout(file, header)


def _header(file: Hdf5File) -> SlabHeader:
    """Returns the header, after comparing its digest. Raises InputError if it is not what namsa
    writes.
    """
    root = Hdf5Group(file, "/")
    text = root.attribute("slabs")
    if not isinstance(text, str):
        raise InputError(f"{file.path} holds no samples in tiles: {REMEDY}")
    if header_digest(text) != root.attribute("slabs_digest"):
        raise InputError(
            f"{file.path} is damaged, the checksum of its attribute slabs is wrong: {REMEDY}"
        )
    place = f"{file.path}, its attribute slabs"
    header = parse_json(text, place)
    if isinstance(header, dict) and header.get("version") not in (None, VERSION):
        raise InputError(
            f"{file.path} has format version {shorten(header['version'])}, this namsa reads "
            f"{VERSION}"
        )
    return parse_typed(SlabHeader, text, place, REMEDY)


def _layout(file: Hdf5File, header: SlabHeader) -> SlabLayout:
    """Returns the samples' layout. Raises InputError if an array is not what the header says."""
    patterns, density, stored = (_array(file, name) for name in ("patterns", "density", "digests"))
    count = len(header["scales"])
    tiles = math.prod(header["tiles"])
    if (
        patterns.dtype.str not in ("<f2", "<f4")
        or len(patterns.shape) != 5
        or patterns.shape[0] != count
    ):
        raise _unfit(file, patterns, count)
    if density.dtype.str != "<f4" or len(density.shape) != 3 or density.shape[0] != count:
        raise _unfit(file, density, count)
    if stored.dtype.str != "|u1" or stored.shape != (count, tiles + 1, DIGEST_BYTES):
        raise _unfit(file, stored, count)
    (_, sy, sx, dy, dx), (ty, tx, py, px) = patterns.shape, header["tiles"]
    try:
        tiling = Tiling((sy, sx, dy, dx), (ty, tx, py, px))
    except InputError as error:
        raise InputError(f"{file.path}: {error}") from None
    if patterns.chunks != (1, *tiling.tile):
        raise InputError(
            f"{file.path}: its chunks are {patterns.chunks}, its tiles {(1, *tiling.tile)}: "
            f"{REMEDY}"
        )
    return SlabLayout(tiling, patterns.dtype.str, density.shape[1:])


def _array(file: Hdf5File, name: str) -> Hdf5Dataset:
    """Returns an array of the file itself. Raises InputError if it is missing, elsewhere, or a
    link.
    """
    dataset = file.find(f"/{name}")
    if not isinstance(dataset, Hdf5Dataset) or dataset.name != f"/{name}":
        raise InputError(f"{file.path} has no array {name} of its own: {REMEDY}")
    return dataset


def _unfit(file: Hdf5File, array: Hdf5Dataset, count: int) -> InputError:
    return InputError(
        f"{file.path}: {array.name} has shape {array.shape} and type {array.dtype}, not those of "
        f"{count} samples in tiles: {REMEDY}"
    )
