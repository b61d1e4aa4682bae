"""The file formats that hold scans of patterns, one module each.

Every module has `NAME`, `SUFFIXES`, `recognises` and `open_recording`. A file is recognised by its first bytes; the
suffix decides where those of several formats, or of none, say nothing.
"""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from namsa.io.formats import hdf5
from namsa.io.formats.options import ReadOptions
from namsa.io.recording import Recording


class Format(Protocol):
    """A module of this package."""

    @property
    def NAME(self) -> str:
        """Name of the format."""

    @property
    def SUFFIXES(self) -> tuple[str, ...]:
        """How names of its files end."""

    def recognises(self, path: Path, head: bytes, /) -> bool:
        """Returns whether a file of these first bytes is of the format."""

    def open_recording(self, path: Path, options: ReadOptions, /) -> AbstractContextManager[Recording]:
        """Opens the scan in a file."""


FORMATS: tuple[Format, ...] = (hdf5,)
