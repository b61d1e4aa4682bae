"""Digests of the files that samples were taken from, so that replaced files are noticed.

`stemdl-files.json` in data.directory has the digest of each file, and its state by which a file is
known to be unchanged without being read again: size, times of the last change of contents and of
its entry in the file system, and number. A file that was copied or touched is read again, which
takes as long as reading it.
"""

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from namsa.base.errors import SimulationWarning
from namsa.base.files import system_errors, write_text_atomic
from namsa.base.identity import check_same, digest_of_file
from namsa.base.json_files import read_typed
from namsa.dataset import manifest
from namsa.exchange.stemdl import DATA_FILE

FILE_NAME = "stemdl-files.json"


class FileDigest(TypedDict):
    """The digest of a file, and its state when it was read."""

    digest: str
    state: list[int]  # size, times of the last changes in ns, number of the file


def file_digests(directory: Path, files: Sequence[Path]) -> dict[str, FileDigest]:
    """Returns the digests of files by name. Those that are as they were are not read again.

    Args:
        directory: The folder of the samples.
        files: The files, or folders of LMDB.

    Raises:
        InputError: If a file cannot be read.
    """
    known = _stored(directory)
    digests: dict[str, FileDigest] = {}
    for path in files:
        contents = path / DATA_FILE if path.is_dir() else path
        with system_errors(f"cannot read {contents}"):
            status = contents.stat()
            state = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
            if path.name in known and known[path.name]["state"] == state:
                digests[path.name] = known[path.name]
            else:
                digests[path.name] = {"digest": digest_of_file(contents), "state": state}
    return digests


def check_unchanged(directory: Path, digests: Mapping[str, FileDigest]) -> None:
    """Compares files with those that the samples in a folder were taken from, and stores their
    digests.

    Raises:
        InputError: If a file has other contents, is new, or is missing.

    Warns:
        SimulationWarning: If the samples were taken by a version that stored no digests.
    """
    known = _stored(directory)
    if known:
        check_same(
            f"the dataset in {directory}",
            _contents(known),
            _contents(digests),
            changes_nothing=lambda key: False,
            remedy=f"give it a directory of its own, or delete {directory} to start anew",
        )
    elif (directory / manifest.FILE_NAME).exists():
        warnings.warn(
            f"{directory} does not say the digests of the files that its samples were taken from: "
            "those of today's files are stored, and compared from now on",
            SimulationWarning,
            stacklevel=2,
        )
    if known != digests:
        text = json.dumps(digests, indent=1, sort_keys=True)
        write_text_atomic(directory / FILE_NAME, text + "\n")


def _contents(digests: Mapping[str, FileDigest]) -> dict[str, str]:
    """Returns the digests of contents by the names of files."""
    return {name: file["digest"] for name, file in digests.items()}


def _stored(directory: Path) -> dict[str, FileDigest]:
    """Returns the digests in a folder; empty without any."""
    path = directory / FILE_NAME
    if not path.exists():
        return {}
    return read_typed(
        dict[str, FileDigest], path, f"delete it if the files in {directory} are right"
    )
