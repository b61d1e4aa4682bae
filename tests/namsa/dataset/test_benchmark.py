"""The benchmark is frozen: configs/benchmark.yaml still gives the list of samples that was written down."""

import json

import pytest
from paths import CONFIGS

from namsa.config.simulation import load_config
from namsa.crystals.select import select_materials
from namsa.dataset import manifest
from namsa.dataset.entries import build_entries
from namsa.dataset.splits import _prototype

SPLITS = ("train", "dev", "test")


@pytest.fixture(scope="module")
def benchmark():
    config = load_config(CONFIGS / "benchmark.yaml")
    crystals = select_materials(config.materials)
    return config, crystals, build_entries(config, crystals)


def test_the_configuration_gives_the_frozen_list(benchmark):
    config, crystals, entries = benchmark
    frozen = json.loads((CONFIGS / "benchmark.manifest.json").read_text())
    ids = {split: [entry.id for entry in entries if entry.split == split and not entry.skipped] for split in SPLITS}
    assert {"dev": frozen["dev"], "test": frozen["test"]} == {"dev": ids["dev"], "test": ids["test"]}
    assert frozen["train_samples"] == len(ids["train"])
    assert frozen["config_hash"] == manifest.config_hash(config, crystals)


def test_no_held_out_formula_or_prototype_is_learnt(benchmark):
    _, crystals, entries = benchmark
    prototypes = {crystal.name: _prototype(crystal) for crystal in crystals}
    for label in (lambda entry: entry.formula, lambda entry: prototypes[entry.material]):
        learnt, dev, test = ({label(entry) for entry in entries if entry.split == split} for split in SPLITS)
        assert not learnt & (dev | test)
        assert not dev & test


def test_held_out_materials_come_at_every_thickness(benchmark):
    config, _, entries = benchmark
    by_thickness = {
        thickness: {
            entry.material for entry in entries if entry.split == "test" and entry.thickness_angstrom == thickness
        }
        for thickness in config.specimen.thickness_angstrom
    }
    assert set(by_thickness) == {20, 50, 100, 200}
    assert len(set(map(frozenset, by_thickness.values()))) == 1
