"""Paths that name no plain file: pipes, devices, folders, links in a circle, names that are no text."""

import os
import random
import shutil
import socket
from pathlib import Path

import yaml
from case import Command
from configuration_cases import BASES

MODEL = "200kv-20mrad-fast"
# X is the odd path; the other files are as a command wants them.
READ = (
    "namsa simulate X --dry-run", "namsa simulate c.yaml --crystal X --dry-run",
    "namsa simulate c.yaml --dry-run --set scan={file:\xa0X}",
    "namsa simulate c.yaml --dry-run --set materials.cif=[X]",
    "namsa simulate c.yaml --dry-run --set materials={materials_project:\xa0{file:\xa0X,\xa0limit:\xa01}}",
    "namsa info X", "namsa show X --out p.png", "namsa show X/y --out p.png", "namsa verify X", "namsa verify d",
    "namsa info d", "namsa repair d", "namsa export d --out o.h5", "namsa merge d X --out m", "namsa repair X",
    "namsa export X --out o.h5", "namsa fetch X", "fcdensenet describe X",
    "train reconstruct X --checkpoint 200kv-20mrad-fast --out o.h5",
    "train reconstruct x.h5 --checkpoint X --out o.h5", "train report X", "train scaling X --json",
    "train scaling c.yaml --run X", "train scaling c.yaml --machine X", "train scaling c.yaml --measured X",
    "train scaling --compare X X", "train X --dry-run", "train calibrate X", "train pack X --out m",
)  # fmt: skip
WRITE = (
    "namsa simulate c.yaml --out X --dry-run", "namsa dataset c.yaml --out X --limit 0", "namsa export d --out X",
    "namsa merge d --out X", "namsa show d --out X", "train pack d --out X", "train scaling c.yaml --out X",
)  # fmt: skip
DEVICES = (
    "/dev/zero", "/dev/full", "/dev/stdin", "/dev/urandom", "/proc/self/mem", "/proc/self/environ", "/proc/self/fd/0",
)  # fmt: skip
ENDINGS = ("", ".yaml", ".h5", ".npy", ".csv", ".json", ".cif", ".jsonl", ".npz", ".png", ".html", ".txt")


class Paths:
    """Commands with a path that is no plain file, among good files."""

    def __init__(self, folder: Path) -> None:
        self._dataset, self._stack = folder / "whole", folder / "stack.h5"

    def case(self, rng: random.Random, folder: Path) -> Command:
        (folder / "c.yaml").write_text(yaml.safe_dump(rng.choice(BASES)))
        is_read = rng.random() < 0.75
        command = rng.choice(READ if is_read else WRITE)
        if " d" in command:
            shutil.copytree(self._dataset, folder / "d")
        if "x.h5" in command:
            shutil.copyfile(self._stack, folder / "x.h5")
        name = rng.choice(("odd", "odd", "odd", "o\xffdd\n", "-odd", "\u202eodd", "o" * 200)) + rng.choice(ENDINGS)
        odd = folder / name
        make_odd(odd, rng, is_read)
        if " d" in command and "X" not in command:  # in place of one of the dataset's files
            replaced = rng.choice(sorted(path for path in (folder / "d").iterdir() if path.is_file()))
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
        for inner in ("a.cif", "config.yaml", "metrics.jsonl", "manifest.jsonl", "evaluation.json", "shard-00000.lmdb"):
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
