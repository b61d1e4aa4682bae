"""Files that are there whole or not at all, also after a power cut."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from namsa.errors import WorkError


@contextmanager
def writing(path: Path, replace: bool = True) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` once it is whole; without `replace`, one that is there stays.

    Raises WorkError where it cannot be written.
    """
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if replace:
            partial.replace(path)
        else:
            with suppress(FileExistsError):
                path.hardlink_to(partial)
        sync_folder(path.parent)
    except OSError as error:
        raise WorkError(f"cannot write {path}: {error.strerror}") from None
    finally:
        with suppress(OSError):  # where the folder cannot be written, there is nothing to remove
            partial.unlink(missing_ok=True)


def write_whole(path: Path, text: str, replace: bool = True) -> None:
    """Writes a file of text as `writing` does."""
    with writing(path, replace) as file:
        file.write(text.encode())


def append_line(path: Path, line: str) -> None:
    """Adds a line, which is on the disk when this returns; one that a crash cut short stays a line of its own.

    Raises WorkError where it cannot be written.
    """
    try:
        new = not path.exists()
        with path.open("ab+") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - 1))
            cut_short = end > 0 and file.read(1) != b"\n"
            file.write(b"\n" * cut_short + line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if new:
            sync_folder(path.parent)
    except OSError as error:
        raise WorkError(f"cannot write {path}: {error.strerror}") from None


def make_folder(path: Path) -> None:
    """Makes `path` and its parents, where missing. Raises WorkError where that cannot be done."""
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        for folder in new:
            sync_folder(folder.parent)
    except OSError as error:
        raise WorkError(f"cannot make {path}: {error.strerror}") from None


def sync_folder(path: Path) -> None:
    """Brings the names in a folder onto the disk: syncing a file does not do that for its name."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
