"""One sample to one record: the value stored under the sample's id in a shard.

A record is, in this order and with every number little-endian,

    prefix    8 bytes magic, uint32 version, uint32 length of the header, 16 bytes xxh3_128 digest of all the rest
    header    JSON: arrays {name: dtype, shape, offset, scale, units, axes}, and the provenance
    arrays    raw buffers, each at a multiple of 64 bytes from the record's start (offset counts from the first)

so that reading is a view. A value is what is stored over `scale`; coordinate i of an axis is origin + i · sampling.

float16 patterns are stored times `scale`, the power of two that puts their maximum into [2^14, 2^15): scaling is
exact, nothing overflows, an intensity above 2^-29 of the maximum keeps all 11 bits of its significand, and one above
2^-39 of it lands on a subnormal number with fewer bits rather than on zero.
"""

import json
import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import xxhash
from pydantic_core import from_json  # twice as fast as json, which took a third of the time to read a small sample

from namsa.errors import WorkError
from namsa.sample import Sample

Buffer = bytes | bytearray | memoryview
VERSION = 1
_MAGIC = b"NAMSA4D\n"
_PREFIX = struct.Struct("<8sII16s")
_DIGESTED = _PREFIX.size - 16  # the prefix up to its digest
_ALIGNMENT = 64
_SMALLEST_NORMAL_HALF = np.float32(2.0**-14)
_LARGEST_EXPONENT = 126  # scales and their inverses stay normal float32 numbers


class NewerVersion(WorkError):
    """A record that is whole, and that a later namsa wrote."""


@dataclass(frozen=True)
class Record:
    """A decoded record; its arrays are views of the buffer they were decoded from.

    cbed: (n, dy, dx), float16 or float32, fractions of the incident beam times a scale; see `patterns`
    density: (ty, tx) float32, e/Å²
    projected_potential: (ny, nx) float32, V·Å
    positions_angstrom: (n, 2) float64, the probes' (y, x)
    """

    header: dict[str, Any]
    cbed: npt.NDArray[Any]
    density: npt.NDArray[np.float32]
    projected_potential: npt.NDArray[np.float32]
    positions_angstrom: npt.NDArray[np.float64]

    @property
    def provenance(self) -> dict[str, Any]:
        """What made the sample; see `namsa.simulate.Sample`."""
        return self.header["provenance"] | {"positions_angstrom": self.positions_angstrom.tolist()}

    def patterns(self) -> npt.NDArray[np.float32]:
        """The patterns as fractions of the incident beam, (n, dy, dx)."""
        return np.multiply(self.cbed, np.float32(1 / self.header["arrays"]["cbed"]["scale"]), dtype=np.float32)

    def copy(self) -> "Record":
        """The same with arrays of its own."""
        return Record(
            self.header,
            self.cbed.copy(),
            self.density.copy(),
            self.projected_potential.copy(),
            self.positions_angstrom.copy(),
        )

    def sample(self) -> Sample:
        """What was stored, at the precision at which it was stored."""
        return Sample(self.patterns(), self.density, self.projected_potential, self.provenance)


def encode(sample: Sample, dtype: Literal["float16", "float32"] = "float16") -> bytearray:
    """`sample` as a record with patterns of `dtype`, density and potential in float32.

    Raises WorkError where an array is not finite.
    """
    provenance = dict(sample.provenance)
    positions = np.array(provenance.pop("positions_angstrom"))  # as JSON they would take longer to read than all else
    plan = (
        ("cbed", sample.cbed, "<f2" if dtype == "float16" else "<f4", "fraction of the beam"),
        ("density", sample.density, "<f4", "e/Å²"),
        ("projected_potential", sample.projected_potential, "<f4", "V·Å"),
        ("positions_angstrom", positions, "<f8", "Å"),
    )
    axes = _axes(sample)
    described: dict[str, dict[str, Any]] = {}
    end = 0
    for name, array, stored, units in plan:
        peak = float(np.maximum(array.max(), -array.min()))
        if not math.isfinite(peak):
            raise WorkError(f"the sample's {name} holds numbers that are not finite")
        scale = 2.0 ** min(15 - math.frexp(peak)[1], _LARGEST_EXPONENT) if stored == "<f2" else 1.0
        described[name] = {
            "dtype": stored,
            "shape": list(array.shape),
            "offset": end,
            "scale": scale,
            "units": units,
            "axes": axes[name],
        }
        end = _aligned(end + array.size * np.dtype(stored).itemsize)
    content = {"arrays": described, "provenance": provenance}
    header = json.dumps(content, ensure_ascii=False, allow_nan=False).encode()
    body = _aligned(_PREFIX.size + len(header))

    record = bytearray(body + end)
    record[_PREFIX.size : _PREFIX.size + len(header)] = header
    for name, array, stored, _ in plan:
        view = _view(record, body, described[name])
        if stored == "<f2":
            for pattern, place in zip(array, view, strict=True):  # a scaled copy of the whole stack may be large
                place[...] = _to_half(pattern * array.dtype.type(described[name]["scale"]))
        else:
            view[...] = array
    _PREFIX.pack_into(record, 0, _MAGIC, VERSION, len(header), bytes(16))
    record[_DIGESTED : _PREFIX.size] = _digest(memoryview(record))
    return record


def decode(buffer: Buffer, check: bool = False) -> Record:
    """The record in `buffer`, without a copy; `check` compares its digest.

    Raises WorkError where it is no whole record, or one of a newer version.
    """
    view = memoryview(buffer)
    if len(view) < _PREFIX.size:
        raise WorkError(f"a record of {len(view)} bytes is cut short")
    magic, version, header_length, digest = _PREFIX.unpack_from(view)
    if magic != _MAGIC:
        raise WorkError(f"no record: it starts with {bytes(magic)!r} instead of {_MAGIC!r}")
    if version > VERSION and _digest(view) == digest:  # and no damaged one
        raise NewerVersion(f"a record of format version {version}; this namsa reads up to {VERSION}: update it")
    if version != VERSION:
        raise WorkError(f"no record: its format version is {version}, and there are 1 to {VERSION}")
    if check and _digest(view) != digest:
        raise WorkError("the record's checksum does not match: its bytes have changed since they were written")
    try:
        header = from_json(bytes(view[_PREFIX.size : _PREFIX.size + header_length]))
        body = _aligned(_PREFIX.size + header_length)
        return Record(header, **{name: _view(view, body, array) for name, array in header["arrays"].items()})
    except (ValueError, TypeError, KeyError, AttributeError):
        raise WorkError("the record is damaged: its header does not fit its bytes") from None


def scan(buffer: memoryview, find: Callable[[bytes, int], int]) -> Iterator[memoryview]:
    """The whole records in `buffer`, a file whose structure is lost; `find` finds bytes in it, or says -1."""
    place = find(_MAGIC, 0)
    while place >= 0:
        length = 0
        try:
            length = _length(buffer[place:])
            decode(buffer[place : place + length], check=True)
            yield buffer[place : place + length]
        except (WorkError, ValueError, TypeError, KeyError, AttributeError, struct.error):
            length = 1  # a record may begin inside of what was no whole one
        place = find(_MAGIC, place + length)


def _length(view: memoryview) -> int:
    """Of the record that `view` begins with, from its header, which may be damaged."""
    header_length = _PREFIX.unpack_from(view)[2]
    arrays = json.loads(bytes(view[_PREFIX.size : _PREFIX.size + header_length]))["arrays"].values()
    ends = (array["offset"] + math.prod(array["shape"]) * np.dtype(array["dtype"]).itemsize for array in arrays)
    return _aligned(_PREFIX.size + header_length) + _aligned(max(ends))


def _to_half(array: npt.NDArray[Any]) -> npt.NDArray[np.float16]:
    """`array` in float16, rounded to nearest.

    What falls below float16's normal numbers is first rounded to their spacing there, 2^-24, which is a float32's
    spacing from 0.5 on: NumPy's own rounding of such numbers, one floating-point exception each, is 20 times slower.
    """
    single = array.astype(np.float32)
    rounded = (single + np.float32(0.5)) - np.float32(0.5)
    return np.where(np.abs(single) < _SMALLEST_NORMAL_HALF, rounded, single).astype(np.float16)


def _axes(sample: Sample) -> dict[str, list[dict[str, Any]]]:
    p = sample.provenance
    pixel = [extent / n for extent, n in zip(p["extent_angstrom"], sample.projected_potential.shape, strict=True)]
    position = {"name": "position", "units": "", "origin": 0, "sampling": 1, "scan_shape": p["scan_shape"]}
    return {
        "cbed": [position, *_plane(("ky", "kx"), "mrad", p["detector_origin_mrad"], p["detector_sampling_mrad"])],
        "density": _plane(("y", "x"), "Å", p["density_origin_angstrom"], p["density_sampling_angstrom"]),
        "projected_potential": _plane(("y", "x"), "Å", [0.0, 0.0], pixel),
        "positions_angstrom": [position],
    }


def _plane(names: tuple[str, str], units: str, origin: list[float], sampling: list[float]) -> list[dict[str, Any]]:
    return [{"name": names[i], "units": units, "origin": origin[i], "sampling": sampling[i]} for i in (0, 1)]


def _view(buffer: bytearray | memoryview, body: int, array: dict[str, Any]) -> npt.NDArray[Any]:
    shape = tuple(array["shape"])
    return np.frombuffer(buffer, array["dtype"], math.prod(shape), body + array["offset"]).reshape(shape)


def _digest(record: memoryview) -> bytes:
    digest = xxhash.xxh3_128(record[:_DIGESTED])
    digest.update(record[_PREFIX.size :])
    return digest.digest()


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
