"""Hostile HDF5 files."""

import random
import shutil
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np
from case import Command
from paths import DATA

FOREIGN = [path for path in sorted((DATA / "fourd").iterdir()) if path.suffix in (".h5", ".hspy", ".emd")]


def hdf5_bytes(rng: random.Random, folder: Path) -> Command:
    """A 4D-STEM file with flipped bytes, most of them in its metadata."""
    data = bytearray(rng.choice(FOREIGN).read_bytes())
    for _ in range(rng.choice((1, 2, 8))):
        data[rng.randrange(min(len(data), rng.choice((100, 4096, len(data)))))] = rng.randrange(256)
    (folder / "x.h5").write_bytes(bytes(data))
    return _read_hdf5(rng)


def hdf5_structure(rng: random.Random, folder: Path) -> Command:
    """A 4D-STEM file whose objects are replaced: scalars, strings, links in a circle, virtual datasets, no data."""
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
        shape = rng.choice(((0, 4, 5, 6), (4, 5, 0, 0), (10**6, 10**6, 8, 8), (1, 1, 1, 1), (), (3,), (2, 2, 2, 2, 2)))
        chunks = tuple(min(4, max(n, 1)) for n in shape) if np.prod(shape, dtype=float) > 1e8 else None
        file.create_dataset(name, shape, rng.choice(("u2", "f4", "f8", "c8", "S4", "i8")), chunks=chunks)
    elif action == 8:
        layout = h5py.VirtualLayout((4, 5, 6, 8), "u2")
        layout[...] = h5py.VirtualSource(rng.choice((".", "x.h5", "other.h5")), name, (4, 5, 6, 8))
        file.create_virtual_dataset(name, layout)
    else:
        file.create_group(name)


def _read_hdf5(rng: random.Random) -> Command:
    overrides = ["--energy-ev", "2e5", "--semiangle-mrad", "20", "--scan-step-angstrom", "0.4", "--pixel-mrad", "1"]
    reconstruct = ["reconstruct", "x.h5", "--checkpoint", "200kv-20mrad-fast", "--out", "o.h5"]
    return rng.choice(
        (
            ("namsa", ["info", "x.h5"]),
            ("namsa", ["show", "x.h5", "--out", "p.png"]),
            ("train", reconstruct),
            ("train", [*reconstruct, *overrides]),
        )
    )
