"""Odd arguments, models, outputs and paths: pipes, devices, folders, links in a circle, names that
are no text.
"""

import json
import os
import random
import shutil
import socket
import zipfile
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np
import values
import yaml
from configuration_cases import BASES
from paths import ROOT
from values import Command


class Arguments:
    """Odd arguments of the commands that read a good file."""

    OPTIONS = (
        "--energy-ev", "--semiangle-mrad", "--scan-step-angstrom", "--pixel-mrad",
        "--centre-pixels", "--rotation-deg",
        "--beam-intensity", "--thickness-angstrom", "--passes", "--refine-steps", "--dataset",
        "--formula",
    )  # fmt: skip
    WORDS = (
        "0",
        "-1",
        "1e30",
        "1e300",
        "1e-300",
        "nan",
        "inf",
        "",
        "x",
        "9" * 400,
        "1 2",
        "../x",
        "\u202e",
        "2e5",
        "20",
    )

    OUTPUTS = (
        "x.h5",
        "link.h5",
        "./x.h5",
        "x.h5/o.h5",
        "new/o.h5",
        "o.png",
        ".",
        "",
        "a" * 300,
        "/proc/o.h5",
        "o\n.h5",
    )

    def __init__(self, folder: Path) -> None:
        self._stack = folder / "stack.h5"
        if not self._stack.exists():  # it fits the shipped network for 200 kV
            with h5py.File(self._stack, "w") as file:
                file.attrs["provenance"] = json.dumps({"energy_ev": 2e5, "semiangle_mrad": 20.0})
                file["a/data"] = np.random.default_rng(0).random((6, 7, 24, 24), np.float32)
                for axis, (step, units) in enumerate(
                    ((0.4, "Å"), (0.4, "Å"), (5.0, "mrad"), (5.0, "mrad"))
                ):
                    file[f"a/dim{axis}"] = [0.0, step]
                    file[f"a/dim{axis}"].attrs["units"] = units

    def case(self, rng: random.Random, folder: Path) -> Command:
        shutil.copyfile(self._stack, folder / "x.h5")
        (folder / "link.h5").symlink_to("x.h5")
        checkpoint = rng.choice(("200kv-20mrad-fast", "nowhere", "x.h5", "", "a" * 300, "model"))
        out = "o.h5"
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
    """Copies a shipped model and damages one of its files, or declares an array that is larger than
    its file.
    """
    shutil.copytree(ROOT / "train/models/200kv-20mrad-fast", folder)
    path = folder / rng.choice(
        ("config.yaml", "weights.npz", "weights.npz", "calibration.json", "transfer.json")
    )
    action = rng.randrange(4)
    if action == 0 and path.suffix == ".json":
        with suppress(RecursionError):
            path.write_text(json.dumps(values.changed_tree(json.loads(path.read_text()), rng)))
    elif action == 1:
        path.write_bytes(rng.choice((b"", b"[" * 5000, b"\xff\xfe", b"PK\x05\x06" + bytes(18))))
    elif action == 2 and path.suffix == ".npz":
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({10 ** rng.randrange(3, 14)},), }}"  # noqa: E501
        array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
        with zipfile.ZipFile(
            path, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
        ) as archive:
            archive.writestr("header.npy", array + bytes(rng.choice((0, 10**6))))
    else:
        path.write_bytes(values.damaged(path.read_bytes(), rng))


# ---- Paths

# X is the odd path; the other files are as a command wants them.
READ = (
    "namsa simulate X --dry-run", "namsa simulate c.yaml --crystal X --dry-run",
    "namsa simulate c.yaml --dry-run --set scan={file:\xa0X}",
    "namsa simulate c.yaml --dry-run --set materials.cif=[X]",
    "namsa simulate c.yaml --dry-run --set "
    "materials={materials_project:\xa0{file:\xa0X,\xa0limit:\xa01}}",
    "namsa info X", "namsa show X --out p.png", "namsa show X/y --out p.png", "namsa verify X",
    "namsa verify d",
    "namsa info d", "namsa repair d", "namsa export d --out o.h5", "namsa merge d X --out m",
    "namsa repair X",
    "namsa export X --out o.h5", "namsa fetch X", "fcdensenet describe X",
    "train reconstruct X --checkpoint 200kv-20mrad-fast --out o.h5",
    "train reconstruct x.h5 --checkpoint X --out o.h5", "train report X", "train scaling X --json",
    "train scaling c.yaml --run X", "train scaling c.yaml --machine X",
    "train scaling c.yaml --measured X",
    "train scaling --compare X X", "train X --dry-run", "train calibrate X", "train pack X --out m",
)  # fmt: skip
WRITE = (
    "namsa simulate c.yaml --out X --dry-run", "namsa dataset c.yaml --out X --limit 0",
    "namsa export d --out X",
    "namsa merge d --out X", "namsa show d --out X", "train pack d --out X",
    "train scaling c.yaml --out X",
)  # fmt: skip
DEVICES = (
    "/dev/zero",
    "/dev/full",
    "/dev/stdin",
    "/dev/urandom",
    "/proc/self/mem",
    "/proc/self/environ",
    "/proc/self/fd/0",
)
ENDINGS = (
    "",
    ".yaml",
    ".h5",
    ".npy",
    ".csv",
    ".json",
    ".cif",
    ".jsonl",
    ".npz",
    ".png",
    ".html",
    ".txt",
)


class Paths:
    """Commands with a path that is no plain file, among good files."""

    def __init__(self, folder: Path) -> None:
        self._dataset = folder / "whole"
        self._stack = folder / "stack.h5"

    def case(self, rng: random.Random, folder: Path) -> Command:
        (folder / "c.yaml").write_text(yaml.safe_dump(rng.choice(BASES)))
        is_read = rng.random() < 0.75
        command = rng.choice(READ if is_read else WRITE)
        if " d" in command:
            shutil.copytree(self._dataset, folder / "d")
        if "x.h5" in command:
            shutil.copyfile(self._stack, folder / "x.h5")
        name = rng.choice(
            ("odd", "odd", "odd", "o\xffdd\n", "-odd", "\u202eodd", "o" * 200)
        ) + rng.choice(ENDINGS)
        odd = folder / name
        make_odd(odd, rng, is_read)
        if " d" in command and "X" not in command:  # in place of one of the dataset's files
            replaced = rng.choice(
                sorted(path for path in (folder / "d").iterdir() if path.is_file())
            )
            replaced.unlink()
            odd.rename(replaced)
        words = [word.replace("X", name).replace("\xa0", " ") for word in command.split(" ")]
        return words[0], words[1:]


def make_odd(path: Path, rng: random.Random, is_read: bool) -> None:
    """Makes `path` what no command expects; for output it leads nowhere outside of its folder."""
    action = rng.randrange(11 if is_read else 8)
    if action == 0:
        os.mkfifo(path)
    elif action == 1:
        path.symlink_to(path.name)
    elif action == 2:
        path.symlink_to(f"{path.name}.2")
        path.with_name(f"{path.name}.2").symlink_to(path.name)
    elif action == 3:
        path.symlink_to("nowhere")
    elif action == 4:
        path.mkdir()
    elif action == 5:
        path.mkdir()
        for inner in (
            "a.cif",
            "config.yaml",
            "metrics.jsonl",
            "manifest.jsonl",
            "evaluation.json",
            "shard-00000.lmdb",
        ):
            if rng.random() < 0.5:
                make_odd(path / inner, rng, is_read)
    elif action == 6:
        with socket.socket(socket.AF_UNIX) as listener:
            here = os.open(path.parent, os.O_RDONLY)  # a socket's path may have 107 bytes
            listener.bind(f"/proc/self/fd/{here}/s")
            os.close(here)
        path.with_name("s").rename(path)
    elif action == 7:
        path.touch()
    elif action == 8:
        with path.open("wb") as file:
            file.truncate(2**40)
    else:
        path.symlink_to(rng.choice(DEVICES))
