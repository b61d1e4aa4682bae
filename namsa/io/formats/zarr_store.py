"""Zarr (2 and 3), HyperSpy's .zspy, OME-Zarr and what quantem saves: a folder, or a zip archive
of it.

The package zarr reads the chunks; it comes with `pip install namsa[formats]`. Before it sees a
store, the metadata of the array are read here: objects of Python and codecs that are not in a list
are refused, for some of them run code. Blosc reads beyond a chunk that is cut short, and returns
what it finds there: the lengths are compared here. Links that leave the store, pipes and devices
are refused. Other codecs may unpack a few bytes to all memory: the package runs in a process of its
own, with the limits of `namsa.io.confined_process`.
"""

import importlib.util
import itertools
import math
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from namsa.base.arrays import Array
from namsa.base.errors import InputError, WorkError
from namsa.base.pixels import UNITS
from namsa.base.text import shorten
from namsa.io.file_axes import FileAxis, axis_order
from namsa.io.formats import ome_zarr
from namsa.io.formats.zarr_files import BLOSC_HEADER, JSON_BYTES, Archive, Files, Folder, is_array
from namsa.io.hdf5_items import Hdf5Dataset
from namsa.io.hdf5_process import COMPRESSION, UNWRITTEN_BYTES
from namsa.io.layout import arrange, only_array
from namsa.io.read_options import ReadOptions
from namsa.io.recording import CalibrationFacts, PatternView, Recording
from namsa.io.safe_hdf5 import Hdf5File
from namsa.io.units import as_number, finite, positive

Json = dict[str, Any]  # attributes and metadata of a store, which are checked where they are read
NAME = "Zarr"
SUFFIXES = (".zarr", ".zspy", ".zip")

ARCHIVE = b"PK\3\4"
ROOTS = ("zarr.json", ".zgroup", ".zarray")
METADATA = (*ROOTS, ".zattrs", ".zmetadata")
LEAST_AXES = 3  # of patterns
CHUNK_BYTES = 2**30
CHUNK_OVERHEAD_BYTES = 2**20
CODECS = {
    *(
        "blosc",
        "zlib",
        "gzip",
        "zstd",
        "lz4",
        "bz2",
        "lzma",
        "shuffle",
        "bitshuffle",
        "delta",
        "packbits",
    ),
    *("bytes", "crc32c", "transpose", "sharding_indexed"),
}


def recognises(path: Path, head: bytes) -> bool:
    """Returns whether it is a folder with Zarr's metadata, or an archive that is named as one."""
    if os.path.isdir(path):
        return any((path / name).is_file() for name in ROOTS)
    if not head.startswith(ARCHIVE) or path.suffix.lower() not in SUFFIXES:
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return any(os.path.basename(name) in ROOTS for name in archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return True  # its own reader says what is wrong with it


@contextmanager
def open_recording(path: Path, options: ReadOptions) -> Iterator[Recording]:
    """Opens the scan in a store: a folder or an archive."""
    if importlib.util.find_spec("zarr") is None:
        raise InputError(
            f"{path} is a Zarr store, which needs the package zarr: pip install namsa[formats]"
        )
    files: Files
    if path.is_dir():
        files = Folder(path)
        with _ZarrFile.open(path) as process:
            yield _describe(files, process, options)
        return
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise InputError(f"cannot read {path} as an archive: {shorten(error, 200)}") from None
    with archive, _ZarrFile.open(path) as process:
        yield _describe(Archive(path, archive), process, options)


# ---- Arrays


class _ZarrFile(Hdf5File):
    """A store that is open in a process of its own."""

    SCRIPT = str(Path(__file__).with_name("zarr_process.py"))
    KIND = "Zarr"
    LIBRARY = "the package zarr"

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator["_ZarrFile"]:
        """Opens a store."""
        file = cls(path)
        try:
            yield file
        finally:
            file.close()


@dataclass(frozen=True)
class _ZarrPatterns(PatternView):
    """An array of a store."""

    files: Files
    chunk_name: Callable[[tuple[int, ...]], str]
    packed_by_blosc: bool

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        try:
            self._check_chunks(index)
            return self.stored[index]
        except (InputError, ValueError) as error:
            raise WorkError(
                f"cannot read {self.files.path}, it is damaged: {shorten(error, 200)}"
            ) from None

    def _check_chunks(self, index: tuple[slice, ...]) -> None:
        """Checks that chunks are not larger than what they hold, and that those of Blosc are as
        long as they say.
        """
        shape = self.chunks or self.shape
        unpacked = math.prod(shape) * self.dtype.itemsize
        slices = (*index, *(slice(None),) * (len(self.shape) - len(index)))
        touched = []
        for span, size, chunk in zip(slices, self.shape, shape, strict=True):
            positions = range(*span.indices(size))
            touched.append(
                range(min(positions) // chunk, max(positions) // chunk + 1)
                if positions
                else range(0)
            )
        for numbers in itertools.product(*touched):
            name = self.chunk_name(numbers)
            start = self.files.start(name)
            if start is None:
                continue
            head, size = start
            if size > 2 * unpacked + CHUNK_OVERHEAD_BYTES:
                raise ValueError(f"{name} has {size} bytes for {unpacked}")
            if self.packed_by_blosc and len(head) < BLOSC_HEADER.size:
                raise ValueError(f"{name} has {size} bytes")
            if self.packed_by_blosc:
                declared, _, packed = BLOSC_HEADER.unpack(head)
                if packed != size or declared != unpacked:
                    raise ValueError(
                        f"{name} has {size} bytes, and declares {packed} of {declared}"
                    )


def _describe(files: Files, process: _ZarrFile, options: ReadOptions) -> Recording:
    """Returns the scan with what the store says of it."""
    path = files.path
    name = _find(files, path, options.dataset)
    metadata = _checked(files, path, name)
    count = len(metadata["shape"])
    of_quantem = _quantem(files, process, name, count)
    of_ome = ome_zarr.stated_axes(partial(_attributes, files), name, count)
    if of_quantem:
        described = of_quantem[0]
    elif of_ome is not None:
        described = of_ome
    else:
        described = [_axis(files, name, index) for index in range(count)]
    array = _opened(files, process, name)
    if list(array.shape) != list(metadata["shape"]):
        raise InputError(f"{path} is damaged: {name or 'its array'} has two shapes")
    layout = arrange(array, options, path, order=axis_order(described))
    calibration = layout.calibration(described)
    if of_quantem:
        calibration |= of_quantem[1]
    signal = name.rpartition("/")[0]
    microscope = _attributes(files, f"{signal}/metadata/Acquisition_instrument/TEM")
    energy_kev = positive(microscope.get("beam_energy"))
    return layout.recording(
        NAME,
        path,
        energy_ev=energy_kev and 1e3 * energy_kev,
        semiangle_mrad=finite(microscope.get("convergence_angle")) or None,
        normalised=_attributes(files, f"{signal}/metadata/Signal").get("quantity") == UNITS["cbed"],
        metadata={"dataset": name},
        **calibration,
    )


def _find(files: Files, path: Path, name: str | None) -> str:
    """Returns the name of the array that is asked for, or `only_array`."""
    if name is not None:
        name = name.strip("/")
        if ".." in name.split("/") or not _array_json(files, name):
            raise InputError(f"{path} has no array {shorten(name)}")
        return name
    names = {array_path.rpartition("/")[0] for array_path in files.names()}
    image = ome_zarr.finest(partial(_attributes, files), names, LEAST_AXES)
    if image is not None and image.arrays[0] in names:
        return image.arrays[0]
    shapes = {
        array_path: _array_json(files, array_path).get("shape") for array_path in sorted(names)
    }
    return only_array(
        {array_path: len(shape) for array_path, shape in shapes.items() if isinstance(shape, list)},
        path,
    )


def _array_json(files: Files, name: str) -> Json:
    """Returns the metadata of an array; empty if it is none."""
    three = files.json(f"{name}/zarr.json".lstrip("/"))
    if is_array(three):
        return three
    return {} if three else files.json(f"{name}/.zarray".lstrip("/"))


def _checked(files: Files, path: Path, name: str, ranks: tuple[int, ...] = (3, 4, 5)) -> Json:
    """Returns the metadata of an array that holds plain numbers, packed by known codecs, in chunks
    of bounded size.
    """
    metadata = _array_json(files, name)
    place = f"{path}, {shorten(name) or 'its array'},"
    shape = metadata.get("shape")
    if (
        not isinstance(shape, list)
        or len(shape) not in ranks
        or not all(isinstance(n, int) and n > 0 for n in shape)
    ):
        raise InputError(
            f"{place} has the shape {shorten(shape)}: patterns have four axes, or three with "
            "--scan-shape"
        )
    try:
        dtype = np.dtype(str(metadata.get("dtype", metadata.get("data_type"))))
    except TypeError:
        dtype = np.dtype("V")
    if dtype.kind not in "uif":
        raise InputError(f"{place} holds no plain numbers")
    unknown = sorted(set(_codecs(metadata)) - CODECS)
    if unknown:
        raise InputError(
            f"{place} is packed by {shorten(', '.join(unknown))}: of the codecs {len(CODECS)} are "
            "read"
        )
    grid = metadata.get("chunk_grid")
    chunks = metadata.get("chunks")
    if isinstance(grid, dict) and isinstance(grid.get("configuration"), dict):
        chunks = grid["configuration"].get("chunk_shape")
    if not isinstance(chunks, list) or not all(isinstance(n, int) and n > 0 for n in chunks):
        raise InputError(f"{place} has chunks of the shape {shorten(chunks)}")
    if math.prod(chunks) * dtype.itemsize > CHUNK_BYTES:
        raise InputError(
            f"{place} has chunks of {math.prod(chunks) * dtype.itemsize} bytes, at most "
            f"{CHUNK_BYTES}"
        )
    declared = math.prod(shape) * dtype.itemsize
    reach = COMPRESSION
    stored = files.stored_bytes(name, declared // reach)
    if declared > UNWRITTEN_BYTES + reach * stored:
        raise InputError(f"{place} declares {declared} bytes, of which the store holds {stored}")
    return metadata


def _codecs(metadata: Json) -> Iterator[str]:
    """Yields the names of all codecs."""
    for key in ("compressor", "filters", "codecs", "index_codecs"):
        listed = metadata.get(key)
        if listed is None:
            continue
        for codec in listed if isinstance(listed, list) else [listed]:
            if not isinstance(codec, dict):
                yield str(codec)
                continue
            yield str(codec.get("id", codec.get("name")))
            inner = codec.get("configuration")
            if isinstance(inner, dict):
                yield from _codecs(inner)


def _opened(files: Files, process: _ZarrFile, name: str) -> _ZarrPatterns:
    for metadata_name in METADATA:  # what the package reads
        start = files.start(f"{name}/{metadata_name}".lstrip("/"))
        if start and start[1] > JSON_BYTES:
            raise InputError(
                f"{files.path}: {shorten(name)}/{metadata_name} has more than {JSON_BYTES} bytes"
            )
    description = process.request("describe", path=name)
    array = Hdf5Dataset(
        process,
        name,
        tuple(description["shape"]),
        np.dtype(description["dtype"]),
        tuple(description["chunks"]),
    )
    metadata = _array_json(files, name)
    return _ZarrPatterns(
        array, files, _chunk_name(metadata, name), _packed_by_blosc(metadata, files.path)
    )


def _chunk_name(metadata: Json, array: str) -> Callable[[tuple[int, ...]], str]:
    """Returns what names a chunk, or a shard, by its numbers."""
    folder = array
    separator = metadata.get("dimension_separator", ".")
    between = "/"
    if "codecs" in metadata:
        encoding = metadata["chunk_key_encoding"]
        default = encoding["name"] == "default"
        separator = encoding.get("configuration", {}).get("separator", "/" if default else ".")
        folder, between = (f"{array}/c", separator) if default else (array, "/")
    return lambda numbers: f"{folder}{between}{separator.join(map(str, numbers))}".lstrip("/")


def _packed_by_blosc(metadata: Json, path: Path) -> bool:
    """Returns whether the bytes of a chunk are of Blosc."""
    used = "blosc" in _codecs(metadata)
    if used and "codecs" in metadata and metadata["codecs"][-1].get("name") != "blosc":
        raise InputError(
            f"{path} is packed by blosc within shards or below other codecs, which is not read"
        )
    return used


# ---- HyperSpy's axes


def _axis(files: Files, array: str, axis: int) -> FileAxis:
    """Returns an axis as HyperSpy stores it beside the array."""
    stored = _attributes(files, f"{array.rpartition('/')[0]}/axis-{axis}")
    units = stored.get("units")
    scale, offset = (as_number(stored.get(key)) for key in ("scale", "offset"))
    name = shorten(str(stored.get("name") or ""), 40)
    return FileAxis(shorten(units, 40) if isinstance(units, str) else "", scale, offset, name)


# ---- quantem's axes


def _quantem(
    files: Files, process: _ZarrFile, array: str, count: int
) -> tuple[list[FileAxis], CalibrationFacts] | None:
    """Returns the axes of quantem's Dataset4dstem, and its angle and exchange of axes, which are
    namsa's.

    Of what quantem saves (`AutoSerialize`, version 1) arrays and attributes are read, and no
    object: `None` for others.
    """
    group, _, name = array.rpartition("/")
    saved = _attributes(files, group).get("_autoserialize")
    if name != "_array" or not isinstance(saved, dict) or saved.get("version") != 1:
        return None
    inside = f"{group}/".lstrip("/")
    numbers = []
    for suffix in ("_sampling", "_origin"):
        if _checked(files, files.path, inside + suffix, (1,))["shape"] != [count]:
            raise InputError(f"{files.path} is damaged: {suffix} is not of {count} axes")
        numbers.append(_opened(files, process, inside + suffix)[(slice(0, count),)].tolist())
    units = [_attributes(files, f"{inside}_units").get(str(index)) for index in range(count)]
    axes = []
    for unit, step, origin in zip(units, *numbers, strict=True):
        axes.append(FileAxis(shorten(str(unit or ""), 40), step, origin))
    known = _attributes(files, f"{inside}_metadata")
    rotation = finite(known.get("q_to_r_rotation_ccw_deg", known.get("r_to_q_rotation_cw_deg")))
    stated: CalibrationFacts = {}
    if rotation is not None:
        stated["rotation_deg"] = rotation
    if isinstance(known.get("q_transpose"), bool):
        stated["flip"] = known["q_transpose"]
    return axes, stated


def _attributes(files: Files, group: str) -> Json:
    """Returns the attributes of a group; empty if there are none."""
    with suppress(InputError):
        attributes = files.json(f"{group}/.zattrs".lstrip("/")) or files.json(
            f"{group}/zarr.json".lstrip("/")
        )
        inner = attributes.get("attributes", attributes)
        return inner if isinstance(inner, dict) else {}
    return {}
