"""The header of a record: what it says about the arrays, and whether namsa wrote it."""

import math
from typing import NotRequired, TypedDict

from pydantic_core import (
    from_json,  # twice as fast as json, which took a third of the time to read a small sample
)

from namsa.base.errors import WorkError
from namsa.base.provenance_values import Provenance
from namsa.base.text import shorten
from namsa.dataset.tiles import Tiling

LARGEST_EXPONENT = 126  # scales and their inverses stay normal float32 numbers
_STORED_TYPES = {  # and the number of axes
    "cbed": (("<f2", "<f4"), 3),
    "density": (("<f4",), 2),
    "projected_potential": (("<f4",), 2),
    "positions_angstrom": (("<f8",), 2),
}
OPTIONAL_TYPES = {"labels": (("|u1",), 2), "density_by_depth": (("<f4",), 3)}
_LONGEST_AXIS = 2**31


class StoredAxis(TypedDict):
    """One axis of an array in a record's header."""

    name: str  # as "ky"
    units: str  # as "mrad"; empty for an index
    origin: float  # coordinate of index 0
    sampling: float  # distance between two indices
    # (sy, sx) of a raster, for positions; `None` for a list of positions
    scan_shape: NotRequired[list[int] | None]


class StoredArray(TypedDict):
    """One array in a record's header."""

    dtype: str  # NumPy's name of the type
    shape: list[int]  # its shape
    offset: int  # bytes from the first array's start
    scale: float  # a value is the stored number divided by this
    units: str  # units of a value
    axes: list[StoredAxis]  # one entry per axis
    # of tiled patterns' tiles, or of all of another array; in records with tiles
    digests: NotRequired[list[str]]
    raster: NotRequired[list[int]]  # shape (sy, sx, dy, dx) of tiled patterns
    tiles: NotRequired[list[int]]  # number of their tiles along each of these axes


class RecordHeader(TypedDict):
    """The header of a record."""

    arrays: dict[str, StoredArray]  # the arrays by name
    provenance: Provenance  # the sample's provenance without the positions, which are an array


def tiling_of(header: RecordHeader) -> Tiling | None:
    """Returns the tiling of a record's patterns; `None` if they have no tiles."""
    patterns = header["arrays"]["cbed"]
    if "tiles" not in patterns:
        return None
    (sy, sx, dy, dx), (ty, tx, py, px) = patterns["raster"], patterns["tiles"]
    return Tiling((sy, sx, dy, dx), (ty, tx, py, px))


def parse_header(text: bytes) -> RecordHeader:
    """Returns the header of a record. Raises WorkError if the arrays or the provenance are not what
    namsa writes.
    """
    try:
        header = from_json(text, allow_inf_nan=False)
    except ValueError:
        raise WorkError("the record is damaged: its header is not JSON") from None
    arrays = header.get("arrays") if isinstance(header, dict) else None
    if (
        not isinstance(arrays, dict)
        or arrays.keys() - OPTIONAL_TYPES.keys() != _STORED_TYPES.keys()
    ):
        raise WorkError(
            f"the record is damaged: its header has no arrays {', '.join(_STORED_TYPES)}"
        )
    for name, array in arrays.items():
        if problem := _problem(array, *(_STORED_TYPES | OPTIONAL_TYPES)[name]):
            raise WorkError(f"the record is damaged: its header has {problem} of {name}")
    if problem := _tiles_problem(arrays):
        raise WorkError(f"the record is damaged: its header has {problem}")
    if not isinstance(header.get("provenance"), dict):
        raise WorkError("the record is damaged: its header has no provenance")
    checked: RecordHeader = header
    return checked


def _problem(array: object, dtypes: tuple[str, ...], axes: int) -> str | None:
    """Returns which value of an array's description namsa would not write, `None` if there is
    none.
    """
    if not isinstance(array, dict):
        return f"{shorten(array)} as description"
    dtype, shape, offset, scale = (array.get(key) for key in ("dtype", "shape", "offset", "scale"))
    if dtype not in dtypes:
        return f"dtype {shorten(dtype)}"
    if not (isinstance(shape, list) and len(shape) == axes and all(map(_is_length, shape))):
        return f"shape {shorten(shape)}"
    if not (type(offset) is int and 0 <= offset < 2**62):
        return f"offset {shorten(offset)}"
    if not (
        isinstance(scale, int | float) and 2.0**-LARGEST_EXPONENT <= scale <= 2.0**LARGEST_EXPONENT
    ):
        return f"scale {shorten(scale)}"
    return None


def _tiles_problem(arrays: dict[str, StoredArray]) -> str | None:
    """Returns which value about tiles namsa would not write, `None` if there is none."""
    patterns = arrays["cbed"]
    if not any({"tiles", "raster", "digests"} & array.keys() for array in arrays.values()):
        return None
    raster = patterns.get("raster") or []
    tiles = patterns.get("tiles") or []
    shape = patterns["shape"]
    for name, value in (("raster", raster), ("tiles", tiles)):
        if not (isinstance(value, list) and len(value) == 4 and all(map(_is_length, value))):
            return f"{name} {shorten(value)} of cbed"
    is_of_shape = [raster[0] * raster[1], *raster[2:]] == shape
    if not is_of_shape or any(size % tile for size, tile in zip(raster, tiles, strict=True)):
        return f"raster {shorten(raster)} and tiles {shorten(tiles)} of cbed, which do not fit"
    for name, array in arrays.items():
        digests = array.get("digests")
        count = math.prod(tiles) if name == "cbed" else 1
        if not _are_digests(digests, count):
            return f"digests {shorten(digests)} of {name}"
    return None


def _are_digests(value: object, count: int) -> bool:
    if not isinstance(value, list) or len(value) != count:
        return False
    return all(isinstance(digest, str) for digest in value)


def _is_length(value: object) -> bool:
    return type(value) is int and 0 < value < _LONGEST_AXIS
