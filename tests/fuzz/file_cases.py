"""Crystals, positions and run directories: files of several formats whose contents are odd."""

import json
import random
import shutil
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import run_files
import values
import yaml
from configuration_cases import BASES
from paths import DATA
from values import Command

# ---- Crystals

CIFS = [path.read_bytes() for path in sorted(DATA.glob("*.cif"))]
CIF_LINES = (
    b"loop_", b"data_y", b"data_", b"_cell_length_a", b"_cell_length_a 4(99999999999)",
    b"_cell_angle_alpha 179.9999",
    b";text\nfield\n;", b";\nno end", b"'x+1/0, y, z'", b"'x*1e9, y, z'",
    b"'__import__(\"os\"), y, z'", b"'-x, -y'",
    b"'x, y, z, w'", b"'1e400*x, y, z'", b"'x, y, z'" * 50, b"\xff\xfe", b"# \xe9",
    b"Mg Mg 0 0 0 -1",
    b"Mg Mg 0 0 0 1e9", b"X X 0 0 0 1", b"Uuo118 Uuo 0 0 0 1", b"Mg2+ Mg2+ 1e300 0 0 1",
    b"D D 0.1 0.1 0.1 1",
    b"Mg ? . ? . ?", b"Mg Mg 1/3 1/3 1/3 1", b"_symmetry_Int_Tables_number 999",
    b"_symmetry_space_group_name_H-M 'F m -3 m'", b"_space_group_name_Hall 'x'",
    b"_atom_site_fract_x 0", b"save_x",
    b"global_", b"stop_", b"'", b'"', b"\x00", b"\r", b"Mg Mg 0 0 0 1\n" * 3000,
    b"_audit_creation_date " + b"a" * 10**5, b"O O 0.5 0.5 0.50001 1", b"$frame", b"[1 2]",
)  # fmt: skip


CIF_NUMBERS = (
    b"0",
    b"-1",
    b"0.05",
    b"1e-9",
    b"1e9",
    b"1e400",
    b"nan",
    b"?",
    b".",
    b"90",
    b"180",
    b"1(2",
)


def crystal(rng: random.Random, folder: Path) -> Command:
    """A CIF with odd lines, odd numbers or damaged bytes, or a changed answer of the Materials
    Project.
    """
    (folder / "c.yaml").write_text(yaml.safe_dump(BASES[2]))
    data = rng.choice(CIFS)
    action = rng.randrange(4)
    if action == 0:
        text = (DATA / "materials_project.json").read_text()
        with suppress(RecursionError, ValueError):
            text = json.dumps(values.changed_tree(json.loads(text), rng))
        data = text.encode() if rng.random() < 0.8 else values.damaged(text.encode(), rng)
        (folder / "x.json").write_bytes(data)
        section = "materials={materials_project: {file: x.json, limit: 3}}"
        return "namsa", ["simulate", "c.yaml", "--dry-run", "--set", section]
    if action == 1:
        lines = data.splitlines()
        for _ in range(rng.choice((1, 1, 2, 4))):
            at = rng.randrange(len(lines))
            lines[at : at + rng.randrange(3)] = rng.sample(CIF_LINES, 1)
        data = rng.choice((b"\n", b"\n", b"\r\n", b"\r", b"\n\n")).join(lines)
    elif action == 2:
        words = data.split(b" ")
        numbers = []
        for i, word in enumerate(words):
            if word.strip().replace(b".", b"").replace(b"-", b"").isdigit():
                numbers.append(i)
        for _ in range(rng.choice((1, 2))):
            words[rng.choice(numbers)] = rng.choice(CIF_NUMBERS) + rng.choice((b"", b"\n"))
        data = b" ".join(words)
    else:
        data = values.damaged(data, rng)
    (folder / "x.cif").write_bytes(data)
    return "namsa", ["simulate", "c.yaml", "--crystal", "x.cif", "--dry-run"]


# ---- Positions

DESCRIPTIONS = (
    "<f8",
    ">f4",
    "<i8",
    "|b1",
    "<c16",
    "|O",
    "|S8",
    "<U4",
    "|V16",
    "<M8[D]",
    "<f2",
    "<u1",
    "<f16",
    "x",
    "",
)
ROWS = (
    "1 2", "1,2", "1", "1 2 3", "nan 1", "inf,1", "1e400 1", "x y", "0x1 1", "# c", "1;2", "1 2 #",
    "\ufeff1 2",
    "1,,2", "",
)  # fmt: skip


def positions(rng: random.Random, folder: Path) -> Command:
    """Probe positions in a NumPy file or a text."""
    name = rng.choice(("p.npy", "p.npy", "p.csv", "p.txt", "p.npz", "p"))
    path = folder / name
    action = rng.randrange(4)
    if not name.endswith(".npy"):
        rows = rng.choices(ROWS, k=rng.choice((0, 1, 5, 2000))) if action else ["1 2", "3 4"]
        path.write_text(rng.choice(("\n", "\r", "\r\n", "\x00")).join(rows), newline="")
    elif action == 0:
        shape = rng.choice(
            (
                (4, 2),
                (0, 2),
                (2,),
                (),
                (10**9, 2),
                (2, 10**9),
                (2**62, 2**62),
                (-1, 2),
                (4, 2, 1),
                (1, 2),
            )
        )
        header = str(
            {"descr": rng.choice(DESCRIPTIONS), "fortran_order": rng.random() < 0.5, "shape": shape}
        )
        header = rng.choice(
            (header, header, header + " " * 70000, "(" * 500, "1+1", "{}", "__import__('os')")
        )
        version = rng.choice((1, 1, 2, 3, 9))
        if version == 1:
            size = (len(header) % 2**16).to_bytes(2, "little")
        else:
            size = len(header).to_bytes(4, "little")
        path.write_bytes(b"\x93NUMPY" + bytes((version, 0)) + size + header.encode() + bytes(64))
    else:
        array = np.array(
            rng.choice(
                ([[1, 2], [3, 4]], [[np.nan, 1]], [[1e300, 1]], [[1, 2, 3]], [], [[1e9, 1e9]] * 3)
            )
        )
        with np.errstate(all="ignore"):
            np.save(path, array.astype(rng.choice(("f8", "f4", "i4", "c8", "O"))))
        if action == 1:
            path.write_bytes(values.damaged(path.read_bytes(), rng))
    (folder / "c.yaml").write_text(yaml.safe_dump(BASES[2]))
    scan = json.dumps({"file": name})
    return "namsa", [
        "simulate",
        "c.yaml",
        "--dry-run",
        "--set",
        f"scan={scan}",
        "--set",
        "target={at: grid}",
    ]


# ---- Run directories


OF_RUNS = (
    *("report r",) * 3, "scaling --compare r s", "scaling --compare r --json", "calibrate r",
    "pack r --out m",
    "scaling c.yaml --run r --samples 100 --json",
    "reconstruct r/predictions.npz --checkpoint r --out o.h5",
)  # fmt: skip


class Runs:
    """Run directories of which one or two files are odd."""

    def __init__(self, folder: Path) -> None:
        self._run = folder / "run"
        if not self._run.exists():
            self._run.mkdir()
            (self._run / "config.yaml").write_text(yaml.safe_dump(BASES[2]))
            (self._run / "evaluation.json").write_text(json.dumps(run_files.evaluation()))
            run_files.write_metrics(self._run, range(1, 30))
            run_files.write_picture(self._run)

    def case(self, rng: random.Random, folder: Path) -> Command:
        shutil.copytree(self._run, folder / "r")
        shutil.copytree(self._run, folder / "s")
        (folder / "c.yaml").write_text(yaml.safe_dump(BASES[2]))
        for name in rng.sample(
            ("config.yaml", "metrics.jsonl", "evaluation.json", "predictions.npz"),
            rng.choice((1, 1, 2)),
        ):
            _damage(folder / "r" / name, rng)
        return "train", rng.choice(OF_RUNS).split()


def _damage(path: Path, rng: random.Random) -> None:
    action = rng.randrange(4)
    if path.suffix == ".npz":
        _damage_arrays(path, rng)
    elif action == 0:
        path.write_bytes(values.damaged(path.read_bytes(), rng))
    elif action == 1:
        odd = (
            "", "null", "[]", "{}", "[" * 10**5, '{"run": 1}', "NaN", '"\\ud800"', "9" * 5000,
            "{}\n{}", "\x00",
            "-" * 400,
        )  # fmt: skip
        path.write_text(rng.choice(odd))
    else:
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        load = yaml.safe_load if path.suffix == ".yaml" else json.loads
        for _ in range(rng.choice((1, 1, len(lines)))):
            at = rng.randrange(len(lines))
            with suppress(RecursionError, ValueError):
                lines[at] = json.dumps(values.changed_tree(load(lines[at]), rng))
        path.write_text("\n".join(lines) + "\n")


def _damage_arrays(path: Path, rng: random.Random) -> None:
    """Changes the facts or an array of `predictions.npz`, or the archive."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    action = rng.randrange(5)
    name = rng.choice(list(arrays))
    if action == 0:
        path.write_bytes(values.damaged(path.read_bytes(), rng))
        return
    if action == 1:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(rng.choice(("metadata.npy", "../x.npy", "a" * 300)), bytes(10**7))
        return
    if action == 2:
        with suppress(RecursionError, ValueError):
            arrays["metadata"] = np.array(
                json.dumps(values.changed_tree(json.loads(str(arrays["metadata"])), rng))
            )
    elif action == 3:
        plain = (np.array(1.0), np.array("x"), np.zeros((0, 3)), np.zeros((2, 2, 2, 2, 2)))
        arrays[name] = rng.choice(
            (*plain, np.full((3, 4), np.nan), np.full((4, 5), 1e300), np.ones((1, 1)) * 1j)
        )
    else:
        del arrays[name]
    np.savez_compressed(path, **arrays)
