"""Odd arguments, models and outputs of the commands that read a good file."""

import json
import random
import shutil
import zipfile
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np
import values
from case import Command
from paths import ROOT


class Arguments:
    """Odd arguments of the commands that read a good file."""

    OPTIONS = (
        "--energy-ev", "--semiangle-mrad", "--scan-step-angstrom", "--pixel-mrad", "--centre-pixels", "--rotation-deg",
        "--beam-intensity", "--thickness-angstrom", "--passes", "--refine-steps", "--dataset", "--formula",
    )  # fmt: skip
    WORDS = (
        "0", "-1", "1e30", "1e300", "1e-300", "nan", "inf", "", "x", "9" * 400, "1 2", "../x", "\u202e", "2e5", "20",
    )  # fmt: skip

    OUTPUTS = (
        "x.h5", "link.h5", "./x.h5", "x.h5/o.h5", "new/o.h5", "o.png", ".", "", "a" * 300, "/proc/o.h5", "o\n.h5",
    )  # fmt: skip

    def __init__(self, folder: Path) -> None:
        self._stack = folder / "stack.h5"
        if not self._stack.exists():  # it fits the shipped network for 200 kV
            with h5py.File(self._stack, "w") as file:
                file.attrs["provenance"] = json.dumps({"energy_ev": 2e5, "semiangle_mrad": 20.0})
                file["a/data"] = np.random.default_rng(0).random((6, 7, 24, 24), np.float32)
                for axis, (step, units) in enumerate(((0.4, "Å"), (0.4, "Å"), (5.0, "mrad"), (5.0, "mrad"))):
                    file[f"a/dim{axis}"] = [0.0, step]
                    file[f"a/dim{axis}"].attrs["units"] = units

    def case(self, rng: random.Random, folder: Path) -> Command:
        shutil.copyfile(self._stack, folder / "x.h5")
        (folder / "link.h5").symlink_to("x.h5")
        checkpoint, out = rng.choice(("200kv-20mrad-fast", "nowhere", "x.h5", "", "a" * 300, "model")), "o.h5"
        if checkpoint == "model":
            _model(rng, folder / checkpoint)
        if rng.random() < 0.3:
            out = rng.choice(self.OUTPUTS)
        words = ["reconstruct", "x.h5", "--checkpoint", checkpoint, "--out", out]
        for _ in range(rng.randrange(1, 5)):
            option = rng.choice(self.OPTIONS)
            words += [option, rng.choice(self.WORDS)]
            if option == "--centre-pixels":
                words.append(rng.choice(self.WORDS))
        return "train", words


def _model(rng: random.Random, folder: Path) -> None:
    """Copies a shipped model and damages one of its files, or declares an array that is larger than its file."""
    shutil.copytree(ROOT / "train/models/200kv-20mrad-fast", folder)
    path = folder / rng.choice(("config.yaml", "weights.npz", "weights.npz", "calibration.json", "transfer.json"))
    action = rng.randrange(4)
    if action == 0 and path.suffix == ".json":
        with suppress(RecursionError):
            path.write_text(json.dumps(values.changed_tree(json.loads(path.read_text()), rng)))
    elif action == 1:
        path.write_bytes(rng.choice((b"", b"[" * 5000, b"\xff\xfe", b"PK\x05\x06" + bytes(18))))
    elif action == 2 and path.suffix == ".npz":
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({10 ** rng.randrange(3, 14)},), }}"
        array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
        with zipfile.ZipFile(path, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
            archive.writestr("header.npy", array + bytes(rng.choice((0, 10**6))))
    else:
        path.write_bytes(values.damaged(path.read_bytes(), rng))
