"""Datasets with damaged files beside their shards, or with hostile records in them."""

import json
import random
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import fake_samples
import values
import xxhash
from values import Command

from namsa.base.errors import WorkError
from namsa.cli.parser import main as namsa
from namsa.config.simulation import SimulationConfig
from namsa.crystals.material import Material
from namsa.dataset import other_nodes
from namsa.dataset.entry import Entry
from namsa.dataset.failures import append_failure
from namsa.dataset.shard_writer import ShardWriter
from namsa.dataset.shards import Dataset, Shard, shard_path
from namsa.samples.sample import Sample

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

COMMANDS = (
    "verify d", "verify d --json", "info d", "info d --json", "repair d", "repair d", "show d",
    "show d --html",
    "export d --out o.h5", "merge d --out m",
)  # fmt: skip


def simulate_complete(config: SimulationConfig, material: Material, entry: Entry) -> Sample:
    """Returns a fake sample with all that the views of a sample read."""
    sample = fake_samples.simulate(config, material, entry)
    described = {
        "formula": entry.formula, "space_group": entry.space_group,
        "zone_axis": list(entry.zone_axis),
        "source": material.source, "split": entry.split, "seed": entry.seed, "atoms": 12,
        "slices": 10,
        "slice_thickness_angstrom": 2.0, "aberrations": {"C10": -80.0}, "software": {"namsa": "1"},
        "warnings": ["thick"],
        "detector": {"shape": [5, 7], "pixel_mrad": 2.0, "binning": 1},
        "frozen_phonons": {"configurations": 2},
        "beam_tilt_mrad": [0.0, 1.0],
    }  # fmt: skip
    return replace(sample, provenance=sample.provenance | described)


def main(words: list[str]) -> int:
    """The program that repairs a dataset and then verifies it: after a repair no damage is left."""
    code = namsa(["repair", *words])
    if code == 0:
        assert namsa(["verify", *words]) == 0, "damage is left after the repair"
    return code


def digest(sample: Sample) -> bytes:
    """Returns a digest of all that a picture of a sample shows."""
    arrays = (sample.cbed, sample.density, sample.projected_potential)
    text = json.dumps(
        [sample.provenance, *([array.shape, array.dtype.str] for array in arrays)], default=str
    )
    return xxhash.xxh3_128_digest(text.encode() + b"".join(array.tobytes() for array in arrays))


def undamaged(folder: Path) -> set[bytes]:
    """Returns the digests of the samples of the dataset in `folder` that cases damage."""
    with Dataset(folder / "whole") as dataset:
        return {digest(dataset.read_sample(sample_id)) for sample_id in dataset.ids}


class Datasets:
    """Copies of a small dataset with damaged files beside its shards, or with hostile records in
    them.
    """

    def __init__(self, folder: Path) -> None:
        self._whole = folder / "whole"
        if not self._whole.exists():
            settings = fake_samples.config(materials={"builtin": ["Al-225-cF4", "NaCl-225-cF8"]})
            fake_samples.produce(self._whole, settings=settings, simulate=simulate_complete)
        with Dataset(self._whole) as dataset:
            self._ids = dataset.ids
            self._hash = str(dataset.config_hash)

    def side_files(self, rng: random.Random, folder: Path) -> Command:
        """A damaged file beside the shards, or one that does not belong there."""
        target = folder / "d"
        shutil.copytree(self._whole, target, symlinks=True)
        path = rng.choice(sorted(path for path in target.iterdir() if "lmdb" not in path.name))
        if rng.random() < 0.4:
            path = target / rng.choice(
                (
                    *LISTS,
                    "config.yaml",
                    "shard-00001.lmdb",
                    "shard-00000.lmdb-lock",
                    "quarantine-0",
                    "failed-x.jsonl",
                )
            )
        if path.name in LISTS and rng.random() < 0.5:
            self._write_list(path)
        action = rng.randrange(5)
        if action == 0 and path.exists():
            path.write_bytes(values.damaged(path.read_bytes(), rng))
        elif action == 1:
            path.write_text(
                rng.choice(("[" * 5000, "", "null", "{}", '{"id": 1e999}', '[1, 2]\n"x"', "?"))
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
                append_failure(
                    path.parent, 0, self._hash, sample_id, WorkError("iron will not do: 3 Å")
                )

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
            for index, (sample_id, record) in enumerate(originals.items()):
                odd_id = rng.choice((*ODD_IDS, *self._ids)) if rng.random() < 0.5 else sample_id
                is_odd = rng.random() < (0.9 if index == 0 else 0.2)
                writer.put(odd_id, self._odd_record(record, sample_id, rng) if is_odd else record)
        return self._command(rng)

    def _odd_record(self, record: bytes, sample_id: str, rng: random.Random) -> bytes:
        """Returns a record with a right digest whose header or numbers are not those that namsa
        writes.
        """

        def change(header: Any) -> Any:
            if rng.random() < 0.2:
                for key in rng.sample(sorted(header["provenance"]), 3):
                    del header["provenance"][key]
            section = rng.choice(("arrays", "provenance", "provenance", ""))
            if section:
                header[section] = values.changed_tree(header[section], rng)
            else:
                header = values.changed_tree(header, rng)
            if (
                rng.random() < 0.5
                and isinstance(header, dict)
                and isinstance(header.get("provenance"), dict)
            ):
                header["provenance"]["id"] = sample_id
            return header

        if rng.random() < 0.2:
            body = -(-(32 + int.from_bytes(record[12:16], "little")) // 64) * 64
            record = record[:body] + rng.randbytes(len(record) - body)
        with suppress(ValueError):  # Python writes no number of thousands of digits
            return fake_samples.signed(record, change)
        return record

    def _command(self, rng: random.Random) -> Command:
        shown = "show d/" + rng.choice((*self._ids, *ODD_IDS)).replace("\n", "")
        return "namsa", rng.choice((*COMMANDS, shown)).split(" ")
