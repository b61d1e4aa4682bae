"""The files of a Zarr store that are read here: metadata, and the beginnings of chunks. No link
leads out of it.
"""

import os
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from namsa.base.errors import InputError
from namsa.base.files import open_regular, read_bytes
from namsa.base.json_files import parse_json
from namsa.base.text import shorten

ARRAYS = ("zarr.json", ".zarray")
JSON_BYTES = 2**22
OBJECTS = 10_000  # folders that are visited, or members of an archive with metadata
MEMBERS = 10**6
BLOSC_HEADER = struct.Struct("<4x3I")  # bytes when unpacked, of a block, and of the chunk


@dataclass(frozen=True)
class Folder:
    """The metadata files of a folder."""

    path: Path

    def names(self) -> Iterator[str]:
        """Yields the metadata files of arrays; the folders below an array hold its chunks."""
        for index, (folder, folders, files) in enumerate(os.walk(self.path)):
            if index > OBJECTS:
                raise InputError(
                    f"{self.path} holds more than {OBJECTS} groups: name the array with --dataset"
                )
            inner = os.path.relpath(folder, self.path).replace(os.sep, "/")
            names = [name for name in ARRAYS if name in files]
            yield from (name if inner == "." else f"{inner}/{name}" for name in names)
            if ".zarray" in files or (
                "zarr.json" in files and is_array(self.json(f"{inner}/zarr.json"))
            ):
                folders.clear()

    def json(self, name: str) -> dict[str, object]:
        """Returns a metadata file; empty if there is none."""
        path = self.path / name
        if not os.path.lexists(path):
            return {}
        return _parsed(read_bytes(self._inside(path), largest_bytes=JSON_BYTES), str(path))

    def start(self, name: str) -> tuple[bytes, int] | None:
        """Returns the first bytes of a chunk, and its size; `None` if there is none."""
        path = self.path / name
        if not os.path.lexists(path):
            return None
        with open_regular(self._inside(path)) as file:
            return file.read(BLOSC_HEADER.size), os.fstat(file.fileno()).st_size

    def stored_bytes(self, array: str, enough: int) -> int:
        """Returns the size of an array's files, which are counted until it is enough."""
        total = 0
        count = 0
        for folder, _, files in os.walk(self.path / array):
            for name in files:
                total = total + os.lstat(os.path.join(folder, name)).st_size
                count = count + 1
                if total >= enough or count > MEMBERS:
                    return total
        return total

    def _inside(self, path: Path) -> Path:
        """Returns the path. Raises InputError if it is a link that leads out of the store."""
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(os.path.realpath(self.path)):
            raise InputError(
                f"{path} is a link to {real}, out of the store: copy that file into it"
            )
        return path


@dataclass(frozen=True)
class Archive:
    """The metadata files of a zip archive."""

    path: Path
    archive: zipfile.ZipFile

    def names(self) -> Iterator[str]:
        """Yields the metadata files of arrays."""
        members = self.archive.namelist()
        if len(members) > MEMBERS:
            raise InputError(
                f"{self.path} has {len(members)} members, at most {MEMBERS} are read: unpack it"
            )
        arrays = [name for name in members if name.rpartition("/")[2] in ARRAYS]
        if len(arrays) > OBJECTS:
            raise InputError(
                f"{self.path} holds more than {OBJECTS} groups: name the array with --dataset"
            )
        yield from arrays

    def json(self, name: str) -> dict[str, object]:
        """Returns a metadata file; empty if there is none."""
        try:
            with self.archive.open(name.removeprefix("./")) as file:
                data = file.read(JSON_BYTES + 1)
        except KeyError:
            return {}
        except Exception as error:  # zipfile raises what its decompressors raise
            raise InputError(
                f"cannot read {shorten(name)} in {self.path}: {shorten(error, 200)}"
            ) from None
        if len(data) > JSON_BYTES:
            raise InputError(
                f"cannot read {shorten(name)} in {self.path}: it has more than {JSON_BYTES} bytes"
            )
        return _parsed(data, f"{shorten(name)} in {self.path}")

    def start(self, name: str) -> tuple[bytes, int] | None:
        """Returns the first bytes of a chunk, and its size; `None` if there is none."""
        try:
            with self.archive.open(name) as file:
                return file.read(BLOSC_HEADER.size), self.archive.getinfo(name).file_size
        except KeyError:
            return None

    def stored_bytes(self, array: str, enough: int) -> int:
        """Returns the size of an array's members."""
        prefix = f"{array}/" if array else ""
        return sum(
            member.file_size
            for member in self.archive.infolist()
            if member.filename.startswith(prefix)
        )


def is_array(metadata: dict[str, object]) -> bool:
    """Returns whether metadata of Zarr 3 are of an array."""
    return metadata.get("node_type") == "array"


def _parsed(data: bytes, name: str) -> dict[str, object]:
    try:
        value = parse_json(data.decode(), name)
    except UnicodeDecodeError:
        raise InputError(f"cannot read {name}: it is no UTF-8") from None
    if not isinstance(value, dict):
        raise InputError(f"cannot read {name}: it is no JSON object")
    return value


Files = Folder | Archive
