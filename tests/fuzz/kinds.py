"""Kinds of hostile input: each prepares a folder once, then makes one case after another from a random generator.

A case is a folder with files and the command line that reads them. Every kind goes through the public commands.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import configuration_cases
import file_cases
import measured_cases
from argument_cases import Arguments, Paths
from dataset_cases import Datasets
from values import Command


@dataclass(frozen=True)
class Kind:
    """A kind of input.

    Attributes:
        name: Its name on the command line.
        case: Writes the files of one case into a folder and returns the program and its arguments.
        programs: The programs that it may return.
        seconds: Wall time that a case may take.
    """

    name: str
    case: Callable[[random.Random, Path], Command]
    programs: tuple[str, ...] = ("namsa",)
    seconds: float = 10.0


def kinds(folder: Path) -> Iterator[Kind]:
    """Returns all kinds; `folder` holds what they share."""
    datasets, arguments = Datasets(folder), Arguments(folder)
    yield Kind("configuration", configuration_cases.configuration, ("namsa", "fcdensenet"))
    yield Kind("extreme", configuration_cases.extreme, ("namsa", "fcdensenet"))
    yield Kind("override", configuration_cases.override)
    yield Kind("cif", configuration_cases.cif)
    yield Kind("hdf5-bytes", measured_cases.hdf5_bytes, ("namsa", "train"))
    yield Kind("hdf5-structure", measured_cases.hdf5_structure, ("namsa", "train"))
    yield Kind("measured", measured_cases.measured)
    yield Kind("side-files", datasets.side_files)
    yield Kind("records", datasets.records)
    yield Kind("repaired", datasets.repaired, ("repaired",))
    yield Kind("arguments", arguments.case, ("train",))
    yield Kind("yaml", configuration_cases.yaml_text, ("namsa", "fcdensenet"))
    yield Kind("overrides", configuration_cases.overrides)
    yield Kind("crystals", file_cases.crystal)
    yield Kind("positions", file_cases.positions)
    yield Kind("runs", file_cases.Runs(folder).case, ("train",))
    yield Kind("paths", Paths(folder).case, ("namsa", "fcdensenet", "train"))
