"""Storage of patterns in an HDF5 file: in one piece, or in compressed chunks.

A chunk is the smallest piece that HDF5 unpacks. A viewer reads single patterns, a reconstruction
reads rows of the scan, so chunks lie along a row and end with it. They hold 1 MiB: the cache for
chunks of HDF5 1 has that size (that of HDF5 2 has 8 MiB), so that whoever reads a row pattern by
pattern unpacks each chunk once, and a single pattern takes little more than its own unpacking.
"""

import importlib.util
from collections.abc import Sequence
from typing import Literal

from namsa.base.errors import InputError

Compression = Literal["none", "gzip", "lzf", "bitshuffle"]
COMPRESSIONS: tuple[Compression, ...] = ("none", "gzip", "lzf", "bitshuffle")

CHUNK_BYTES = 2**20


def chunk_shape(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Returns the chunks of patterns (sy, sx, dy, dx) or (n, dy, dx): (1, along, dy, dx) or (along,
    dy, dx).
    """
    *scan, dy, dx = shape
    along = min(scan[-1], max(1, CHUNK_BYTES // (dy * dx * itemsize)))
    return (*(1 for _ in scan[:-1]), along, dy, dx)


def storage(shape: Sequence[int], itemsize: int, compression: Compression) -> dict[str, object]:
    """Returns the arguments of h5py's `create_dataset` for patterns (sy, sx, dy, dx) or (n, dy,
    dx).

    Args:
        compression: "none" stores them in one piece. "gzip" can be read everywhere, "lzf" wherever
            h5py is, and "bitshuffle" (with Zstandard) with the package hdf5plugin.

    Raises:
        InputError: If the compression is unknown, or its package is not installed.
    """
    if compression == "none":
        return {}
    chunks: dict[str, object] = {"chunks": chunk_shape(shape, itemsize)}
    # level 4 is 3 % smaller without noise, 30 % with 1000 electrons, and half as fast
    if compression == "gzip":
        return chunks | {"compression": "gzip", "compression_opts": 1, "shuffle": True}
    if compression == "lzf":
        return chunks | {"compression": "lzf", "shuffle": True}
    if compression != "bitshuffle":
        raise InputError(
            f"compression is {compression!r}; it must be one of {', '.join(COMPRESSIONS)}"
        )
    if not importlib.util.find_spec("hdf5plugin"):
        raise InputError(
            "compression 'bitshuffle' needs the package hdf5plugin: pip install hdf5plugin, or "
            "choose gzip or lzf"
        )
    import hdf5plugin

    return chunks | {"compression": hdf5plugin.Bitshuffle(cname="zstd")}
