"""Hostile files of microscopes and detectors: every format, with changed bytes, cut short, or longer."""

import random
import struct
from collections.abc import Callable
from pathlib import Path

import measured_files
import numpy as np
import values
from case import Command

HEADER_BYTES = 1200  # most of what can go wrong is in them
ODD = (0, 1, 0x7F, 0x80, 0xFF)
SHAPES = ("3x4", "4x3", "1x12", "2x4", "1000000x1000000", "0x4", "x", "3")
DTYPES = ("u1", "u2", ">u4", "f8", "c8", "O", "S3", "2u2", "f16", "x", "")
EMPAD = '<root><raw_file filename="scan.raw"/><pix_x>4</pix_x><pix_y>3</pix_y><high_voltage>2e5</high_voltage></root>'


def _mib(path: Path, rng: random.Random) -> Path:
    kind, depth = rng.choice((("U08", 6), ("U16", 12), ("U32", 24), ("R64", 1), ("R64", 6), ("R64", 12), ("R64", 24)))
    data = measured_files.patterns("u4", detector=(4, 128), largest=2**depth - 1)
    measured_files.write_mib(path / "scan.mib", data, kind, depth, rng.random() < 0.3)
    if rng.random() < 0.5:
        measured_files.write_hdr(path / "scan.hdr", ScanX=rng.choice((4, 0, 10**6)), ScanY=rng.choice((3, "x", -1)))
    return path / "scan.mib"


def _dm(path: Path, rng: random.Random) -> Path:
    axes = [(0.5, 0.0, "nm"), (0.4, 0.0, "nm"), (0.1, 4.0, "1/nm"), (0.2, 2.0, "mrad")]
    data, version = measured_files.patterns(), rng.choice((3, 4))
    measured_files.write_dm(
        path / f"scan.dm{version}",
        data if rng.random() < 0.7 else data.reshape(12, 6, 8),
        axes,
        version=version,
        order=rng.choice("<>"),
        swapped=rng.choice((True, False, None)),
    )
    return path / f"scan.dm{version}"


def _blo(path: Path, rng: random.Random) -> Path:
    measured_files.write_blo(path / "scan.blo", measured_files.patterns("u1", detector=(6, 6)))
    return path / "scan.blo"


def _mrc(path: Path, rng: random.Random) -> Path:
    mode, order = rng.choice((0, 1, 2, 6, 12)), rng.choice("<>")
    measured_files.write_mrc(
        path / "scan.mrc", measured_files.patterns(largest=100), order, mode, rng.choice((None, 2e5))
    )
    return path / "scan.mrc"


def _ser(path: Path, rng: random.Random) -> Path:
    measured_files.write_ser(path / "scan_1.ser", measured_files.patterns(), rng.choice((0x210, 0x220)))
    return path / "scan_1.ser"


def _npy(path: Path, rng: random.Random) -> Path:
    data = measured_files.patterns()
    np.save(path / "scan.npy", np.asfortranarray(data) if rng.random() < 0.5 else data)
    return path / "scan.npy"


def _empad(path: Path, rng: random.Random) -> Path:
    with (path / "scan.raw").open("wb") as file:
        file.truncate(12 * 130 * 128 * 4)
    (path / "scan.xml").write_text(EMPAD)
    return path / rng.choice(("scan.raw", "scan.xml"))


def _raw(path: Path, rng: random.Random) -> Path:
    (path / "scan.bin").write_bytes(measured_files.patterns().tobytes())
    return path / "scan.bin"


FORMATS: tuple[Callable[[Path, random.Random], Path], ...] = (
    _mib,
    _mib,
    _dm,
    _dm,
    _blo,
    _mrc,
    _ser,
    _npy,
    _empad,
    _raw,
)


def measured(rng: random.Random, folder: Path) -> Command:
    """A file of a detector whose bytes, size or description is changed."""
    path = rng.choice(FORMATS)(folder, rng)
    damaged = folder / "scan.xml" if path.suffix == ".raw" else path
    data = bytearray(damaged.read_bytes())
    for _ in range(rng.choice((0, 1, 2, 8))):
        at = rng.randrange(min(len(data), rng.choice((64, HEADER_BYTES, len(data)))))
        if rng.random() < 0.5:
            data[at] = rng.choice(ODD)
        else:  # a count or an offset
            size = rng.choice((0, 1, 2**15, 2**31 - 1, 2**31, 2**32 - 1))
            data[at : at + 4] = struct.pack(rng.choice("<>") + "I", size)
    action = rng.randrange(8)
    if action == 0:
        data = data[: rng.randrange(len(data))]
    elif action == 1:
        data += bytes(rng.randrange(1, 5000))
    elif action == 2:
        data = bytearray(values.damaged(bytes(data), rng))
    damaged.write_bytes(bytes(data))
    return "namsa", [*_command(path, rng), *_options(path, rng)]


def _command(path: Path, rng: random.Random) -> list[str]:
    return ["show", path.name, "--out", "p.html"] if rng.random() < 0.2 else ["info", path.name]


def _options(path: Path, rng: random.Random) -> list[str]:
    options = ["--scan-shape", "3x4" if rng.random() < 0.7 else rng.choice(SHAPES)] if rng.random() < 0.8 else []
    if path.suffix == ".bin" or rng.random() < 0.1:
        options += ["--detector-shape", rng.choice(("6x8", *SHAPES)), "--dtype", rng.choice(("u2", *DTYPES))]
        options += ["--offset-bytes", str(rng.choice((0, 0, 1, -1, 10**15)))]
    if rng.random() < 0.1:
        options += ["--flyback", str(rng.choice((0, 2, -1, 10**7)))]
    return options
