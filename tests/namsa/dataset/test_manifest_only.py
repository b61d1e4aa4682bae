"""`namsa dataset --manifest-only`, and how ranks find their crystals in a long manifest without building all."""

import json
import re
from pathlib import Path

import pytest

from namsa.cli.parser import main
from namsa.config.materials import Split
from namsa.config.simulation import SimulationConfig, load_config
from namsa.crystals import substitution
from namsa.dataset import factory, manifest
from namsa.dataset.entry import SPLITS, split_of
from namsa.dataset.sharing import RankLayout, share
from namsa.errors import InputError

CONFIG = """
name: many
seed: 3
materials:
  builtin: [NaCl-225-cF8, CaTiO3-221-cP5, MgCu2-227-cF24, Cu-225-cF4]
  substitute: {limit: 60, max_ions: 2, mixing_steps: 2, alloys: true}
split: {train: 0.7, dev: 0.15, test: 0.15, by: elements}
specimen: {simplest_zone_axes: 3, thickness_angstrom: [20], lateral_angstrom: [10, 12]}
scan: {shape: [2, 3]}
simulation: {grid_shape: [32, 40]}
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SimulationConfig]:
    """A folder with many.yaml and, in `first`, its manifest."""
    folder = tmp_path_factory.mktemp("many")
    (folder / "many.yaml").write_text(CONFIG)
    assert main(["dataset", str(folder / "many.yaml"), "--out", str(folder / "first"), "--manifest-only"]) == 0
    return folder, load_config(folder / "many.yaml")


def test_the_last_line_counts_the_manifest(written, capsys) -> None:
    folder, config = written
    assert main(["dataset", str(folder / "many.yaml"), "--out", str(folder / "first"), "--manifest-only"]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    header, entries = manifest.read_header(folder / "first"), manifest.read(folder / "first")
    assert list(summary) == ["materials", "configurations", "train", "dev", "test", "seconds"]
    assert summary["materials"] == header["materials"] == 64
    assert summary["configurations"] == len(entries) == 3 * 64 == sum(summary[split] for split in SPLITS)
    counts = json.loads((folder / "first" / "strata.json").read_text())
    assert sum(sum(by_split.values()) for by_split in counts["crystal_systems"].values()) == len(entries)
    assert not list((folder / "first").glob("*.lmdb"))
    assert config.samples_hash() == header["samples_hash"]


def test_the_same_configuration_gives_the_same_bytes(written) -> None:
    folder, _ = written
    assert main(["dataset", str(folder / "many.yaml"), "--out", str(folder / "second"), "--manifest-only"]) == 0
    first, second = (folder / name / "manifest.jsonl" for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()


def test_no_material_no_formula_and_no_set_of_elements_is_in_two_splits(written) -> None:
    folder, _ = written
    entries = manifest.read(folder / "first")
    assert {entry.split for entry in entries} == set(SPLITS)
    for label in (
        lambda entry: entry.material,
        lambda entry: entry.formula,
        lambda entry: frozenset(re.findall("[A-Z][a-z]?", entry.formula)),
    ):
        sets = [{label(entry) for entry in entries if entry.split == split} for split in SPLITS]
        assert sum(map(len, sets)) == len(set.union(*sets))
    shares = [split_of(str(number), Split()) for number in range(4000)]
    assert [shares.count(name) / 4000 for name in SPLITS] == pytest.approx([0.9, 0.05, 0.05], abs=0.01)


def test_a_rank_derives_only_the_crystals_of_its_share(written, monkeypatch, tmp_path) -> None:
    folder, config = written
    derived: list[str] = []
    crystal = substitution._crystal

    def count(derivation):
        derived.append(derivation.prototype.name)
        return crystal(derivation)

    monkeypatch.setattr(substitution, "_crystal", count)
    simulated = []

    def prepare(config, material, entries):
        simulated.extend((material.name, entry.material) for entry in entries)
        raise InputError("not simulated")

    settings = config.model_copy(update={"data": config.data.model_copy(update={"manifest_from": folder / "first"})})
    factory.produce(settings, tmp_path, RankLayout(5, 40, 1), prepare=prepare)
    own = share(manifest.read(folder / "first"), 5, 40)
    assert {name for name, _ in simulated} == {entry.material for entry in own}
    assert all(name == of_entry for name, of_entry in simulated)
    assert len(derived) == len({entry.material for entry in own if entry.source == "substituted"})
    assert (tmp_path / "manifest.jsonl").read_bytes() == (folder / "first" / "manifest.jsonl").read_bytes()


def test_a_manifest_of_other_sources_is_compared_crystal_by_crystal(written, monkeypatch) -> None:
    folder, config = written
    assert manifest.read_if_current(folder / "first", config) is not None
    monkeypatch.setattr(substitution, "VERSION", substitution.VERSION + 1)
    assert manifest.read_if_current(folder / "first", config) is None
    other = config.model_copy(update={"seed": 4})
    with pytest.raises(InputError, match="holds the dataset of configuration"):
        manifest.ensure(folder / "first", other, ())


def test_present_reads_the_requested_entries_only(written) -> None:
    folder, _ = written
    entries = manifest.read(folder / "first")
    ids = [entries[3].id, entries[-1].id, "absent"]
    assert manifest.present(folder / "first", ids) == [entries[3], entries[-1]]
