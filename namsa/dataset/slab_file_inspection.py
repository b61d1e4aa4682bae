"""Inspects an HDF5 file of `namsa.dataset.slab_file` before h5py opens it for reading.

It does so in a process of its own (`namsa.io.safe_hdf5`): a damaged or malicious file cannot end the job without a
message, and its arrays are in the file itself.
"""

import math
from pathlib import Path

from namsa.dataset.slab_file import DIGEST_BYTES, VERSION, SlabHeader, header_digest
from namsa.dataset.slabs import SlabLayout
from namsa.dataset.tiles import Tiling
from namsa.dataset.typed_values import parse_typed
from namsa.errors import InputError
from namsa.io.safe_hdf5 import Hdf5Dataset, Hdf5File, Hdf5Group, open_hdf5
from namsa.json_files import parse_json
from namsa.text import shorten

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
    """Returns the header, after comparing its digest. Raises InputError if it is not what namsa writes."""
    root = Hdf5Group(file, "/")
    text = root.attribute("slabs")
    if not isinstance(text, str):
        raise InputError(f"{file.path} holds no samples in tiles: {REMEDY}")
    if header_digest(text) != root.attribute("slabs_digest"):
        raise InputError(f"{file.path} is damaged, the checksum of its attribute slabs is wrong: {REMEDY}")
    place = f"{file.path}, its attribute slabs"
    header = parse_json(text, place)
    if isinstance(header, dict) and header.get("version") not in (None, VERSION):
        raise InputError(f"{file.path} has format version {shorten(header['version'])}, this namsa reads {VERSION}")
    return parse_typed(SlabHeader, text, place, REMEDY)


def _layout(file: Hdf5File, header: SlabHeader) -> SlabLayout:
    """Returns the samples' layout. Raises InputError if an array is not what the header says."""
    patterns, density, stored = (_array(file, name) for name in ("patterns", "density", "digests"))
    count, tiles = len(header["scales"]), math.prod(header["tiles"])
    if patterns.dtype.str not in ("<f2", "<f4") or len(patterns.shape) != 5 or patterns.shape[0] != count:
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
        raise InputError(f"{file.path}: its chunks are {patterns.chunks}, its tiles {(1, *tiling.tile)}: {REMEDY}")
    return SlabLayout(tiling, patterns.dtype.str, density.shape[1:])


def _array(file: Hdf5File, name: str) -> Hdf5Dataset:
    """Returns an array of the file itself. Raises InputError if it is missing, elsewhere, or a link."""
    found = file.find(f"/{name}")
    if not isinstance(found, Hdf5Dataset) or found.name != f"/{name}":
        raise InputError(f"{file.path} has no array {name} of its own: {REMEDY}")
    return found


def _unfit(file: Hdf5File, array: Hdf5Dataset, count: int) -> InputError:
    return InputError(
        f"{file.path}: {array.name} has shape {array.shape} and type {array.dtype}, not those of {count} samples in "
        f"tiles: {REMEDY}"
    )
