"""Kinds of hostile input: each prepares a folder once, then makes one case after another from a random generator.

A case is a folder with files and the command line that reads them. Every kind goes through the public commands.
"""

import json
import random
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import fake_samples
import h5py
import numpy as np
import values
import xxhash
import yaml
from paths import CONFIGS, DATA, ROOT

from namsa.config.simulation import SimulationConfig
from namsa.crystals.material import Material
from namsa.dataset import other_nodes
from namsa.dataset.entry import Entry
from namsa.dataset.failures import append_failure
from namsa.dataset.shard_writer import ShardWriter
from namsa.dataset.shards import Dataset, Shard, shard_path
from namsa.errors import WorkError
from namsa.sample import Sample

Command = tuple[str, list[str]]
Case = Callable[[random.Random, Path], Command]


@dataclass(frozen=True)
class Kind:
    """A kind of input.

    Attributes:
        name: Its name on the command line.
        case: Writes the files of one case into a folder and returns the program and its arguments.
        seconds: Wall time that a case may take.
    """

    name: str
    case: Case
    seconds: float = 10.0


# ---- Configurations -------------------------------------------------------------------------------------------------

BASES = [yaml.safe_load((CONFIGS / name).read_text()) for name in ("quickstart.yaml", "microscope.yaml")]
BASES.append(yaml.safe_load((DATA / "tiny.yaml").read_text()))
for _tree in BASES:
    _tree["materials"] = {"builtin": ["Al-225-cF4", "NaCl-225-cF8"]}
# Every number that the others leave at its default.
BASES.append(
    {
        "name": "full",
        "seed": 1,
        "materials": {"builtin": ["NaCl-225-cF8"], "max_atomic_number": 90, "limit": 2},
        "specimen": {
            "zone_axes": [[0, 0, 1]],
            "thickness_angstrom": [8.0],
            "lateral_angstrom": [12.0, 14.0],
            "max_strain": 0.02,
            "max_atoms": 2000,
            "frozen_phonons": {"rms_angstrom": {"Na": 0.1, "Cl": 0.08}, "configurations": 2},
        },
        "microscope": {
            "energy_ev": 2e5,
            "semiangle_mrad": 15.0,
            "aberrations": {"C12": 10.0, "phi12": 0.5, "C30": 1e4, "C50": 1e6},
            "source_size_angstrom": 0.5,
            "source_points": 2,
            "chromatic_aberration_mm": 1.2,
            "energy_spread_ev": 0.8,
            "focal_points": 2,
        },
        "variation": {
            "rule": "random",
            "configurations": 3,
            "defocus_angstrom": [-100.0, 100.0],
            "beam_tilt_mrad": [0.0, 2.0],
            "specimen_tilt_mrad": [0.0, 5.0],
            "electrons_per_pattern": [1e3, 1e5],
        },
        "scan": {"shape": [8, 12], "step_angstrom": [0.5, 0.5], "origin_angstrom": [0.1, 0.2]},
        "simulation": {"sampling_angstrom": 0.25, "slice_thickness_angstrom": 2.0},
        "detector": {"binning": 2, "max_angle_mrad": 30.0, "point_spread_pixels": 0.5},
        "target": {"at": "scan", "max_q_per_angstrom": 1.0},
        "data": {"samples_per_commit": 1},
        "network": {"input_shape": [64, 8, 12], "layers": [1, 1, 1], "growth": 4, "first_filters": 8, "dropout": 0.1},
    }
)


def configuration(rng: random.Random, folder: Path) -> Command:
    """A configuration with odd values, or damaged as text."""
    path, base = folder / "c.yaml", rng.choice(BASES)
    text = yaml.safe_dump(base).encode()
    if rng.random() < 0.6:
        with suppress(RecursionError):
            text = yaml.safe_dump(values.changed_tree(base, rng), allow_unicode=True).encode(errors="surrogatepass")
    else:
        text = values.damaged(text, rng)
    path.write_bytes(text)
    if rng.random() < 0.2:
        return "fcdensenet", ["describe", "c.yaml", "--json"]
    return "namsa", ["simulate", "c.yaml", "--dry-run"]


def extreme(rng: random.Random, folder: Path) -> Command:
    """A configuration of which some numbers are extreme."""
    (folder / "c.yaml").write_text(yaml.safe_dump(values.changed_tree(rng.choice(BASES), rng, extremes=True)))
    return rng.choice(
        (
            ("namsa", ["simulate", "c.yaml", "--dry-run"]),
            ("namsa", ["dataset", "c.yaml", "--out", "d", "--limit", "0"]),
            ("fcdensenet", ["describe", "c.yaml", "--json"]),
        )
    )


def override(rng: random.Random, folder: Path) -> Command:
    """`--set` with odd keys and values."""
    tree = rng.choice(BASES)
    (folder / "c.yaml").write_text(yaml.safe_dump(tree))
    paths = [".".join(map(str, path)) for path in values.places(tree) if path and not isinstance(path[-1], int)]
    words = [
        "2024-13-45", "2001-12-14t21:59:43.10-05:00", "9" * 5000, "[" * 2000, "{a: " * 500,
        "!!python/object:os.system x", "!!binary x", "&a [*a]", "1e400", ".inf", ".nan", "'", "\x00",
        "<<: 1", "? x", "0x" + "f" * 5000, "=", "!!set {a}",
    ]  # fmt: skip
    value = rng.choice(words) if rng.random() < 0.6 else json.dumps(values.odd(rng))
    key = rng.choice(paths) if rng.random() < 0.8 else rng.choice(values.WORDS)
    return "namsa", ["simulate", "c.yaml", "--dry-run", "--set", f"{key}={value}".replace("\x00", "\\0")]


# ---- Crystals -------------------------------------------------------------------------------------------------------

CIFS = [path.read_bytes() for path in sorted(DATA.glob("*.cif"))]


def cif(rng: random.Random, folder: Path) -> Command:
    """A CIF with damaged bytes, or with an odd number in place of one of its own."""
    data = rng.choice(CIFS)
    if rng.random() < 0.5:
        words = data.split(b" ")
        numbers = [i for i, word in enumerate(words) if word.strip().replace(b".", b"").replace(b"-", b"").isdigit()]
        for _ in range(rng.choice((1, 2))):
            odd = rng.choice(
                (b"0", b"-1", b"0.05", b"1e-9", b"1e9", b"1e400", b"nan", b"?", b".", b"90", b"180", b"1(2")
            )
            words[rng.choice(numbers)] = odd + rng.choice((b"", b"\n"))
        data = b" ".join(words)
    else:
        data = values.damaged(data, rng)
    (folder / "x.cif").write_bytes(data)
    (folder / "c.yaml").write_text(yaml.safe_dump(BASES[2]))
    return "namsa", ["simulate", "c.yaml", "--crystal", "x.cif", "--dry-run"]


# ---- HDF5 -----------------------------------------------------------------------------------------------------------

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
    reconstruct = ["reconstruct", "x.h5", "--checkpoint", "200kv-20mrad", "--out", "o.h5"]
    return rng.choice(
        (
            ("namsa", ["info", "x.h5"]),
            ("namsa", ["show", "x.h5", "--out", "p.png"]),
            ("train", reconstruct),
            ("train", [*reconstruct, *overrides]),
        )
    )


# ---- Datasets -------------------------------------------------------------------------------------------------------


LISTS = ("failed-00000.jsonl", "elsewhere.json")
ODD_IDS = (
    "../../evil",
    "/tmp/evil",
    "a/b",
    ".",
    "..",
    "x" * 400,
    "a\nb",
    "\u202e",
    "<script>",
    "CON",
    "-rf",
    "\x1b[2J",
)


def simulate_complete(config: SimulationConfig, material: Material, entry: Entry) -> Sample:
    """Returns a fake sample with all that the views of a sample read."""
    sample = fake_samples.simulate(config, material, entry)
    own = {
        "formula": entry.formula, "space_group": entry.space_group, "zone_axis": list(entry.zone_axis),
        "source": material.source, "split": entry.split, "seed": entry.seed, "atoms": 12, "slices": 10,
        "slice_thickness_angstrom": 2.0, "aberrations": {"C10": -80.0}, "software": {"namsa": "1"},
        "warnings": ["thick"],
        "detector": {"shape": [5, 7], "pixel_mrad": 2.0, "binning": 1}, "frozen_phonons": {"configurations": 2},
        "beam_tilt_mrad": [0.0, 1.0],
    }  # fmt: skip
    return replace(sample, provenance=sample.provenance | own)


class Datasets:
    """Copies of a small dataset with damaged files beside its shards, or with hostile records in them."""

    def __init__(self, folder: Path) -> None:
        self._whole = folder / "whole"
        if not self._whole.exists():
            settings = fake_samples.config(materials={"builtin": ["Al-225-cF4", "NaCl-225-cF8"]})
            fake_samples.produce(self._whole, settings=settings, simulate=simulate_complete)
        with Dataset(self._whole) as dataset:
            self._ids, self._hash = dataset.ids, str(dataset.config_hash)

    def side_files(self, rng: random.Random, folder: Path) -> Command:
        """A damaged file beside the shards, or one that does not belong there."""
        target = folder / "d"
        shutil.copytree(self._whole, target, symlinks=True)
        path = rng.choice([path for path in target.iterdir() if "lmdb" not in path.name])
        if rng.random() < 0.4:
            path = target / rng.choice(
                (*LISTS, "config.yaml", "shard-00001.lmdb", "shard-00000.lmdb-lock", "quarantine-0", "failed-x.jsonl")
            )
        if path.name in LISTS and rng.random() < 0.5:
            self._write_list(path)
        action = rng.randrange(5)
        if action == 0 and path.exists():
            path.write_bytes(values.damaged(path.read_bytes(), rng))
        elif action == 1:
            path.write_text(
                rng.choice(
                    (
                        "[" * 5000,
                        "",
                        "null",
                        "{}",
                        '{"id": 1e999}',
                        '[1, 2]\n"x"',
                        "\ud800".encode("utf-8", "replace").decode(),
                    )
                )
            )
        elif action == 2:
            path.unlink(missing_ok=True)
            path.symlink_to(rng.choice(("/nowhere", "/", path.name)))
        elif action == 3:
            path.unlink(missing_ok=True)
            path.mkdir()
        else:
            lines = path.read_text(errors="replace").splitlines() if path.exists() else ["{}"]
            at = rng.randrange(len(lines) or 1)
            with suppress(ValueError, RecursionError, IndexError):
                lines[at] = json.dumps(values.changed_tree(json.loads(lines[at]), rng))
            path.write_text("\n".join(lines) + "\n", errors="replace")
        return self._command(rng)

    def repaired(self, rng: random.Random, folder: Path) -> Command:
        """Damaged files or records, which `namsa repair` is to leave without damage."""
        self.records(rng, folder)
        return "repaired", ["d"]

    def _write_list(self, path: Path) -> None:
        """Writes a list as namsa does, which is then damaged."""
        if path.name == "elsewhere.json":
            other_nodes.write_ids(path.parent, self._hash, self._ids)
        else:
            for sample_id in self._ids:
                append_failure(path.parent, 0, self._hash, sample_id, WorkError("iron will not do: 3 Å"))

    def records(self, rng: random.Random, folder: Path) -> Command:
        """Records with odd ids, headers, provenance and numbers, and shards with damaged bytes."""
        target = folder / "d"
        shutil.copytree(self._whole, target)
        shard = shard_path(target, 0)
        action = rng.randrange(4)
        if action == 0:
            data = bytearray(shard.read_bytes())
            for _ in range(rng.choice((1, 3, 20))):
                data[rng.randrange(len(data))] = rng.randrange(256)
            shard.write_bytes(bytes(data))
            return self._command(rng)
        if action == 1:
            with shard.open("r+b") as file:
                file.truncate(rng.randrange(shard.stat().st_size))
            return self._command(rng)
        with Shard(shard) as opened:
            originals = {sample_id: opened.read_bytes(sample_id) for sample_id in opened.ids}
        shard.unlink()
        with ShardWriter(shard) as writer:
            for number, (sample_id, record) in enumerate(originals.items()):
                odd_id = rng.choice((*ODD_IDS, *self._ids)) if rng.random() < 0.5 else sample_id
                is_odd = rng.random() < (0.9 if number == 0 else 0.2)
                writer.put(odd_id, self._odd_record(record, sample_id, rng) if is_odd else record)
        return self._command(rng)

    def _odd_record(self, record: bytes, sample_id: str, rng: random.Random) -> bytes:
        """Returns a record with a right digest whose header or numbers are not those that namsa writes."""
        header_length = int.from_bytes(record[12:16], "little")
        header, body = json.loads(record[32 : 32 + header_length]), record[-(-(32 + header_length) // 64) * 64 :]
        if rng.random() < 0.2:
            for key in rng.sample(sorted(header["provenance"]), 3):
                del header["provenance"][key]
        part = rng.choice(("arrays", "provenance", "provenance", ""))
        if part:
            header[part] = values.changed_tree(header[part], rng)
        else:
            header = values.changed_tree(header, rng)
        if rng.random() < 0.2:
            body = bytes(rng.randrange(256) for _ in range(len(body)))
        if rng.random() < 0.5 and isinstance(header, dict) and isinstance(header.get("provenance"), dict):
            header["provenance"]["id"] = sample_id
        with suppress(ValueError):  # Python writes no number of thousands of digits
            text = json.dumps(header).encode()
            prefix = b"NAMSA4D\n" + struct.pack("<II", 1, len(text))
            rest = text + bytes(-(32 + len(text)) % 64) + body
            return prefix + xxhash.xxh3_128_digest(prefix + rest) + rest
        return record

    def _command(self, rng: random.Random) -> Command:
        return rng.choice(
            (
                ("namsa", ["verify", "d"]),
                ("namsa", ["verify", "d", "--json"]),
                ("namsa", ["info", "d"]),
                ("namsa", ["info", "d", "--json"]),
                ("namsa", ["repair", "d"]),
                ("namsa", ["repair", "d"]),
                ("namsa", ["show", "d"]),
                ("namsa", ["show", "d", "--html"]),
                ("namsa", ["show", f"d/{rng.choice((*self._ids, *ODD_IDS))}".replace("\n", "")]),
                ("namsa", ["export", "d", "--out", "o.h5"]),
                ("namsa", ["merge", "d", "--out", "m"]),
            )
        )


# ---- Arguments ------------------------------------------------------------------------------------------------------


class Arguments:
    """Odd arguments of the commands that read a good file."""

    OPTIONS = (
        "--energy-ev", "--semiangle-mrad", "--scan-step-angstrom", "--pixel-mrad", "--centre-pixels", "--rotation-deg",
        "--beam-intensity", "--thickness-angstrom", "--passes", "--refine-steps", "--dataset", "--formula",
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
        checkpoint, out = rng.choice(("200kv-20mrad", "nowhere", "x.h5", "", "a" * 300, "model")), "o.h5"
        if checkpoint == "model":
            _model(rng, folder / checkpoint)
        if rng.random() < 0.3:
            out = rng.choice(
                (
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
            )
        words = ["reconstruct", "x.h5", "--checkpoint", checkpoint, "--out", out]
        for _ in range(rng.randrange(1, 5)):
            option = rng.choice(self.OPTIONS)
            words += [option, rng.choice(self.WORDS)]
            if option == "--centre-pixels":
                words.append(rng.choice(self.WORDS))
        return "train", words


def _model(rng: random.Random, folder: Path) -> None:
    """Copies a shipped model and damages one of its files, or declares an array that is larger than its file."""
    shutil.copytree(ROOT / "train/models/200kv-20mrad", folder)
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


def kinds(folder: Path) -> Iterator[Kind]:
    """Returns all kinds; `folder` holds what they share."""
    datasets, arguments = Datasets(folder), Arguments(folder)
    yield Kind("configuration", configuration)
    yield Kind("extreme", extreme)
    yield Kind("override", override)
    yield Kind("cif", cif)
    yield Kind("hdf5-bytes", hdf5_bytes)
    yield Kind("hdf5-structure", hdf5_structure)
    yield Kind("side-files", datasets.side_files)
    yield Kind("records", datasets.records)
    yield Kind("repaired", datasets.repaired)
    yield Kind("arguments", arguments.case)
