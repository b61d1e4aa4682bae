"""Copies of files that are complete or absent, keep the age of their original, and are recognised
as its copies.

A copy is written as `.NAME.part`, flushed to the disk and renamed. A staged copy has a note beside
it, `.NAME.copied`, with the digests of the original's contents and of the copied bytes. A later run
can so tell an unchanged copy from one that this node has added to since, and a copy of the original
from one of a file that was there before; it never replaces either by mistake.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, TypedDict

import xxhash
from pydantic import Field

from namsa.base.errors import InputError, WorkError
from namsa.base.files import open_in_place, sync_folder, system_errors, write_text_atomic
from namsa.base.identity import digest_of_file
from namsa.base.json_files import Count, read_typed
from namsa.dataset.contents import digest_of_contents
from namsa.dataset.shards import shard_path

BUFFER_BYTES = 2**22


@dataclass(frozen=True)
class FileState:
    """A file at the time when it was listed."""

    name: str  # name without the folder
    size: int  # bytes
    mtime_ns: int  # time of the last modification, ns
    # digest of the contents, as of `namsa.dataset.contents`; empty where they were not read
    contents: str = field(default="", compare=False)

    @classmethod
    def of(cls, path: Path) -> "FileState":
        """Returns the current state of a file."""
        stat = path.stat()
        return cls(path.name, stat.st_size, stat.st_mtime_ns)


@dataclass(frozen=True)
class CopyNote:
    """Contents of `.NAME.copied`."""

    size: Count  # bytes of the original
    mtime_ns: Count  # time of the original, ns
    # bytes of each piece whose digest was computed
    piece_bytes: Annotated[int, Field(gt=0, lt=2**40)]
    digest: str  # digest of the file; see `digest_of`
    contents: str = ""  # as of `FileState`; empty in notes of earlier versions

    def is_of(self, original: FileState) -> bool:
        """Returns whether the copy was made from an original as it is now."""
        if self.contents:
            return self.contents == original.contents
        return (self.size, self.mtime_ns) == (original.size, original.mtime_ns)


def digest_of(piece_digests: Iterable[bytes]) -> str:
    """Returns the digest of a file from the xxh3_128 of its pieces, which any rank may have
    computed.
    """
    return xxhash.xxh3_128_hexdigest(b"".join(piece_digests))


def partial_path(path: Path) -> Path:
    """Returns where `path` is written until it is complete."""
    return path.with_name(f".{path.name}.part")


def _note_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.copied")


def finish_copy(path: Path, original: FileState, piece_bytes: int, digest: str) -> None:
    """Turns `partial_path(path)` into a complete copy."""
    partial = partial_path(path)
    note = CopyNote(original.size, original.mtime_ns, piece_bytes, digest, original.contents)
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    os.utime(partial, ns=(original.mtime_ns, original.mtime_ns))
    write_text_atomic(_note_path(path), json.dumps(asdict(note)))
    partial.replace(path)
    sync_folder(path.parent)


def is_complete_copy(path: Path, original: FileState) -> bool:
    """Returns whether a file is a complete copy of an original, compared by digest, and not of an
    earlier state of it.

    Args:
        original: With the digest of its contents.

    Raises:
        InputError: If the file is neither: its contents may exist nowhere else.
    """
    if not path.exists():
        return False
    note = read_note(path)
    current = note is not None and note.is_of(original)
    if note and note.digest == digest_of(_piece_digests(path, note.piece_bytes)):
        return current
    # the original may be a copy of this one, see `keep_dataset`
    if not current and digest_of_contents(path) == original.contents:
        return True
    raise InputError(
        f"{path} ({path.stat().st_size:,} bytes) is no copy of {original.name} ({original.size:,} "
        "bytes), or has changed since it was copied: move it away, or stage into another folder"
    )


def read_note(path: Path) -> CopyNote | None:
    """Returns the note of a copy; `None` if it has none that can be read."""
    try:
        return read_typed(CopyNote, _note_path(path), "stage the dataset again")
    except InputError:
        return None


def _piece_digests(path: Path, piece_bytes: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield xxhash.xxh3_128_digest(file.read(piece_bytes))  # an empty file has one empty piece
        while piece := file.read(piece_bytes):
            yield xxhash.xxh3_128_digest(piece)


def copy_file(path: Path, copied: Path) -> None:
    """Copies one file, with its time of modification. Raises WorkError if it changes meanwhile."""
    partial = partial_path(copied)
    with system_errors(f"cannot copy {path} to {copied}"):
        original = FileState.of(path)
        copied.parent.mkdir(parents=True, exist_ok=True)
        partial.unlink(missing_ok=True)
        with path.open("rb") as file, os.fdopen(open_in_place(partial), "wb") as out:
            shutil.copyfileobj(file, out, BUFFER_BYTES)
            out.flush()
            os.fsync(out.fileno())
        if FileState.of(path) != original or partial.stat().st_size != original.size:
            raise WorkError(
                f"{path} has changed while it was copied: run again when nothing writes to it"
            )
        os.utime(partial, ns=(original.mtime_ns, original.mtime_ns))
        partial.replace(copied)
        sync_folder(copied.parent)


class KeptFiles(TypedDict):
    """The files that `keep_dataset` has copied."""

    rank: int  # rank whose files these are
    files: int  # number of files
    bytes: int  # their size


def keep_dataset(local: Path, home: Path, rank: int) -> KeptFiles:
    """Copies what a rank has written into a dataset: its shard, its failures and, on rank 0, the
    manifest.

    Files that are home already are not copied again.

    Raises:
        WorkError: If a file cannot be written, or a file at home has changed since it was fetched.
    """
    names = [shard_path(local, rank).name, f"failed-{rank:05d}.jsonl"]
    if rank == 0:
        names += ["config.yaml", "manifest.jsonl"]
    kept: KeptFiles = {"rank": rank, "files": 0, "bytes": 0}
    for name in names:
        if not (local / name).exists():
            continue
        size = _keep_file(local / name, home / name)
        if size:
            kept["files"] += 1
            kept["bytes"] += size
    return kept


def _keep_file(path: Path, kept: Path) -> int:
    """Copies a file home if it is not there; returns the bytes that were copied."""
    if kept.exists():
        at_home = replace(FileState.of(kept), contents=digest_of_contents(kept))
        if at_home.contents == digest_of_contents(path):
            return 0
        note = read_note(path)
        if note is None or not note.is_of(at_home):
            raise WorkError(
                f"{kept} is not what {path} was made from: move one of the two away, or keep "
                "elsewhere"
            )
    copy_file(path, kept)
    return kept.stat().st_size


def fetch_run(home: Path | None, run_dir: Path) -> None:
    """Copies a run directory from home, if it has one, if the newest checkpoint there is newer than
    the local one.
    """
    if home and _newest_checkpoint(home) > _newest_checkpoint(run_dir):
        _copy_tree(home, run_dir)


def keep_run(run_dir: Path, home: Path | None) -> None:
    """Copies a run directory home, if it has one, and removes checkpoints there that it no longer
    has.
    """
    if home:
        _copy_tree(run_dir, home)
        for checkpoint in (home / "checkpoints").glob("*"):
            if not (run_dir / "checkpoints" / checkpoint.name).exists():
                checkpoint.unlink()


def _newest_checkpoint(run_dir: Path) -> str:
    return max((path.name for path in run_dir.glob("checkpoints/step-*.npz")), default="")


def _copy_tree(source: Path, target: Path) -> None:
    """Copies files that differ; checkpoints last, so that the metrics up to each are there
    first.
    """
    files = [path for path in source.rglob("*") if path.is_file() and not path.name.startswith(".")]
    for path in sorted(files, key=lambda path: (path.parent.name == "checkpoints", path)):
        copied = target / path.relative_to(source)
        if not copied.exists() or digest_of_file(copied) != digest_of_file(path):
            copy_file(path, copied)
