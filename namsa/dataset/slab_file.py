"""Writes a dataset's samples to an HDF5 file whose chunks are the tiles of the records;
`slab_file_reader` reads it.

    patterns    (n, sy, sx, dy, dx), float16 or float32: the stored numbers of n samples, a chunk
                per tile
    density     (n, ty, tx), float32, e/Å², a chunk per sample
    digests     (n, tiles + 1, 16), uint8: the xxh3_128 digests of a sample's tiles, in the order of
                their grid, and of its density

The attribute `slabs` of the root is JSON, as of `SlabHeader`, and `slabs_digest` its digest. Chunks
have no filters. They are allocated when the file is created, so that HDF5 needs no index to find
them: a rank that reads tiles asks the file for these and for nothing else.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import h5py
import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from namsa.base.errors import InputError
from namsa.base.json_files import Name
from namsa.base.text import shorten
from namsa.dataset.record_header import LARGEST_EXPONENT, RecordHeader
from namsa.dataset.records import Record
from namsa.dataset.shards import Dataset
from namsa.dataset.slabs import SlabLayout, SlabReader
from namsa.dataset.tiles import digests
from namsa.io.hdf5 import write_file
from namsa.io.hdf5_process import CHUNK_BYTES

VERSION = 1
DIGEST_BYTES = 16
# HDF5 1.10 and later read it, and it is the first that needs no index of chunks
_LIBRARY = ("v110", "v110")


Scale = Annotated[float, Field(ge=2.0**-LARGEST_EXPONENT, le=2.0**LARGEST_EXPONENT)]


@with_config(ConfigDict(extra="forbid"))
class SlabHeader(TypedDict):
    """Description of the samples of a file."""

    version: int  # of the format
    config_hash: str  # of the samples, as of `Dataset`
    # Number of tiles of the patterns along scan y, scan x, detector y and detector x.
    tiles: Annotated[list[Annotated[int, Field(gt=0)]], Field(min_length=4, max_length=4)]
    # factor of the stored patterns, by the sample's id, in the order of the samples
    scales: dict[Name, Scale]


def write_slab_file(
    path: Path, dataset: Dataset, on_sample: Callable[[str, Record], None] = lambda *_: None
) -> int:
    """Writes all samples of a dataset to a file, which appears only when it is complete.

    Args:
        dataset: Samples of one shape, with tiles.
        on_sample: Is called with the id and the record of each sample after it is written.

    Returns:
        The number of samples.

    Raises:
        InputError: If a sample has no tiles, or samples differ in shape, type or tiles.
        WorkError: If a record is damaged, or the file cannot be written.
    """
    layout = _common_layout(dataset)
    scales = dict.fromkeys(dataset.ids, 1.0)
    tiling = layout.tiling
    count = len(dataset.ids)
    with write_file(path, {}, _LIBRARY, with_digests=False) as (file, target):
        patterns = _create(
            file, "patterns", (count, *tiling.patterns), layout.dtype, (1, *tiling.tile)
        )
        density = _create(file, "density", (count, *layout.image), "<f4", (1, *layout.image))
        rows = (math.prod(tiling.counts) + 1, DIGEST_BYTES)
        stored_digests = _create(file, "digests", (count, *rows), "|u1", (1, *rows))
        for index, sample_id in enumerate(dataset.ids):
            with dataset.view(sample_id) as record:
                scales[sample_id] = record.header["arrays"]["cbed"]["scale"]
                tiled = record.cbed.reshape(tiling.patterns)
                for place in np.ndindex(*tiling.counts):
                    start = [at * size for at, size in zip(place, tiling.tile, strict=True)]
                    tile = tuple(
                        slice(at, at + size) for at, size in zip(start, tiling.tile, strict=True)
                    )
                    patterns.id.write_direct_chunk(
                        (index, *start), np.ascontiguousarray(tiled[tile])
                    )
                density[index] = record.density
                stored_digests[index] = _digests(record.header)
                target.check()
                on_sample(sample_id, record)
        header = SlabHeader(
            version=VERSION,
            config_hash=dataset.config_hash or "",
            tiles=list(tiling.counts),
            scales=scales,
        )
        text = json.dumps(header)
        file.attrs["slabs"], file.attrs["slabs_digest"] = text, header_digest(text)
    return count


def header_digest(text: str) -> str:
    """Returns the digest of the attribute `slabs`."""
    return digests(np.frombuffer(text.encode(), np.uint8))[0]


def _common_layout(dataset: Dataset) -> SlabLayout:
    """Returns the layout that all samples have. Raises InputError if there is none."""
    if not dataset.ids:
        raise InputError("the dataset holds no samples: make some with namsa dataset")
    common: SlabLayout | None = None
    with SlabReader(dataset) as reader:
        for sample_id in dataset.ids:
            layout = reader.layout(sample_id)
            if layout is None:
                raise InputError(
                    f"{shorten(sample_id)} in {dataset.path_of(sample_id)} has no tiles: simulate "
                    "the dataset again with data.tiles, or export it without --tiles"
                )
            common = common or layout
            if layout != common:
                raise InputError(
                    f"{shorten(dataset.ids[0])} has {common}, {shorten(sample_id)} has {layout}: "
                    "one file holds samples of one shape, type and tiles; export them without "
                    "--tiles, or as datasets of their own"
                )
    assert common is not None
    tile_bytes = math.prod(common.tiling.tile) * np.dtype(common.dtype).itemsize
    if tile_bytes > CHUNK_BYTES:
        raise InputError(
            f"tiles have {tile_bytes} bytes, at most {CHUNK_BYTES}: simulate with more data.tiles"
        )
    return common


def _digests(header: RecordHeader) -> npt.NDArray[np.uint8]:
    """Returns the digests of a sample's tiles and of its density, as its record has them (tiles +
    1, 16).
    """
    written_digests = [
        *header["arrays"]["cbed"]["digests"],
        *header["arrays"]["density"]["digests"],
    ]
    return np.frombuffer(bytes.fromhex("".join(written_digests)), np.uint8).reshape(
        -1, DIGEST_BYTES
    )


def _create(
    file: h5py.File, name: str, shape: tuple[int, ...], dtype: str, chunks: tuple[int, ...]
) -> h5py.Dataset:
    """Creates an array whose chunks are allocated, and not written."""
    created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    created.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    return file.create_dataset(name, shape, dtype, chunks=chunks, dcpl=created, fill_time="never")
