"""Permanent storage ("home") of datasets and run directories that are written on node-local disks."""

from pathlib import Path
from typing import TypedDict

from namsa.dataset.shards import shard_path
from namsa.errors import WorkError

from .copies import FileState, copy_file, read_note


class KeptFiles(TypedDict):
    """What `keep_dataset` has copied."""

    rank: int  # rank whose files these are
    files: int  # number of files
    bytes: int  # their size


def keep_dataset(local: Path, home: Path, rank: int) -> KeptFiles:
    """Copies what a rank has written into a dataset: its shard, its failures and, on rank 0, the manifest.

    Files that are home already are not copied again.

    Args:
        local: The dataset on this node's disk.
        home: Where the dataset is kept.

    Raises:
        WorkError: If a file cannot be written, or a file at home has changed since it was fetched.
    """
    names = [shard_path(local, rank).name, f"failed-{rank:05d}.jsonl"]
    names += ["config.yaml", "manifest.jsonl"] if rank == 0 else []
    sizes = [size for name in names if (local / name).exists() and (size := _keep_file(local / name, home / name))]
    return {"rank": rank, "files": len(sizes), "bytes": sum(sizes)}


def _keep_file(path: Path, kept: Path) -> int:
    """Copies a file home if it is not there; returns the bytes that were copied."""
    local, note = FileState.of(path), read_note(path)
    if kept.exists():
        at_home = FileState.of(kept)
        if at_home.same_size_and_age(local):
            return 0
        if note is None or (at_home.size, at_home.mtime_ns) != (note.size, note.mtime_ns):
            raise WorkError(f"{kept} is not what {path} was made from: move one of the two away, or keep elsewhere")
    copy_file(path, kept)
    return local.size


def fetch_run(home: Path | None, run_dir: Path) -> None:
    """Copies a run directory from home if the newest checkpoint there is newer than the local one.

    Args:
        home: Where the run directory is kept; nothing is done if `None`.

    Raises:
        WorkError: If a file cannot be written.
    """
    if home and _newest_checkpoint(home) > _newest_checkpoint(run_dir):
        _copy_tree(home, run_dir)


def keep_run(run_dir: Path, home: Path | None) -> None:
    """Copies a run directory home, and removes checkpoints there that the run directory no longer has.

    Args:
        home: Where the run directory is kept; nothing is done if `None`.

    Raises:
        WorkError: If a file cannot be written.
    """
    if home:
        _copy_tree(run_dir, home)
        for checkpoint in (home / "checkpoints").glob("*"):
            if not (run_dir / "checkpoints" / checkpoint.name).exists():
                checkpoint.unlink()


def _newest_checkpoint(run_dir: Path) -> str:
    return max((path.name for path in run_dir.glob("checkpoints/step-*.npz")), default="")


def _copy_tree(source: Path, target: Path) -> None:
    """Copies files that differ in size or age; checkpoints last, so that the metrics up to each are there first."""
    files = [path for path in source.rglob("*") if path.is_file() and not path.name.startswith(".")]
    for path in sorted(files, key=lambda path: (path.parent.name == "checkpoints", path)):
        copied = target / path.relative_to(source)
        if not (copied.exists() and FileState.of(copied).same_size_and_age(FileState.of(path))):
            copy_file(path, copied)
