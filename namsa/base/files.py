"""Atomic and durable writing: a file is complete or absent, also after a crash or a power cut.
Bounded reading.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import BinaryIO, Self

from namsa.base.errors import InputError, WorkError
from namsa.base.interrupts import uninterrupted
from namsa.base.leftovers import hidden_name, remove_leftovers
from namsa.base.text import shorten

# What a file system answers that has no hard links, or does not flush folders (FAT, some of FUSE
# and of networks).
NOT_OFFERED = {
    getattr(errno, name)
    for name in (
        "EPERM",
        "EINVAL",
        "ENOSYS",
        "ENOTSUP",
        "EOPNOTSUPP",
        "ENOTTY",
        "EMLINK",
        "EBADF",
        "EACCES",
    )
}
# Opening does not wait for a pipe's other end. Windows has neither pipes nor terminals among files,
# but a text mode.
_READ = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_BINARY"))
_WRITE_IN_PLACE = os.O_RDWR | os.O_CREAT
_WRITE_IN_PLACE |= sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))


class Closing:
    """A resource that is closed by `close`, at the end of a `with` statement at the latest."""

    def close(self) -> None:
        """Closes it."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


@contextmanager
def system_errors(failed: str, kind: type[InputError | WorkError] = WorkError) -> Iterator[None]:
    """Raises an error of a kind for one of the system: what failed, as "cannot write FILE", and the
    system's reason.
    """
    try:
        yield
    except OSError as error:
        raise kind(f"{failed}: {error.strerror or error}") from None


def read_text(path: Path, *, largest_bytes: int, kind: str = "", errors: str = "strict") -> str:
    """Returns the contents of a text file in UTF-8.

    Args:
        kind: What the file is, for the message: "the configuration".
        errors: What becomes of bytes that are not UTF-8, as `bytes.decode` has it.

    Raises:
        InputError: If the file cannot be read, is too large, or, if `errors` is "strict", is not
            UTF-8.
    """
    name = f"{kind} {shorten(str(path), 300)}".strip()
    data = read_bytes(path, largest_bytes=largest_bytes, kind=kind)
    try:
        return data.decode(errors=errors)
    except UnicodeDecodeError as error:
        raise InputError(
            f"cannot read {name}: byte {error.start} is {data[error.start]:#04x}, which is not "
            "UTF-8: save it as UTF-8"
        ) from None


def read_bytes(path: Path, *, largest_bytes: int, kind: str = "") -> bytes:
    """Returns the contents of a file; arguments as `read_text`.

    Raises:
        InputError: If the file cannot be read or is too large.
    """
    name = f"{kind} {shorten(str(path), 300)}".strip()
    with open_regular(path, kind) as file, system_errors(f"cannot read {name}", InputError):
        data = _up_to(file, largest_bytes + 1)
    if len(data) > largest_bytes:
        raise InputError(f"cannot read {name}: it has more than {largest_bytes / 2**20:g} MiB")
    return data


def _up_to(file: BinaryIO, size: int) -> bytes:
    """Returns the bytes of a file, no more than `size`, which `read` would allocate at once."""
    data = bytearray()
    while piece := file.read(min(size - len(data), 2**20)):
        data += piece
    return bytes(data)


def open_regular(path: Path, kind: str = "") -> BinaryIO:
    """Opens a file for binary reading. Every reader of files that a person names opens them here.

    A named pipe would wait for its other end, and a device may never end. Both are refused.

    Args:
        kind: What the file is, for the message: "the configuration".

    Raises:
        InputError: If there is no such file, it cannot be read, or it is no regular file.
    """
    name = f"{kind} {shorten(str(path), 300)}".strip()
    try:
        descriptor = os.open(path, _READ)
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror}") from None
    except ValueError:  # a null character, or half of one
        raise InputError(f"cannot read {name}: no file has such a name") from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise InputError(f"cannot read {name}: {os.strerror(errno.EISDIR)}")
    raise InputError(
        f"cannot read {name}: it is a pipe or a device: write its contents to a file, and name that"
    )


@contextmanager
def open_atomic(
    path: Path, replace: bool = True, buffering: int = -1, parents: bool = False
) -> Iterator[BinaryIO]:
    """Opens a hidden file of a new name beside `path`, which takes the place of `path` when the
    `with` block has ended.

    Every output of a command is written here or by `namsa.base.folders`. If the block ends by an
    exception, a signal's included, nothing is left of the hidden file, and what was at `path` is as
    before. What a killed process has left is removed by the next one that writes `path`.

    Args:
        replace: If false, a file that exists at `path` is kept and the new one is discarded.
        buffering: Of the file, as of `open`.

    Yields:
        The hidden file, open for binary writing and reading.

    Raises:
        WorkError: If the file cannot be written.
    """
    temporary = hidden_name(path)
    try:
        with system_errors(f"cannot write {path}"):
            if parents:
                path.parent.mkdir(parents=True, exist_ok=True)
            remove_leftovers(path, again=False)
            with temporary.open("x+b", buffering=buffering) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _take_place(temporary, path, replace)
    finally:
        with suppress(OSError):  # in a folder that cannot be written there is no file to remove
            temporary.unlink(missing_ok=True)


@uninterrupted
def _take_place(temporary: Path, path: Path, replace: bool) -> None:
    """Gives a complete file its name, durably."""
    if replace:
        temporary.replace(path)
    else:
        name_if_new(temporary, path)
    sync_folder(path.parent)


def name_if_new(temporary: Path, path: Path) -> None:
    """Gives a file its name unless there is one of that name."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        return
    except (
        OSError
    ) as error:  # no hard links: two processes may replace each other's file at the same instant
        if error.errno not in NOT_OFFERED:
            raise
        if not os.path.lexists(path):
            temporary.replace(path)


def write_text_atomic(path: Path, text: str, replace: bool = True) -> None:
    """Writes a text file as `open_atomic` does, in UTF-8."""
    with open_atomic(path, replace) as file:
        file.write(text.encode())


def open_in_place(path: Path, flags: int = 0) -> int:
    """Returns the descriptor of a file that is written under its own name, open for reading and
    writing.

    A link that somebody has planted there is not followed, because another file would be written.

    Args:
        flags: Further flags of `os.open`, as `os.O_APPEND`.

    Raises:
        OSError: If it cannot be opened.
        WorkError: If it is a link, another file's second name, a pipe or a device.
    """
    try:
        descriptor = os.open(path, _WRITE_IN_PLACE | flags, 0o644)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):  # a link; a pipe that nobody reads
            raise
    else:
        status = os.fstat(descriptor)
        # 0: another process has removed it meanwhile
        if stat.S_ISREG(status.st_mode) and status.st_nlink <= 1:
            return descriptor
        os.close(descriptor)
    raise WorkError(f"cannot write {path}: it is a link or no regular file: remove it")


def open_append(path: Path) -> BinaryIO:
    """Opens a file for appending and reading, and creates it if it is missing.

    Every file that grows under its own name is opened here or by `open_in_place`: a link that
    somebody has planted is not followed, also if its target is missing.

    Raises:
        WorkError: If the file cannot be written, or is a link, a pipe or a device.
    """
    with system_errors(f"cannot write {path}"):
        descriptor = open_in_place(path, os.O_APPEND)
    return os.fdopen(descriptor, "ab+")


def write_whole(file: FileIO, path: Path, data: bytes) -> None:
    """Writes all of the data to an open file without a buffer, which has nothing left to write when
    it is closed.

    Args:
        path: The file's path, for the message.

    Raises:
        WorkError: If the file cannot be written, as on a full disk.
    """
    rest = memoryview(data)
    with system_errors(f"cannot write {path}"):
        while rest:
            rest = rest[file.write(rest) :]


def append_line(path: Path, line: str) -> None:
    """Appends a line to a text file. The line is on the disk when the function returns.

    If a crash cut off the file's last line, the new one starts on a line of its own.

    Raises:
        WorkError: If the file cannot be written, or is a link.
    """
    is_new = not os.path.lexists(path)
    with system_errors(f"cannot write {path}"), open_append(path) as file:  # closing writes, too
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - 1))
        is_cut_off = end > 0 and file.read(1) != b"\n"
        if is_cut_off:
            file.write(b"\n")
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
        if is_new:
            sync_folder(path.parent)


def check_folder(path: Path) -> None:
    """Raises InputError if a path, which may be missing, is no folder."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is no folder: name another one")


def missing_folders(path: Path) -> list[Path]:
    """Returns those of a folder and its parents that are missing, the innermost first."""
    return [folder for folder in (path, *path.parents) if not folder.exists()]


def existing_folder(path: Path) -> Path:
    """Returns a folder, or the innermost of its parents that exists."""
    return next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())


@contextmanager
def folder_of_work(path: Path) -> Iterator[None]:
    """Makes a folder and its parents as `make_folder`. Those that an error leaves empty are removed
    again.
    """
    made = missing_folders(path)
    make_folder(path)
    try:
        yield
    except BaseException:
        for folder in made:
            with suppress(OSError):  # it is not empty
                folder.rmdir()
        raise


def make_folder(path: Path) -> None:
    """Creates a folder and its parents where they are missing.

    Raises:
        InputError: If the path is a file.
        WorkError: If a folder cannot be created.
    """
    check_folder(path)
    missing = missing_folders(path)
    with system_errors(f"cannot make {path}"):
        path.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            sync_folder(folder.parent)


def sync_folder(path: Path) -> None:
    """Flushes the file names in a folder to the disk. Flushing a file alone does not make its name
    durable.

    Windows does not open folders, and some file systems do not flush them: they keep names with
    their own journal.
    """
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NOT_OFFERED:
            raise
    finally:
        os.close(descriptor)
