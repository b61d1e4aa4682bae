"""The file formats that hold scans of patterns, one module each.

Every module has `NAME`, `SUFFIXES`, `recognises` and `open_recording`. A file is recognised by its
first bytes, and by its suffix where they say nothing.

Other packages add formats as entry points of the group `namsa.formats`, each a module like these.
They are asked for files that no module of this package recognises.
"""

import functools
import importlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Protocol, cast

from namsa.base.errors import InputError, WorkError
from namsa.base.files import open_regular
from namsa.base.missing_files import no_file
from namsa.base.registry import entry_points
from namsa.base.text import shorten
from namsa.io.formats import (
    blockfile,
    empad,
    frame_files,
    frms6,
    gatan,
    hdf5,
    k2is,
    matlab,
    merlin,
    mrc,
    norpix,
    numpy_array,
    raw,
    tia,
    tvips,
    zarr_store,
)
from namsa.io.read_options import ReadOptions
from namsa.io.recording import Recording

HEAD_BYTES = 4096


class Format(Protocol):
    """A module of this package."""

    @property
    def NAME(self) -> str:
        """Name of the format."""

    @property
    def SUFFIXES(self) -> tuple[str, ...]:
        """Endings of its files' names."""

    def recognises(self, path: Path, head: bytes, /) -> bool:
        """Returns whether a file of these first bytes is of the format."""

    def open_recording(
        self, path: Path, options: ReadOptions, /
    ) -> AbstractContextManager[Recording]:
        """Opens the scan in a file. Patterns are read when they are asked for, unless the format
        packs them as a whole.

        Args:
            path: The file, any of several that belong together, or a folder.
            options: What the caller says of the layout: it completes what the file says, or stands
                in its place.

        Raises:
            InputError: If the file is of another kind, damaged or cut short, holds no scan or
                several, or if neither it nor the caller says the scan's shape.
        """


FORMATS: tuple[Format, ...] = (
    *(
        hdf5,
        frms6,
        merlin,
        gatan,
        blockfile,
        tia,
        numpy_array,
        mrc,
        norpix,
        k2is,
        zarr_store,
        tvips,
        matlab,
        empad,
        frame_files,
        raw,
    ),
)
GROUP = "namsa.formats"  # of entry points
_PARTS = ("NAME", "SUFFIXES", "recognises", "open_recording")
WITH_DATASETS: tuple[Format, ...] = (hdf5, zarr_store, numpy_array, matlab)


@contextmanager
def open_file(path: Path, options: ReadOptions) -> Iterator[Recording]:
    """Opens the scan in a file. Raises InputError if it cannot be read, or an option does not go
    with it.
    """
    module = find_format(path, options)
    if options.dataset is not None and module not in WITH_DATASETS:
        raise InputError(
            f"--dataset is {shorten(options.dataset)}, and files of {module.NAME} hold one array"
        )
    with ExitStack() as stack:
        try:
            recording = stack.enter_context(module.open_recording(path, options))
        except (InputError, WorkError, OSError, MemoryError):
            raise
        except (
            Exception
        ) as error:  # a file may hold what no reader expects; none of it is a fault of the program
            message = f"{type(error).__name__}: {shorten(error, 200)}"
            raise InputError(
                f"cannot read {path} as {module.NAME}: it is damaged ({message})"
            ) from error
        yield recording


def find_format(path: Path, options: ReadOptions) -> Format:
    """Returns the format of a file.

    Args:
        options: If they describe a file without a format, it is read so.

    Raises:
        InputError: If there is no such file, or if nothing says what its format is.
    """
    if not os.path.exists(path):
        if frame_files.is_pattern(path):
            return frame_files
        raise no_file(path)
    head = b""
    if not os.path.isdir(path):
        with open_regular(path) as file:
            head = file.read(HEAD_BYTES)
        if not head:
            raise InputError(f"{path} is empty: it has 0 bytes")
    if options.is_raw:
        return raw
    formats = (*FORMATS, *formats_of_others())
    for module in formats:
        if module.recognises(path, head):
            return module
    if head.startswith(zarr_store.ARCHIVE):
        raise InputError(
            f"{path} is a zip archive without a Zarr store: unpack it, and give the file that it "
            "holds"
        )
    suffix = path.suffix.lower()
    named = [module for module in formats if suffix in module.SUFFIXES]
    if named:  # its own reader says what is wrong with it
        return named[-1]
    if path.is_dir():
        raise InputError(
            f"{path} is a folder without a Zarr store: give a file, or '{path}/*' for frames in "
            "files"
        )
    known = ", ".join(sorted({suffix for module in formats for suffix in module.SUFFIXES}))
    raise InputError(
        f"{path} is of no known format ({known}): for plain numbers give --dtype, --detector-shape "
        "and --scan-shape"
    )


@functools.cache
def formats_of_others() -> tuple[Format, ...]:
    """Imports the formats that other packages add.

    Raises:
        InputError: If one cannot be imported, or is no format.
    """
    formats = []
    for name, reference in entry_points(GROUP).items():
        try:
            module = importlib.import_module(reference)
        except Exception as error:
            message = f"{type(error).__name__}: {shorten(error, 200)}"
            raise InputError(
                f"the format {name} of {reference} cannot be imported ({message}): repair or "
                "uninstall its package"
            ) from error
        lacking = [name for name in _PARTS if not hasattr(module, name)]
        if lacking:
            raise InputError(
                f"the format {name} of {reference} lacks {', '.join(lacking)}: repair or uninstall "
                "its package"
            )
        formats.append(cast(Format, module))
    return tuple(formats)
