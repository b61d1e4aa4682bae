"""`namsa init`: a folder to start in, with a crystal, a configuration, a notebook and
configurations of trainings.
"""

import argparse
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from namsa.base.errors import InputError
from namsa.base.folders import HIDDEN, new_folder, open_folder
from namsa.base.installation import CHECKOUT, as_installed
from namsa.cli.commands.output import print_line

NAMES = ("README.md", "SrTiO3.cif", "starter.yaml", "first_hour.ipynb", "configs")
OWN = NAMES[1:4]  # by which a folder is one of `namsa init`
STARTER = files("namsa.cli").joinpath("starter")
# hatch_build.py
CONFIGS = Path(__file__).parents[3] / "configs" if CHECKOUT else STARTER.joinpath("configs")


def init(options: argparse.Namespace) -> None:
    """Writes the starter's files into a new or empty folder, and with `--simulate` the patterns of
    its crystal.

    A folder of an earlier version, or of a run that was stopped, gets those that it lacks; the
    others stay as they are.
    """
    folder: Path = options.folder
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: name a new folder")
    there = [name for name in NAMES if (folder / name).exists()]
    if len(there) < len(NAMES):
        _write(folder, [name for name in NAMES if name not in there])
    if there:
        print_line(f"{folder} has these files already, which stay as they are: {', '.join(there)}")
    if options.simulate:
        from namsa.cli.commands.simulate import simulate
        from namsa.cli.parser import build_parser

        config, crystal, out = (
            str(folder / name) for name in ("starter.yaml", "SrTiO3.cif", "SrTiO3.h5")
        )
        simulate(
            build_parser().parse_args(["simulate", config, "--crystal", crystal, "--out", out])
        )


def _write(folder: Path, names: Sequence[str]) -> None:
    """Writes some of the starter's files."""
    others = folder.exists() and any(not path.name.startswith(HIDDEN) for path in folder.iterdir())
    if others and set(OWN) <= set(names):
        raise InputError(f"{folder} is not empty: name a new folder, or empty this one")
    # A folder that is there keeps its place: it may be the one in which the command runs.
    with open_folder(folder) if folder.exists() else new_folder(folder) as new:
        for name in names:
            _copy(CONFIGS if name == "configs" else STARTER.joinpath(name), new / name)
    print_line(f"{folder}: {', '.join(names)}")


def _copy(source: Traversable, place: Path) -> None:
    """Copies a file, or a folder with all that it has, with the commands of an installed
    package.
    """
    if source.is_dir():
        place.mkdir()
        for file in source.iterdir():
            _copy(file, place / file.name)
    else:
        text = source.read_text(encoding="utf-8")
        place.write_text(text if CHECKOUT else as_installed(text), encoding="utf-8")
