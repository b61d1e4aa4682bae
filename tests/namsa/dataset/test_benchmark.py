"""Benchmarks are frozen: configs/*.yaml still give the lists of samples that were written down."""

import json

import pytest
from paths import CONFIGS

from namsa.config.simulation import load_config
from namsa.crystals.select import select_materials
from namsa.dataset import entries, manifest
from namsa.dataset.entries import build_entries
from namsa.dataset.entry import _prototype, assign

SPLITS = ("train", "dev", "test")


@pytest.fixture(scope="module")
def benchmark():
    config = load_config(CONFIGS / "benchmark.yaml")
    crystals = select_materials(config.materials)
    return config, crystals, build_entries(config, crystals)


def test_the_configuration_gives_the_frozen_list_with_held_out_materials_at_every_thickness(benchmark):
    config, crystals, entries = benchmark
    frozen = json.loads((CONFIGS / "benchmark.manifest.json").read_text())
    ids = {split: [entry.id for entry in entries if entry.split == split and not entry.skipped] for split in SPLITS}
    assert {"dev": frozen["dev"], "test": frozen["test"]} == {"dev": ids["dev"], "test": ids["test"]}
    assert frozen["train_samples"] == len(ids["train"])
    assert frozen["config_hash"] == manifest.config_hash(config, crystals)
    config, _, entries = benchmark
    assert set(config.specimen.thickness_angstrom) == {20, 50, 100, 200}
    tested = [entry for entry in entries if entry.split == "test"]
    by_thickness = [
        {entry.material for entry in tested if entry.thickness_angstrom == thickness}
        for thickness in (20, 50, 100, 200)
    ]
    assert all(materials == by_thickness[0] for materials in by_thickness)


def test_no_held_out_formula_or_prototype_is_learnt(benchmark):
    _, crystals, entries = benchmark
    prototypes = {crystal.name: _prototype(crystal) for crystal in crystals}
    for label in (lambda entry: entry.formula, lambda entry: prototypes[entry.material]):
        learnt, dev, test = ({label(entry) for entry in entries if entry.split == split} for split in SPLITS)
        assert not learnt & (dev | test)
        assert not dev & test


def test_the_held_out_samples_of_reality_are_the_frozen_ones(monkeypatch):
    """Only the held-out materials are listed, in their splits among all: an interface has a partner of its own split.

    The samples of training follow from the same hash.
    """
    config = load_config(CONFIGS / "reality.yaml")
    crystals = select_materials(config.materials)
    frozen = json.loads((CONFIGS / "reality.manifest.json").read_text())
    assert frozen["config_hash"] == manifest.config_hash(config, crystals)
    split_of = dict(zip((crystal.name for crystal in crystals), assign(crystals, config.split), strict=True))
    monkeypatch.setattr(entries, "assign", lambda materials, split: [split_of[each.name] for each in materials])
    held_out = build_entries(config, [crystal for crystal in crystals if split_of[crystal.name] != "train"])
    for split in ("dev", "test"):
        assert [entry.id for entry in held_out if entry.split == split and not entry.skipped] == frozen[split]
