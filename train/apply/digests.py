"""Digests of the files of a packed network, which are compared whenever it is loaded.

`digests.json` in a model's folder holds the digest of every other file in it, and what the network
was packed of. A bit that flips in a calibration or a configuration would change numbers without a
trace. Folders of earlier versions have none: they are read, and that is noted.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NotRequired

from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from namsa.base.errors import InputError
from namsa.base.identity import compare, digest_of_file
from namsa.base.json_files import read_typed

from ..reports.results import write_json

DIGESTS = "digests.json"
# Files that change a network's answers, where there are any: the calibration of its errors, its
# out-of-distribution score, and its conversion from density to potential.
MEASURED_FILES = ("calibration.json", "familiarity.npz", "transfer.json")
REMEDY = (
    "take the folder again from where it is from; or, if its files were changed on purpose, "
    "remove "
    f"{DIGESTS}"
)


class DigestsFile(TypedDict):
    """Contents of `digests.json`."""

    files: dict[str, str]  # digest of each other file, by its name
    made_of: NotRequired[dict[str, object]]  # what the network was packed of


def write_digests(
    folder: Path, made_of: Mapping[str, object] | None = None, earlier: Path | None = None
) -> None:
    """Writes the digests of a folder's files into it.

    Args:
        folder: The folder; hidden files are left out.
        made_of: What the network was packed of, in JSON types.
        earlier: A folder whose files these will join, under the same names or others.
    """
    files: dict[str, str] = {}
    for source in (earlier, folder):
        for path in sorted(source.iterdir()) if source else ():
            if path.is_file() and not path.name.startswith(".") and path.name != DIGESTS:
                files[path.name] = digest_of_file(path)
    stated: DigestsFile = {"files": files}
    if made_of is not None:
        stated["made_of"] = dict(made_of)
    write_json(folder / DIGESTS, stated)


def renew_digests(folder: Path, new: Path) -> None:
    """Writes the digests of a packed network whose files those in another folder will replace.

    Args:
        folder: The network's folder. Nothing is written for one without digests, as a run is.
        new: The folder with the new files, which takes the digests, too.
    """
    stated = read_digests(folder)
    if stated is not None:
        write_digests(new, stated.get("made_of"), earlier=folder)


def read_digests(folder: Path) -> DigestsFile | None:
    """Returns the contents of a folder's `digests.json`; `None` without one.

    Raises:
        InputError: If it holds something else.
    """
    path = folder / DIGESTS
    if not path.is_file():
        return None
    return read_typed(DigestsFile, path, REMEDY)


def check_digests(folder: Path) -> None:
    """Compares the files of a model's folder with its digests, if it has any.

    Raises:
        InputError: If a file was changed, is missing, or was added; names each.
    """
    stated = read_digests(folder)
    if stated is None:
        return
    now = {}
    for name in dict.fromkeys([*stated["files"], *MEASURED_FILES]):
        path = folder / name
        if path.is_file():
            now[name] = digest_of_file(path)
    differences = compare(stated["files"], now)
    if differences:
        lines = "".join(f"\n  {difference}" for difference in differences)
        raise InputError(f"{folder} is not as it was packed (digests of files):{lines}\n{REMEDY}")
