"""`namsa examples`: measured scans to try the guides on, fetched from a server and compared with
their checksums.
"""

import argparse
import hashlib
import os
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from namsa.base.errors import InputError, WorkError
from namsa.base.files import open_atomic, open_regular, system_errors
from namsa.base.outputs import check_output
from namsa.base.text import shorten
from namsa.cli.commands.output import print_json, print_line, progress_bars

# the environment variable with the address of the folder of these files
ADDRESS = "NAMSA_EXAMPLES_URL"
SCHEMES = ("http://", "https://", "file://")
TRIES = 4
TIMEOUT_S = 30
PIECE_BYTES = 2**18


class Example(NamedTuple):
    """A file that is no part of the package."""

    name: str  # of the file
    bytes: int  # its size
    sha256: str  # digest of its contents
    about: str  # what it holds
    options: str  # what it does not say of itself, as options of a command
    licence: str  # and whose it is
    source: str  # what it was made from


def _rotavirus(name: str, size: int, sha256: str, about: str, pixel_mrad: str) -> Example:
    known = (
        "--energy-ev 300e3 --semiangle-mrad 1.026 --scan-step-angstrom 31.25 "
        f"--pixel-mrad {pixel_mrad}"
    )
    licence = "MIT, © 2023 Xiaopeng Wu, Yu Lei"
    source = "test_data of SeanXPWu/Ptycho.jl"
    return Example(
        f"rotavirus_{name}.h5",
        size,
        sha256,
        f"measured scan of rotavirus, {about}",
        known,
        licence,
        source,
    )


EXAMPLES = (
    _rotavirus(
        "127x127x64x64_bin4_uint16",
        41149467,
        "349915e32a37ec0da6108696b4e1ea966dbed150c213f5328b6a24db7fc70a84",
        "127 × 127 patterns of 64 × 64 pixels, sums of 4 × 4",
        "0.066152",
    ),
    _rotavirus(
        "32x32x64x64_bin4_crop_uint16",
        2580822,
        "28ab9e7a20482f01fc56e6a5ada2ed05ffcd34db236363a38b5ac710a15ab535",
        "a part of it: 32 × 32 patterns",
        "0.066152",
    ),
    _rotavirus(
        "4x4x256x256_crop_uint8",
        256120,
        "3b46673510cb916360b78e49da2bf9b432b8ff78c32211899aedf608a5456ea5",
        "a part as recorded: 4 × 4 patterns of 256 × 256 pixels",
        "0.016538",
    ),
)


def examples(options: argparse.Namespace) -> None:
    """Lists the examples, or fetches those that are named.

    Raises:
        InputError: If there is no such example, no address, or another file of its name.
        WorkError: If the server does not answer, or with other bytes.
    """
    if options.action is None:
        _list(options.json)
        return
    chosen = _chosen(options.names)
    base = _address(options.source or os.environ.get(ADDRESS, ""))
    for example in chosen:
        path = options.out / example.name
        check_output(path, makes_folders=True)
        if not os.path.lexists(path):
            fetch(example, base, path)
            print_line(f"{path}: {example.about}; {example.options}")
        elif is_intact(path, example):
            print_line(f"{path}: there already, as it should be")
        else:
            raise InputError(
                f"{path} is there, and not this example: move it, or name another folder with --out"
            )


def _list(as_json: bool) -> None:
    """Prints what there is."""
    if as_json:
        print_json([example._asdict() for example in EXAMPLES])
        return
    for example in EXAMPLES:
        megabytes = f"{example.bytes / 1e6:.1f} MB"
        print_line(f"{example.name}  {megabytes}, {example.licence}, from {example.source}")
        print_line(f"    {example.about}; {example.options}")


def _chosen(names: Sequence[str]) -> list[Example]:
    """Returns the examples of these names. Raises InputError if there are no names, or one is of no
    example.
    """
    known = {example.name: example for example in EXAMPLES}
    for name in names or [""]:
        if name not in known:
            raise InputError(f"no example {shorten(name)}: name one or more of {', '.join(known)}")
    return [known[name] for name in names]


def _address(base: str) -> str:
    """Returns the address of the folder of the files, which may be a path. Raises InputError."""
    if not base:
        raise InputError(
            f"namsa has no server of its own yet: give --from URL, or set {ADDRESS}=URL"
        )
    if "://" not in base:
        if not os.path.isdir(base):
            raise InputError(f"--from {shorten(base)}: there is no such folder")
        base = Path(base).absolute().as_uri()
    if not base.startswith(SCHEMES):
        raise InputError(
            f"--from {shorten(base)}: give an address that begins with {', '.join(SCHEMES)}"
        )
    return base


def is_intact(path: Path, example: Example) -> bool:
    """Returns whether a file is an example."""
    with open_regular(path) as file:
        return os.fstat(file.fileno()).st_size == example.bytes and _sha256(file) == example.sha256


def _sha256(file: Any) -> str:
    """Returns the digest of an open file from where it stands."""
    # typeshed: BinaryIO lacks the readinto that file_digest takes
    return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(example: Example, base: str, path: Path) -> None:
    """Fetches an example to a file, which appears only when it is complete and has the right
    digest.

    A connection that breaks is opened again, where it broke if the server offers that, or else from
    the start.

    Args:
        base: Address of the folder on the server.
        path: The file, which is not there.

    Raises:
        WorkError: If the server does not answer, or with other bytes, or the file cannot be
            written.
    """
    address = f"{base.rstrip('/')}/{example.name}"
    reason = "the connection broke"
    with open_atomic(path, replace=False, parents=True) as file, progress_bars() as bars:
        task = bars.add_task(example.name, total=example.bytes)
        for _ in range(TRIES):
            try:
                _receive(
                    address, file, example.bytes, lambda count: bars.update(task, completed=count)
                )
            except HTTPError as error:
                raise WorkError(
                    f"{address}: the server answers {error.code} {error.reason}: check --from"
                ) from None
            except (OSError, HTTPException) as error:
                reason = shorten(str(getattr(error, "reason", "") or error), 200)
            if file.tell() >= example.bytes:
                break
        size = file.tell()
        if size < example.bytes:
            raise WorkError(
                f"{address}: {size} of {example.bytes} bytes in {TRIES} tries, {reason}: run it "
                "again"
            )
        file.seek(0)
        if size > example.bytes or _sha256(file) != example.sha256:
            raise WorkError(
                f"{address} is another file than {example.name}: its checksum differs; nothing was "
                "kept"
            )
    if not is_intact(path, example):
        raise WorkError(f"{path} was written by another program meanwhile, and was left as it is")


def _receive(address: str, file: BinaryIO, size: int, on_progress: Callable[[int], None]) -> None:
    """Adds what one connection brings to a file, one byte more than its size at most."""
    at = file.tell()
    headers = {"Range": f"bytes={at}-"} if at else {}
    with urlopen(Request(address, headers=headers), timeout=TIMEOUT_S) as response:
        if not str(response.headers.get("Content-Range")).startswith(f"bytes {at}-"):
            file.seek(0)
            file.truncate()
        while piece := response.read(min(PIECE_BYTES, size + 1 - file.tell())):
            with system_errors(f"cannot write {file.name}"):
                file.write(piece)
            on_progress(file.tell())
