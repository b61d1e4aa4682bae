"""What a case is: a folder with files and the command line that reads them."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Command = tuple[str, list[str]]
Case = Callable[[random.Random, Path], Command]


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
    case: Case
    programs: tuple[str, ...] = ("namsa",)
    seconds: float = 10.0
