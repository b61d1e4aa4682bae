"""Reads the files that the programs of the paper's authors train from (github.com/nlaanait/namsa
and stemdl).

Three layouts are read:

- LMDB, a folder `batch_<mode>_<rank>.db`. Sample i is two records, `cbed_<i>` (n, dy, dx) and
  `2d_potential_<i>` (1, y, x), older `potential_<i>`, bytes in C order. Six header records state
  types, shapes and the beginnings of keys.
- HDF5, `batch_<mode>_<rank>.h5`, groups `<material>/sample_<n>` of `CBED` and `potential`.
- STEMDL classification (doi:10.13139/OLCF/1510313), HDF5, groups of `cbed_stack` (3, dy, dx) with
  `space_group`.

Arrays are returned as they are stored. None of the files says their units.
"""

import math
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from namsa.base.arrays import Array
from namsa.base.errors import InputError, WorkError
from namsa.base.files import open_regular, system_errors
from namsa.base.text import plural, shorten
from namsa.dataset import lmdb_structure
from namsa.io.confined_library import Value
from namsa.io.hdf5_items import Hdf5Dataset, Hdf5Group
from namsa.io.safe_hdf5 import open_hdf5

DATA_FILE = "data.mdb"  # LMDB's name of the file in its folder
HEADER = ("input_dtype", "input_shape", "output_shape", "output_dtype", "output_name", "input_name")
DTYPES = ("float16", "float32", "float64")
HEADER_BYTES = 64  # of a header record, at most
ATTRIBUTES = (
    "space_group",
    "material",
    "formula",
    "energy",
    "semi_angles",
    "d_hkl",
    "abc",
    "angles",
    "aberrations",
    # as the authors' public program writes them (nlaanait/namsa, summit_scripts)
    "energy_keV",
    "semi_angles_rad",
    "d_hkls_angstrom",
    "abc_angstrom",
    "angles_degree",
    "z_dirs",
    "y_dirs",
    "slab_t",
)
PATTERNS = "CBED"
POTENTIAL = "potential"
STACK = "cbed_stack"
AXES = {PATTERNS: (3, 4), POTENTIAL: (2, 3), STACK: (3,)}


@dataclass(frozen=True)
class StemdlSample:
    """One sample, as it is stored."""

    name: str  # its number in LMDB, the path of its group in HDF5
    # patterns (n, dy, dx), or (sy, sx, dy, dx) where an HDF5 file has them so
    patterns: Array
    # Projected potential (1, y, x), or as an HDF5 file has it; `None` in STEMDL's files.
    potential: Array | None
    # those of `ATTRIBUTES` that the group and its material have; empty for LMDB
    attributes: dict[str, Value]


@dataclass(frozen=True)
class StemdlFile:
    """An open file."""

    names: tuple[str, ...]  # the samples' names: by number in LMDB, in the file's order in HDF5
    notes: tuple[str, ...]  # what is left out, one line each
    # Returns the attributes of a sample by its name, without reading its arrays.
    attributes: Callable[[str], dict[str, Value]]
    read: Callable[[str], StemdlSample]  # returns a sample by its name


def is_hdf5(path: Path) -> bool:
    """Returns whether a file is of one of the layouts in HDF5."""
    if path.suffix.lower() not in (".h5", ".hdf5") or not os.path.isfile(path):
        return False
    try:
        with open_hdf5(path) as file:
            return bool(_groups(Hdf5Group(file, "/")))
    except InputError:
        return False


@contextmanager
def open_stemdl(path: Path | str) -> Iterator[StemdlFile]:
    """Opens a file of any of the three layouts, read sample by sample. Raises InputError if it is
    damaged.
    """
    path = Path(path)
    data = path / DATA_FILE
    if os.path.isfile(data):
        with open_regular(data) as file:
            yield _lmdb(data, file)
    elif os.path.isdir(path):
        raise InputError(
            f"{path} is a folder without {DATA_FILE}: name batch_<mode>_<rank>.db or an HDF5 file"
        )
    else:
        with open_hdf5(path) as hdf5:
            groups = _groups(Hdf5Group(hdf5, "/"))
            if not groups:
                raise InputError(
                    f"{path} holds neither {PATTERNS} with {POTENTIAL} nor {STACK} in its groups"
                )
            yield StemdlFile(
                tuple(groups),
                (),
                lambda name: _attributes(groups[name]),
                lambda name: _read_group(groups[name], name),
            )


@dataclass(frozen=True)
class _Records:
    """The records of one kind in an LMDB file."""

    prefix: str  # how their keys begin
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]

    def numbers(self, keys: dict[str, tuple[int, int]]) -> set[int]:
        """Returns the numbers of the samples that have such a record."""
        pattern = re.compile(re.escape(self.prefix) + r"(0|[1-9]\d{0,17})", re.ASCII)
        return {int(match[1]) for key in keys if (match := pattern.fullmatch(key))}


def _lmdb(path: Path, file: BinaryIO) -> StemdlFile:
    """Returns the samples of an LMDB file. LMDB itself, which trusts a file's pages, does not open
    it.
    """
    try:
        locations = lmdb_structure.locations(path)
    except lmdb_structure.StructureError as error:
        raise InputError(f"{path} is no intact LMDB file: {error.problem}") from None
    except WorkError as error:
        raise InputError(str(error)) from None
    header = {name: _header(path, file, locations, name) for name in HEADER}
    inputs = _records(path, header, "input", (3,))
    outputs = _records(path, header, "output", (2, 3))
    with_input = inputs.numbers(locations)
    with_output = outputs.numbers(locations)
    both = sorted(with_input & with_output)
    if not both:
        raise InputError(
            f"{path} holds no sample: no number has both {inputs.prefix!r} and {outputs.prefix!r}"
        )
    for records in (inputs, outputs):
        expected = math.prod(records.shape) * records.dtype.itemsize
        for sample_number in both:
            size = locations[f"{records.prefix}{sample_number}"][1]
            if size != expected:
                stated = f"{records.shape} of {records.dtype} takes {expected}"
                raise InputError(
                    f"{path}: {records.prefix}{sample_number} has {size} bytes, and the header's "
                    f"{stated}"
                )
    half = len(with_input ^ with_output)
    notes: tuple[str, ...] = ()
    if half:
        notes = (f"left out: {plural(half, 'sample')} with patterns or a potential alone",)

    def read(name: str) -> StemdlSample:
        arrays = [
            np.frombuffer(
                _bytes(path, file, locations[f"{stack.prefix}{name}"]), stack.dtype
            ).reshape(stack.shape)
            for stack in (inputs, outputs)
        ]
        return StemdlSample(name, arrays[0], arrays[1], {})

    return StemdlFile(tuple(map(str, both)), notes, lambda name: {}, read)


def _records(path: Path, header: dict[str, bytes], kind: str, axes: tuple[int, ...]) -> _Records:
    """Returns what the header says of "input" or "output"."""
    name, dtype = (header[f"{kind}_{what}"].decode(errors="replace") for what in ("name", "dtype"))
    if dtype not in DTYPES:
        raise InputError(
            f"{path}: {kind}_dtype is {shorten(repr(dtype))}, and {', '.join(DTYPES)} are read"
        )
    if not name or not name.isprintable():
        raise InputError(f"{path}: {kind}_name is {shorten(repr(name))}, which begins no key")
    stored = header[f"{kind}_shape"]
    shape = tuple(np.frombuffer(stored, "<i8").tolist()) if len(stored) % 8 == 0 else ()
    if len(shape) not in axes or min(shape) < 1:
        raise InputError(
            f"{path}: {kind}_shape is {list(shape) or stored[:16]!r}, not {axes[-1]} sides of 1 or "
            "more"
        )
    return _Records(name, np.dtype(dtype).newbyteorder("<"), shape)


def _header(path: Path, file: BinaryIO, locations: dict[str, tuple[int, int]], name: str) -> bytes:
    """Returns a record of the header."""
    if name not in locations:
        raise InputError(
            f"{path} has no header record {name}: it is not of the layout of batch_<mode>_<rank>.db"
        )
    if locations[name][1] > HEADER_BYTES:
        raise InputError(
            f"{path}: {name} has {locations[name][1]} bytes, and a header record at most "
            f"{HEADER_BYTES}"
        )
    return _bytes(path, file, locations[name])


def _bytes(path: Path, file: BinaryIO, where: tuple[int, int]) -> bytes:
    """Returns a record's bytes, which lie inside the file as it was checked."""
    start, size = where
    with system_errors(f"cannot read {path}", InputError):
        file.seek(start)
        data = file.read(size)
    if len(data) != size:
        raise InputError(
            f"{path} is cut short: {size} bytes at {start} were expected, and {len(data)} are there"
        )
    return data


def _groups(root: Hdf5Group) -> dict[str, list[Hdf5Group]]:
    """Returns the groups of each sample, outermost first, by the sample's path."""
    groups: dict[str, list[Hdf5Group]] = {}
    for name in root.children():
        outer = root.get(name)
        if not isinstance(outer, Hdf5Group):
            continue
        names = outer.children()
        if STACK in names or {PATTERNS, POTENTIAL} <= set(names):
            groups[name] = [outer]
            continue
        for inner_name in names:
            inner = outer.get(inner_name)
            if isinstance(inner, Hdf5Group) and {PATTERNS, POTENTIAL} <= set(inner.children()):
                groups[f"{name}/{inner_name}"] = [outer, inner]
    return groups


def _read_group(groups: list[Hdf5Group], name: str) -> StemdlSample:
    """Reads a sample."""
    read = partial(_read_array, groups[-1], name)
    is_stack = STACK in groups[-1].children()
    patterns = read(STACK if is_stack else PATTERNS)
    potential = None if is_stack else read(POTENTIAL)
    return StemdlSample(name, patterns, potential, _attributes(groups))


def _attributes(groups: list[Hdf5Group]) -> dict[str, Value]:
    """Returns the attributes of a sample, of which one of the inner group precedes."""
    attributes: dict[str, Value] = {}
    for group in groups:
        attributes |= group.attributes(ATTRIBUTES)
    return attributes


def _read_array(group: Hdf5Group, name: str, what: str) -> Array:
    data = group.get(what)
    if (
        not isinstance(data, Hdf5Dataset)
        or not data.is_numeric
        or len(data.shape) not in AXES[what]
    ):
        if isinstance(data, Hdf5Dataset):
            form = f"of shape {data.shape} and type {data.dtype}"
        else:
            form = "no dataset"
        axes = " or ".join(map(str, AXES[what]))
        raise InputError(
            f"{group.file.path}: {shorten(name)}: {what} is {form}, not numbers along {axes} axes"
        )
    return data[:]
