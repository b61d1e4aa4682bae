"""Reading of NumPy's files that people and other programs may have changed: every fault is one
InputError.

NumPy allocates what an array's header declares before it reads the array. The header is therefore
compared with the size of the file first. Python objects are refused: to read them is to run code of
whoever wrote them.
"""

import math
import os
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import IO

import numpy as np

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.files import open_regular
from namsa.base.text import shorten

MOST_MEMBERS = 20_000  # in an archive; each takes 0.1 ms

_HEADER_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
# What NumPy's parser of headers raises for malformed ones.
_HEADER_FAULTS = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    SyntaxError,
    RecursionError,
    tokenize.TokenError,
)
# What zipfile raises for malformed archives.
ARCHIVE_FAULTS = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    NotImplementedError,
    ValueError,
    LookupError,
)


def read_npy(path: Path, *, largest_bytes: int, kind: str = "") -> Array:
    """Returns the array in a NumPy file (.npy). It is read-only.

    Args:
        kind: What the file is, for the message: "scan.file".

    Raises:
        InputError: If the file cannot be read, is too large, or holds anything but one array of
            plain values.
    """
    name = f"{kind} {shorten(str(path), 300)}".strip()
    with open_regular(path, kind) as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest_bytes:
            raise InputError(f"cannot read {name}: it has more than {largest_bytes / 2**20:g} MiB")
        return read_array(file, size, name)


def read_npz(
    path: Path, *, largest_bytes: int, kind: str = "", names: Collection[str] | None = None
) -> dict[str, Array]:
    """Returns the arrays in an archive of NumPy (.npz) by name. They are read-only.

    Args:
        largest_bytes: Largest size of all arrays together, unpacked.
        names: The arrays that are read; `None` reads all.

    Raises:
        InputError: If the file cannot be read, its arrays are too large, or it holds anything but
            arrays of plain values.
    """
    name = f"{kind} {shorten(str(path), 300)}".strip()
    with open_regular(path, kind) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return dict(_read_members(archive, name, largest_bytes, names))
        except InputError:
            raise
        except ARCHIVE_FAULTS as error:
            raise InputError(
                f"{name} is no archive of arrays: {shorten(error, 200) or type(error).__name__}"
            ) from None


def _read_members(
    archive: zipfile.ZipFile, name: str, largest_bytes: int, names: Collection[str] | None
) -> list[tuple[str, Array]]:
    """Returns the arrays of an archive with their names."""
    members = archive.infolist()
    if any(member.flag_bits & 1 for member in members):
        raise InputError(f"{name} is no archive of arrays: it is encrypted")
    methods = {member.compress_type for member in members}
    if not methods <= {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise InputError(f"{name} is no archive of arrays: NumPy does not pack them so")
    distinct_names = {_array_name(member) for member in members}
    if len(members) > MOST_MEMBERS or len(distinct_names) < len(members):
        raise InputError(
            f"{name} is no archive of arrays: it has two of one name, or more than {MOST_MEMBERS}"
        )
    if sum(member.file_size for member in members) > largest_bytes:
        raise InputError(f"{name}: its arrays have more than {largest_bytes / 2**20:g} MiB")
    arrays = []
    for member in members:
        array_name = _array_name(member)
        if names is not None and array_name not in names:
            continue
        with archive.open(member) as file:  # gives no more bytes than the archive declares
            array = read_array(file, member.file_size, f"{name}, {shorten(array_name)}")
            arrays.append((array_name, array))
    return arrays


def _array_name(member: zipfile.ZipInfo) -> str:
    """Returns the name of the array in a member."""
    return member.filename.removesuffix(".npy")


def read_header(file: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Reads the header of an array from its first byte on; the file is then at the array's first
    number.

    Returns:
        Shape, whether the numbers are in Fortran's order, and their type.

    Raises:
        InputError: If it is no header of NumPy, or one of Python objects.
    """
    try:
        version = np.lib.format.read_magic(file)
        if version not in _HEADER_READERS:
            raise ValueError(f"its version is {version[0]}.{version[1]}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the header of an old file takes longer to read
            shape, fortran_order, dtype = _HEADER_READERS[version](file)
    except _HEADER_FAULTS as error:
        raise InputError(f"{name} holds no NumPy array: {shorten(error, 200)}") from None
    if dtype.hasobject:
        raise InputError(f"{name} holds Python objects, which are never read: save plain numbers")
    return shape, fortran_order, dtype


def read_array(file: IO[bytes], size: int, name: str) -> Array:
    """Returns the array in a file of `size` bytes, read-only. Raises InputError if it is another or
    none.
    """
    shape, fortran_order, dtype = read_header(file, name)
    count = math.prod(shape)
    rest = size - file.tell()
    if min(shape, default=0) < 0 or not dtype.itemsize or count * dtype.itemsize != rest:
        raise InputError(
            f"{name} declares {dtype} of shape {shorten(shape)}, and {rest} bytes follow: save it "
            "again"
        )
    data = file.read(rest)
    if len(data) != rest:
        raise InputError(f"{name} is cut short")
    try:
        return np.frombuffer(data, dtype, count).reshape(shape, order="F" if fortran_order else "C")
    except (
        ValueError,
        TypeError,
    ) as error:  # sizes beside a zero that are too large, or that are no integers
        raise InputError(
            f"{name} declares the shape {shorten(shape)}: {shorten(error, 200)}"
        ) from None
