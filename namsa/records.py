"""One sample to one record: the value stored under the sample's id in a shard.

A record is, in this order and with every number little-endian,

    prefix    8 bytes magic, uint32 version, uint32 length of the header, 16 bytes xxh3_128 digest of all the rest
    header    JSON: arrays {name: dtype, shape, offset, units, axes; for cbed also scale}, and the provenance
    arrays    raw buffers, each at a multiple of 64 bytes from the record's start (offset counts from the first)

so that reading is a view. Axes are in the arrays' order, coordinate i of an axis being origin + i · sampling.

float16 patterns are stored times `scale`, the power of two that puts their maximum into [2^14, 2^15): scaling is
exact, nothing overflows, an intensity above 2^-29 of the maximum keeps all 11 bits of its significand, and one above
2^-39 of it lands on a subnormal number with fewer bits rather than on zero.
"""

import json
import math
import struct
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import xxhash

from namsa.errors import WorkError
from namsa.simulate import Sample

VERSION = 1
_MAGIC = b"NAMSA4D\n"
_PREFIX = struct.Struct("<8sII16s")
_DIGESTED = _PREFIX.size - 16  # the prefix up to its digest
_ALIGNMENT = 64
_LARGEST_EXPONENT = 126  # scales and their inverses stay normal float32 numbers


@dataclass(frozen=True)
class Record:
    """A decoded record; its arrays are views of the buffer they were decoded from.

    cbed: (n, dy, dx), float16 or float32, in units of the incident beam over `scale`; see `patterns`
    density: (ty, tx) float32, e/Å²
    projected_potential: (ny, nx) float32, V·Å
    """

    header: dict[str, Any]
    cbed: npt.NDArray[Any]
    density: npt.NDArray[np.float32]
    projected_potential: npt.NDArray[np.float32]

    @property
    def provenance(self) -> dict[str, Any]:
        """What made the sample; see `namsa.simulate.Sample`."""
        return self.header["provenance"]

    def patterns(self) -> npt.NDArray[np.float32]:
        """The patterns as fractions of the incident beam, (n, dy, dx)."""
        return np.multiply(self.cbed, np.float32(1 / self.header["arrays"]["cbed"]["scale"]), dtype=np.float32)

    def sample(self) -> Sample:
        """What was stored, at the precision at which it was stored."""
        return Sample(self.patterns(), self.density, self.projected_potential, self.provenance)


def encode(sample: Sample, dtype: Literal["float16", "float32"] = "float16") -> bytearray:
    """`sample` as a record with patterns of `dtype`, density and potential in float32.

    Raises WorkError where an array is not finite.
    """
    scale = 1.0 if dtype == "float32" else _scale(sample.cbed)
    arrays = {
        "cbed": (sample.cbed, dtype, {"units": "fraction of the beam", "scale": scale}),
        "density": (sample.density, "float32", {"units": "e/Å²"}),
        "projected_potential": (sample.projected_potential, "float32", {"units": "V·Å"}),
    }
    axes = _axes(sample)
    described, end = {}, 0
    for name, (array, stored, more) in arrays.items():
        if not math.isfinite(_peak(array)):
            raise WorkError(f"the sample's {name} holds numbers that are not finite")
        little = np.dtype(stored).newbyteorder("<")
        described[name] = {"dtype": little.str, "shape": list(array.shape), "offset": end, **more, "axes": axes[name]}
        end = _aligned(end + array.size * little.itemsize)
    header = json.dumps(
        {"arrays": described, "provenance": sample.provenance}, ensure_ascii=False, allow_nan=False
    ).encode()
    body = _aligned(_PREFIX.size + len(header))

    record = bytearray(body + end)
    record[_PREFIX.size : _PREFIX.size + len(header)] = header
    for name, (array, _, _) in arrays.items():
        # Straight into the record: a stack may be large, and a scaled copy of it would double the memory.
        np.multiply(
            array, array.dtype.type(scale if name == "cbed" else 1), out=_view(record, body, described[name]),
            dtype=array.dtype, casting="unsafe",
        )  # fmt: skip
    _PREFIX.pack_into(record, 0, _MAGIC, VERSION, len(header), bytes(16))
    record[_DIGESTED : _PREFIX.size] = _digest(memoryview(record))
    return record


def decode(buffer: bytes | bytearray | memoryview, check: bool = False) -> Record:
    """The record in `buffer`, without a copy; `check` compares its digest.

    Raises WorkError where it is no whole record, or one of a newer version.
    """
    view = memoryview(buffer)
    if len(view) < _PREFIX.size:
        raise WorkError(f"a record of {len(view)} bytes is cut short")
    magic, version, header_length, digest = _PREFIX.unpack_from(view)
    if magic != _MAGIC:
        raise WorkError(f"no record: it starts with {bytes(magic)!r} instead of {_MAGIC!r}")
    if version > VERSION:
        raise WorkError(f"a record of format version {version}; this namsa reads up to {VERSION}: update it")
    if check and _digest(view) != digest:
        raise WorkError("the record's checksum does not match: its bytes have changed since they were written")
    try:
        header = json.loads(bytes(view[_PREFIX.size : _PREFIX.size + header_length]))
        body = _aligned(_PREFIX.size + header_length)
        views = {name: _view(view, body, described) for name, described in header["arrays"].items()}
        return Record(header, views["cbed"], views["density"], views["projected_potential"])
    except (ValueError, TypeError, KeyError, AttributeError):
        raise WorkError("the record is damaged: its header does not fit its bytes") from None


def _scale(cbed: npt.NDArray[Any]) -> float:
    """The power of two that puts the maximum of `cbed` into [2^14, 2^15)."""
    peak = _peak(cbed)
    return 2.0 ** min(15 - math.frexp(peak)[1], _LARGEST_EXPONENT) if 0 < peak < math.inf else 1.0


def _peak(array: npt.NDArray[Any]) -> float:
    """The largest magnitude; NaN or infinite where any number is."""
    return float(np.maximum(array.max(), -array.min()))


def _axes(sample: Sample) -> dict[str, list[dict[str, Any]]]:
    p = sample.provenance
    detector, density, potential = sample.cbed.shape[1:], sample.density.shape, sample.projected_potential.shape
    centre = [-(n // 2) * pitch for n, pitch in zip(detector, p["detector_sampling_mrad"], strict=True)]
    pixel = [extent / n for extent, n in zip(p["extent_angstrom"], potential, strict=True)]
    position = {"name": "position", "units": "", "origin": 0, "sampling": 1, "scan_shape": p["scan_shape"]}
    return {
        "cbed": [position, *_plane(("ky", "kx"), "mrad", centre, p["detector_sampling_mrad"])],
        "density": _plane(("y", "x"), "Å", p["density_origin_angstrom"], p["density_sampling_angstrom"]),
        "projected_potential": _plane(("y", "x"), "Å", [0.0, 0.0], pixel),
    }


def _plane(names: tuple[str, str], units: str, origin: list[float], sampling: list[float]) -> list[dict[str, Any]]:
    return [{"name": names[i], "units": units, "origin": origin[i], "sampling": sampling[i]} for i in (0, 1)]


def _view(buffer: bytearray | memoryview, body: int, described: dict[str, Any]) -> npt.NDArray[Any]:
    shape = tuple(described["shape"])
    return np.frombuffer(buffer, described["dtype"], math.prod(shape), body + described["offset"]).reshape(shape)


def _digest(record: memoryview) -> bytes:
    digest = xxhash.xxh3_128(record[:_DIGESTED])
    digest.update(record[_PREFIX.size :])
    return digest.digest()


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
