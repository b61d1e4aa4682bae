"""One sample as one record: the value stored under the sample's id in a shard.

A record consists of three parts. Every number is little-endian.

    prefix    8 bytes magic, uint32 version, uint32 length of the header, 16 bytes xxh3_128 digest
              of all the rest
    header    JSON: arrays {name: dtype, shape, offset, scale, units, axes}, and the provenance
    arrays    raw buffers, each at a multiple of 64 bytes from the record's start (offset counts
              from the first)

Labels and the density by depth are arrays that some records have. Patterns may be in tiles
(`namsa.dataset.tiles`). Each array then has the digests of its tiles, or of all of it, in the
header, and 16 bytes behind the header are the xxh3_128 digest of what stands before them, without
the record's digest. A slab is therefore verified without the rest; see `namsa.dataset.slabs`.

An array is read as a view, without a copy, but for patterns with tiles along other axes than scan
y. A value is the stored number divided by `scale`. Coordinate i of an axis is origin + i ·
sampling.

float16 patterns are stored times `scale`, the power of two that puts their maximum into [2^14,
2^15). Scaling is exact and nothing overflows. An intensity above 2^-29 of the maximum keeps all 11
bits of its significand. One above 2^-39 of it becomes a subnormal number with fewer bits rather
than zero.
"""

import json
import math
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import xxhash

from namsa.base.arrays import Array, Buffer, Floats
from namsa.base.errors import WorkError
from namsa.base.pixels import OPTIONAL_UNITS, UNITS, image_plane, raster_shape
from namsa.base.provenance_values import Provenance
from namsa.dataset.record_header import (
    LARGEST_EXPONENT,
    OPTIONAL_TYPES,
    RecordHeader,
    StoredArray,
    StoredAxis,
    parse_header,
    tiling_of,
)
from namsa.dataset.tiles import DIGEST_DIGITS, Shape, Tiling, digests
from namsa.samples.sample import Sample

VERSION = 1
_MAGIC = b"NAMSA4D\n"
_PREFIX = struct.Struct("<8sII16s")
_DIGEST_BYTES = 16
PREFIX_BYTES = _PREFIX.size
_DIGESTED = _PREFIX.size - _DIGEST_BYTES  # the prefix up to its digest
_ALIGNMENT = 64
_SMALLEST_NORMAL_HALF = np.float32(2.0**-14)


class NewerVersionError(WorkError):
    """A record is intact, but a later version of namsa wrote it."""


@dataclass(frozen=True)
class Record:
    """A decoded record. Its arrays are views of the buffer that it was decoded from.

    Attributes:
        header: Arrays' types, shapes, units and axes, and the provenance.
        cbed: Patterns (n, dy, dx), float16 or float32, fractions of the incident beam times a
            scale; see `patterns`.
        density: Electron density (ty, tx), float32, e/Å².
        projected_potential: Projected potential (ny, nx), float32, V·Å.
        positions_angstrom: Probe positions (n, 2) as (y, x), float64, Å.
        labels: Part of the specimen at each pixel of the density (ty, tx), uint8, as of
            `namsa.samples.sample.Sample`; `None` if the record has none.
        density_by_depth: Electron density of equal bins along the beam (n, ty, tx), float32, e/Å²,
            which add up to `density`; `None` if the record has none.
    """

    header: RecordHeader
    cbed: Array
    density: npt.NDArray[np.float32]
    projected_potential: npt.NDArray[np.float32]
    positions_angstrom: Floats
    labels: npt.NDArray[np.uint8] | None = None
    density_by_depth: npt.NDArray[np.float32] | None = None

    @property
    def provenance(self) -> Provenance:
        """The sample's provenance, as `namsa.samples.sample.Sample` has it."""
        return self.header["provenance"] | {"positions_angstrom": self.positions_angstrom.tolist()}

    def patterns(self) -> npt.NDArray[np.float32]:
        """Returns the patterns (n, dy, dx) as fractions of the incident beam."""
        return np.multiply(
            self.cbed, np.float32(1 / self.header["arrays"]["cbed"]["scale"]), dtype=np.float32
        )

    def copy(self) -> "Record":
        """Returns the record with copied arrays."""
        return Record(
            self.header,
            self.cbed.copy(),
            self.density.copy(),
            self.projected_potential.copy(),
            self.positions_angstrom.copy(),
            None if self.labels is None else self.labels.copy(),
            None if self.density_by_depth is None else self.density_by_depth.copy(),
        )

    def sample(self) -> Sample:
        """Returns the sample at the precision at which it was stored."""
        return Sample(
            self.patterns(),
            self.density,
            self.projected_potential,
            self.provenance,
            self.labels,
            self.density_by_depth,
        )


def encode(
    sample: Sample, dtype: Literal["float16", "float32"] = "float16", tiles: Shape | None = None
) -> bytearray:
    """Returns `sample` as a record.

    Args:
        dtype: Type of the patterns. Density and potential are float32, positions float64.
        tiles: Number of tiles of the patterns along scan y, x and detector y, x; `None` stores no
            tiles.

    Raises:
        InputError: If the tiles do not divide the patterns, or these are no raster.
        WorkError: If an array is not finite.
    """
    provenance = dict(sample.provenance)
    # As JSON they would take longer to read than the rest.
    positions = np.array(provenance.pop("positions_angstrom"))
    arrays: dict[str, Array] = {
        "cbed": sample.cbed,
        "density": sample.density,
        "projected_potential": sample.projected_potential,
        "positions_angstrom": positions,
    }
    for name in OPTIONAL_TYPES:
        if (optional := getattr(sample, name)) is not None:
            arrays[name] = optional
    pattern_dtype = "<f2" if dtype == "float16" else "<f4"
    stored_arrays, arrays_length = _stored_arrays(sample, arrays, pattern_dtype)
    tiling = None
    if tiles:
        sy, sx = raster_shape(provenance, len(sample.cbed))
        dy, dx = sample.cbed.shape[1:]
        tiling = Tiling((sy, sx, dy, dx), tiles)
        stored_arrays["cbed"] |= {"raster": list(tiling.patterns), "tiles": list(tiling.counts)}
        for stored in stored_arrays.values():  # of their final length
            stored["digests"] = ["0" * DIGEST_DIGITS] * math.prod(stored.get("tiles", ()))
    content: RecordHeader = {"arrays": stored_arrays, "provenance": provenance}
    header = _header_bytes(content)
    body = _body_offset(len(header), tiled=tiling is not None)

    record = bytearray(body + arrays_length)
    for name, array in arrays.items():
        stored = stored_arrays[name]
        view = _view(record, body, stored)
        if name == "cbed":
            _fill_patterns(view, array, stored, tiling)
        else:
            view[...] = array
        if tiling:
            stored["digests"] = digests(view, len(stored["digests"]))
    _PREFIX.pack_into(record, 0, _MAGIC, VERSION, len(header), bytes(_DIGEST_BYTES))
    record[_PREFIX.size : _PREFIX.size + len(header)] = _header_bytes(content)
    if tiling:
        end = _PREFIX.size + len(header)
        record[end : end + _DIGEST_BYTES] = _digest(memoryview(record)[:end])
    record[_DIGESTED : _PREFIX.size] = _digest(memoryview(record))
    return record


def _fill_patterns(
    view: Array, patterns: Array, stored: StoredArray, tiling: Tiling | None
) -> None:
    """Writes patterns `(n, dy, dx)` into their view in a record, one after the other: a scaled copy
    of all of them may be large.
    """
    targets = tiling.each_pattern(view.reshape(-1)) if tiling else view
    for pattern, target in zip(patterns, targets, strict=True):
        scaled = pattern
        if stored["dtype"] == "<f2":
            scaled = _to_half(pattern * patterns.dtype.type(stored["scale"]))
        target[...] = scaled.reshape(target.shape)


def _stored_arrays(
    sample: Sample, arrays: dict[str, Array], pattern_dtype: str
) -> tuple[dict[str, StoredArray], int]:
    """Returns the header's part about the arrays, and the length of all arrays in bytes."""
    types = {"cbed": pattern_dtype, "positions_angstrom": "<f8", "labels": "|u1"}
    units = UNITS | OPTIONAL_UNITS | {"positions_angstrom": "Å", "labels": ""}
    axes = _axes(sample)
    stored: dict[str, StoredArray] = {}
    end = 0
    for name, array in arrays.items():
        # as float: labels are unsigned
        peak = float(np.maximum(float(array.max()), -float(array.min())))
        if not math.isfinite(peak):
            raise WorkError(f"the sample's {name} holds numbers that are not finite")
        dtype = types.get(name, "<f4")
        stored[name] = {
            "dtype": dtype,
            "shape": list(array.shape),
            "offset": end,
            "scale": 2.0 ** min(15 - math.frexp(peak)[1], LARGEST_EXPONENT)
            if dtype == "<f2"
            else 1.0,
            "units": units[name],
            "axes": axes[name],
        }
        end = aligned(end + array.size * np.dtype(dtype).itemsize)
    return stored, end


def decode(buffer: Buffer, check: bool = False) -> Record:
    """Returns the record in `buffer`, without a copy. To `check` its digest reads all bytes.

    Raises:
        NewerVersionError: If a later version of namsa wrote it.
        WorkError: If it is no intact record.
    """
    view = memoryview(buffer)
    if len(view) < _PREFIX.size:
        raise WorkError(f"a record of {len(view)} bytes is cut short")
    magic, version, header_length, digest = _PREFIX.unpack_from(view)
    if magic != _MAGIC:
        raise WorkError(f"no record: it starts with {bytes(magic)!r} instead of {_MAGIC!r}")
    if version > VERSION and _digest(view) == digest:  # not a damaged version number
        raise NewerVersionError(
            f"a record of format version {version}; this namsa reads version {VERSION}: update it"
        )
    if version != VERSION:
        raise WorkError(f"no record: its format version is {version} instead of {VERSION}")
    if check and _digest(view) != digest:
        raise WorkError(
            "the record's checksum does not match: its bytes have changed since they were written"
        )
    try:
        header = parse_header(bytes(view[_PREFIX.size : _PREFIX.size + header_length]))
        tiling = tiling_of(header)
        body = _body_offset(header_length, tiled=tiling is not None)
        arrays = {name: _view(view, body, array) for name, array in header["arrays"].items()}
        if tiling:
            arrays["cbed"] = tiling.whole(arrays["cbed"].reshape(-1))
        return Record(header, **arrays)
    except ValueError:  # an array lies beyond the record's end
        raise WorkError("the record is damaged: its header does not fit its bytes") from None


def decode_header(buffer: Buffer) -> RecordHeader | None:
    """Returns the header in a record's first `header_bytes` after comparing its digest; `None` for
    one without tiles.

    Raises:
        WorkError: If it is damaged.
    """
    view = memoryview(buffer)
    end = len(buffer) - _DIGEST_BYTES
    intact = _digest(view[:end]) == view[end:]
    with suppress(WorkError):
        header = parse_header(bytes(view[_PREFIX.size : end]))
        if intact or tiling_of(header) is None:
            return header if intact else None
    raise WorkError(
        "the checksum of the record's header does not match: it has changed since it was written"
    )


def header_bytes(buffer: Buffer) -> int | None:
    """Returns how many bytes `decode_header` needs, from a record's first `PREFIX_BYTES`; `None` if
    it is no record.
    """
    if len(buffer) < PREFIX_BYTES:
        return None
    magic, version, length, _ = _PREFIX.unpack(buffer)
    if (magic, version) == (_MAGIC, VERSION):
        return PREFIX_BYTES + length + _DIGEST_BYTES
    return None


def find_records(buffer: memoryview, find: Callable[[bytes, int], int]) -> Iterator[memoryview]:
    """Yields the intact records in a file whose structure is lost.

    Args:
        find: Returns the first position of some bytes in the content, from a position on, or -1, as
            `bytes.find`.
    """
    start = find(_MAGIC, 0)
    while start >= 0:
        length = 0
        try:
            length = _length(buffer[start:])
            decode(buffer[start : start + length], check=True)
            yield buffer[start : start + length]
        except (WorkError, struct.error):
            length = 1  # a record may begin inside what looked like one and is not intact
        start = find(_MAGIC, start + length)


def _length(view: memoryview) -> int:
    """Returns the length of the record that `view` begins with, by its header, which may be
    damaged.
    """
    _, _, header_length, _ = _PREFIX.unpack_from(view)
    header = parse_header(bytes(view[_PREFIX.size : _PREFIX.size + header_length]))
    arrays = header["arrays"].values()
    ends = (
        array["offset"] + math.prod(array["shape"]) * np.dtype(array["dtype"]).itemsize
        for array in arrays
    )
    return _body_offset(header_length, tiled=tiling_of(header) is not None) + aligned(max(ends))


def _body_offset(header_length: int, tiled: bool) -> int:
    """Returns where the arrays of a record start."""
    return aligned(_PREFIX.size + header_length + (_DIGEST_BYTES if tiled else 0))


def _header_bytes(content: RecordHeader) -> bytes:
    return json.dumps(content, ensure_ascii=False, allow_nan=False).encode()


def _to_half(array: Array) -> npt.NDArray[np.float16]:
    """Returns `array` in float16, rounded to nearest.

    Numbers below float16's normal numbers are first rounded to the spacing there, 2^-24, which is
    the spacing of float32 between 0.5 and 1. NumPy's own rounding of such numbers raises one
    floating-point exception per number and is 20 times slower.
    """
    single = array.astype(np.float32)
    rounded = (single + np.float32(0.5)) - np.float32(0.5)
    return np.where(np.abs(single) < _SMALLEST_NORMAL_HALF, rounded, single).astype(np.float16)


def _axes(sample: Sample) -> dict[str, list[StoredAxis]]:
    """Returns the axes of each array, by name."""
    provenance = sample.provenance
    position: StoredAxis = {
        "name": "position",
        "units": "",
        "origin": 0,
        "sampling": 1,
        "scan_shape": provenance["scan_shape"],
    }
    axes = {name: _plane(name, provenance) for name in (*UNITS, *OPTIONAL_UNITS, "labels")}
    if sample.density_by_depth is not None:
        thickness = provenance["thickness_angstrom"] / len(sample.density_by_depth)
        depth: StoredAxis = {
            "name": "depth",
            "units": "Å",
            "origin": 0.5 * thickness,
            "sampling": thickness,
        }
        axes["density_by_depth"].insert(0, depth)
    return axes | {"cbed": [position, *axes["cbed"]], "positions_angstrom": [position]}


def _plane(array: str, provenance: Provenance) -> list[StoredAxis]:
    """Returns the last two axes of an array, slowest first."""
    names, units, grid = image_plane(array, provenance)
    return [
        {"name": name, "units": units, "origin": origin, "sampling": sampling}
        for name, origin, sampling in zip(names, grid.origin, grid.step, strict=True)
    ]


def _view(buffer: bytearray | memoryview, body: int, array: StoredArray) -> Array:
    """Returns a view of one array of a record whose arrays start at `body`."""
    shape = tuple(array["shape"])
    return np.frombuffer(buffer, array["dtype"], math.prod(shape), body + array["offset"]).reshape(
        shape
    )


def _digest(record: memoryview) -> bytes:
    """Returns the digest of a record without its digest."""
    digest = xxhash.xxh3_128(record[:_DIGESTED])
    digest.update(record[_PREFIX.size :])
    return digest.digest()


def aligned(size: int) -> int:
    """Returns the smallest multiple of the alignment that is not below `size`."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT
