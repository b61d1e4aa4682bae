"""Copies of files: there whole or not at all, of their original's age, and known for what they are copies of.

A copy is written as `.NAME.part`, brought to the disk and renamed. One that was staged has a note beside it,
`.NAME.copied`: the original's size and time, and the digest of the bytes that came. So a later run can tell a copy
that is still what it was from one that this node has added to since, and neither is ever replaced by mistake.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from namsa.dataset.shards import shard_path
from namsa.errors import InputError, WorkError
from namsa.files import sync_folder, write_text_atomic

PIECE_BYTES = 2**22


@dataclass(frozen=True)
class Original:
    """A file as it was when it was listed."""

    name: str
    size: int
    mtime_ns: int

    @classmethod
    def at(cls, path: Path) -> "Original":
        stat = path.stat()
        return cls(path.name, stat.st_size, stat.st_mtime_ns)

    def looks_like(self, other: "Original") -> bool:
        """Same size and age, in whole seconds: not every file system keeps more."""
        return (self.size, self.mtime_ns // 10**9) == (other.size, other.mtime_ns // 10**9)


def digest_of(pieces: Iterable[bytes]) -> str:
    """A file's digest from its pieces' xxh3_128, which are worked out wherever the pieces are."""
    return xxhash.xxh3_128_hexdigest(b"".join(pieces))


def partial(path: Path) -> Path:
    """Where `path` is written until it is whole."""
    return path.with_name(f".{path.name}.part")


def _note(path: Path) -> Path:
    return path.with_name(f".{path.name}.copied")


def finish(path: Path, original: Original, piece_bytes: int, digest: str) -> None:
    """Makes a copy of what was written as `partial(path)`."""
    note = {"size": original.size, "mtime_ns": original.mtime_ns, "piece_bytes": piece_bytes, "digest": digest}
    with partial(path).open("rb") as file:
        os.fsync(file.fileno())
    os.utime(partial(path), ns=(original.mtime_ns, original.mtime_ns))
    write_text_atomic(_note(path), json.dumps(note))
    partial(path).replace(path)
    sync_folder(path.parent)


def is_there(path: Path, original: Original) -> bool:
    """Whether `path` is a whole copy of `original`, by every byte; False where it is none or one of an earlier state.

    Raises InputError where `path` is neither: what it holds may exist nowhere else.
    """
    if not path.exists():
        return False
    local, note = Original.at(path), _read_note(path)
    current = note is not None and (note["size"], note["mtime_ns"]) == (original.size, original.mtime_ns)
    if note and note["digest"] == digest_of(_digests(path, note["piece_bytes"])):
        return current
    if not current and local.looks_like(original):  # the original is a copy of this, see `keep`
        return True
    raise InputError(
        f"{path} ({local.size:,} bytes) is no copy of {original.name} ({original.size:,} bytes), or has changed since "
        "it was copied: move it away, or stage into another folder"
    )


def _read_note(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(_note(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _digests(path: Path, piece_bytes: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield xxhash.xxh3_128_digest(file.read(piece_bytes))  # an empty file has one piece, an empty one
        while piece := file.read(piece_bytes):
            yield xxhash.xxh3_128_digest(piece)


# ---- From the node-local disk home ----------------------------------------------------------------------------------


def keep(local: Path, home: Path, rank: int) -> dict[str, int]:
    """Copies home what `rank` has written into a dataset's folder: its shard, its failures, and on rank 0 the list.

    What is there already is not copied again. Returns {"rank", "files", "bytes"} of what was.
    Raises WorkError where a file cannot be written, or where one at home has changed since it was fetched.
    """
    names = [shard_path(local, rank).name, f"failed-{rank:05d}.jsonl"]
    names += ["config.yaml", "manifest.jsonl"] if rank == 0 else []
    copied = [size for name in names if (local / name).exists() and (size := _keep(local / name, home / name))]
    return {"rank": rank, "files": len(copied), "bytes": sum(copied)}


def _keep(path: Path, kept: Path) -> int:
    mine, note = Original.at(path), _read_note(path)
    if kept.exists():
        theirs = Original.at(kept)
        if theirs.looks_like(mine):
            return 0
        if note is None or (theirs.size, theirs.mtime_ns) != (note["size"], note["mtime_ns"]):
            raise WorkError(f"{kept} is not what {path} was made from: move one of the two away, or keep elsewhere")
    copy(path, kept)
    return mine.size


def bring(home: Path | None, run_dir: Path) -> None:
    """Takes a run directory up from `home`, where that has got further. Raises WorkError where it cannot be written."""
    if home and _newest_checkpoint(home) > _newest_checkpoint(run_dir):
        _copy_tree(home, run_dir)


def take(run_dir: Path, home: Path | None) -> None:
    """Makes `home` a copy of the run directory. Raises WorkError where it cannot be written."""
    if home:
        _copy_tree(run_dir, home)
        for old in (home / "checkpoints").glob("*"):
            if not (run_dir / "checkpoints" / old.name).exists():
                old.unlink()


def _newest_checkpoint(run_dir: Path) -> str:
    return max((path.name for path in run_dir.glob("checkpoints/step-*.npz")), default="")


def _copy_tree(source: Path, target: Path) -> None:
    """What differs in size or age; checkpoints last, so that one that is there has its metrics beside it."""
    files = [path for path in source.rglob("*") if path.is_file() and not path.name.startswith(".")]
    for path in sorted(files, key=lambda path: (path.parent.name == "checkpoints", path)):
        copied = target / path.relative_to(source)
        if not (copied.exists() and Original.at(copied).looks_like(Original.at(path))):
            copy(path, copied)


def copy(path: Path, copied: Path) -> None:
    """One file, with its age. Raises WorkError where it changes meanwhile, or cannot be written."""
    try:
        original = Original.at(path)
        copied.parent.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as file, partial(copied).open("wb") as out:
            shutil.copyfileobj(file, out, PIECE_BYTES)
            out.flush()
            os.fsync(out.fileno())
        if Original.at(path) != original or partial(copied).stat().st_size != original.size:
            raise WorkError(f"{path} has changed while it was copied: run again when nothing writes to it")
        os.utime(partial(copied), ns=(original.mtime_ns, original.mtime_ns))
        partial(copied).replace(copied)
        sync_folder(copied.parent)
    except OSError as error:
        raise WorkError(f"cannot copy {path} to {copied}: {error.strerror}") from None
