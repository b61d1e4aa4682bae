"""Hostile files of patterns: every format with changed bytes, cut short, or longer, and objects of
HDF5 replaced.
"""

import random
import shutil
import struct
from contextlib import suppress
from pathlib import Path

import h5py
import measured_files
import numpy as np
import values
from paths import DATA
from values import Command

HEADER_BYTES = 1200  # most of what can go wrong is in them
ODD = (0, 1, 0x7F, 0x80, 0xFF)
SHAPES = ("3x4", "4x3", "1x12", "2x4", "1000000x1000000", "0x4", "x", "3")
DTYPES = ("u1", "u2", ">u4", "f8", "c8", "O", "S3", "2u2", "f16", "x", "")
EMPAD = (
    "<root><raw_file "
    'filename="scan.raw"/><pix_x>4</pix_x><pix_y>3</pix_y><high_voltage>2e5</high_voltage></root>'
)


def write_scan(folder: Path, rng: random.Random) -> Path:
    """Writes a scan in the format of some detector; returns the file that is read."""
    suffix = rng.choice(("mib", "mib", "dm3", "dm4", "blo", "mrc", "ser", "npy", "raw", "bin"))
    data = measured_files.patterns()
    path = folder / f"scan.{suffix}"
    match suffix:
        case "mib":
            kinds = (
                ("U08", 6),
                ("U16", 12),
                ("U32", 24),
                ("R64", 1),
                ("R64", 6),
                ("R64", 12),
                ("R64", 24),
            )
            kind, depth = rng.choice(kinds)
            data = measured_files.patterns("u4", detector=(4, 128), largest=2**depth - 1)
            measured_files.write_mib(path, data, kind, depth, rng.random() < 0.3)
            if rng.random() < 0.5:
                shape = {"ScanX": rng.choice((4, 0, 10**6)), "ScanY": rng.choice((3, "x", -1))}
                measured_files.write_hdr(folder / "scan.hdr", **shape)
        case "dm3" | "dm4":
            axes = [(0.5, 0.0, "nm"), (0.4, 0.0, "nm"), (0.1, 4.0, "1/nm"), (0.2, 2.0, "mrad")]
            data = data if rng.random() < 0.7 else data.reshape(12, 6, 8)
            options = {"order": rng.choice("<>"), "swapped": rng.choice((True, False, None))}
            measured_files.write_dm(path, data, axes, version=int(suffix[2]), **options)
        case "blo":
            measured_files.write_blo(path, measured_files.patterns("u1", detector=(6, 6)))
        case "mrc":
            data = measured_files.patterns(largest=100)
            mode = rng.choice((0, 1, 2, 6, 12))
            order = rng.choice("<>")
            measured_files.write_mrc(path, data, order, mode, rng.choice((None, 2e5)))
        case "ser":
            measured_files.write_ser(path, data, rng.choice((0x210, 0x220)))
        case "npy":
            np.save(path, np.asfortranarray(data) if rng.random() < 0.5 else data)
        case "raw":
            with path.open("wb") as file:
                file.truncate(12 * 130 * 128 * 4)
            (folder / "scan.xml").write_text(EMPAD)
            path = folder / rng.choice(("scan.raw", "scan.xml"))
        case _:
            path.write_bytes(data.tobytes())
    return path


def measured(rng: random.Random, folder: Path) -> Command:
    """A file of a detector whose bytes, size or description is changed."""
    path = write_scan(folder, rng)
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
    words = ["show", path.name, "--out", "p.html"] if rng.random() < 0.2 else ["info", path.name]
    if rng.random() < 0.8:
        words += ["--scan-shape", "3x4" if rng.random() < 0.7 else rng.choice(SHAPES)]
    if path.suffix == ".bin" or rng.random() < 0.1:
        words += [
            "--detector-shape",
            rng.choice(("6x8", *SHAPES)),
            "--dtype",
            rng.choice(("u2", *DTYPES)),
        ]
        words += ["--offset-bytes", str(rng.choice((0, 0, 1, -1, 10**15)))]
    if rng.random() < 0.1:
        words += ["--flyback", str(rng.choice((0, 2, -1, 10**7)))]
    return "namsa", words


# ---- HDF5

FOREIGN = [
    path for path in sorted((DATA / "fourd").iterdir()) if path.suffix in (".h5", ".hspy", ".emd")
]


def hdf5_bytes(rng: random.Random, folder: Path) -> Command:
    """A 4D-STEM file with flipped bytes, most of them in its metadata."""
    data = bytearray(rng.choice(FOREIGN).read_bytes())
    for _ in range(rng.choice((1, 2, 8))):
        data[rng.randrange(min(len(data), rng.choice((100, 4096, len(data)))))] = rng.randrange(256)
    (folder / "x.h5").write_bytes(bytes(data))
    return _read_hdf5(rng)


def hdf5_structure(rng: random.Random, folder: Path) -> Command:
    """A 4D-STEM file whose objects are replaced: scalars, strings, links in a circle, virtual
    datasets, no data.
    """
    path = folder / "x.h5"
    shutil.copyfile(rng.choice(FOREIGN), path)
    with h5py.File(path, "r+") as file:
        names: list[str] = []
        file.visit(names.append)
        for _ in range(rng.choice((1, 1, 2, 3))):
            with suppress(Exception):
                _damage_object(file, rng.choice(names), rng)
    return _read_hdf5(rng)


def _damage_object(file: h5py.File, name: str, rng: random.Random) -> None:
    item = file[name]
    action = rng.randrange(10)
    if action < 3 and len(item.attrs):
        key = rng.choice(list(item.attrs))
        if action == 0:
            del item.attrs[key]
        else:
            item.attrs[key] = rng.choice(
                (0, -1.5, np.nan, np.inf, b"x", "", "{", [1, 2], h5py.Empty("f"), 10**18, "../x")
            )
        return
    del file[name]
    if action == 3:
        return
    if action == 4:
        file[name] = rng.choice((0, 1.5, b"x", "words", np.nan))
    elif action == 5:
        file[name] = h5py.SoftLink(rng.choice((f"/{name}", "/nowhere", "/")))
    elif action == 6:
        file[name] = h5py.ExternalLink(rng.choice(("/etc/passwd", "x.h5", "nowhere.h5")), "/")
    elif action == 7:
        shape = rng.choice(
            (
                (0, 4, 5, 6),
                (4, 5, 0, 0),
                (10**6, 10**6, 8, 8),
                (1, 1, 1, 1),
                (),
                (3,),
                (2, 2, 2, 2, 2),
            )
        )
        if np.prod(shape, dtype=float) > 1e8:
            chunks = tuple(min(4, max(n, 1)) for n in shape)
        else:
            chunks = None
        file.create_dataset(
            name, shape, rng.choice(("u2", "f4", "f8", "c8", "S4", "i8")), chunks=chunks
        )
    elif action == 8:
        layout = h5py.VirtualLayout((4, 5, 6, 8), "u2")
        layout[...] = h5py.VirtualSource(rng.choice((".", "x.h5", "other.h5")), name, (4, 5, 6, 8))
        file.create_virtual_dataset(name, layout)
    else:
        file.create_group(name)


RECONSTRUCT = "train reconstruct x.h5 --checkpoint 200kv-20mrad-fast --out o.h5"
GIVEN = "--energy-ev 2e5 --semiangle-mrad 20 --scan-step-angstrom 0.4 --pixel-mrad 1"
READ = ("namsa info x.h5", "namsa show x.h5 --out p.png", RECONSTRUCT, f"{RECONSTRUCT} {GIVEN}")


def _read_hdf5(rng: random.Random) -> Command:
    program, *words = rng.choice(READ).split()
    return program, words
