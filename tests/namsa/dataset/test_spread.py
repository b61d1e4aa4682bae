"""How a dataset is spread: over ranks in shares of equal cost, over splits, and over what its
entries are of.
"""

import itertools
import json
import random
from collections import Counter
from dataclasses import replace

import pytest
from ase.build import bulk
from fake_samples import MATERIALS, config
from paths import CONFIGS

from namsa.config.materials import Split
from namsa.config.simulation import load_config
from namsa.crystals.builtin import builtin_materials
from namsa.crystals.material import Material
from namsa.crystals.select import select_materials
from namsa.dataset import entries, manifest
from namsa.dataset.entries import build_entries
from namsa.dataset.entry import SPLITS, assign, feasible_entries, prototype, split_of
from namsa.dataset.sharing import share
from namsa.dataset.strata import count_strata, table_rows

AXES = [(1, v, w) for v in range(8) for w in range(8)]
ENTRIES = build_entries(
    config(specimen={"thickness_angstrom": [10, 20, 40, 80], "zone_axes": AXES}), MATERIALS
)


def shares_of(entries, size):
    return [share(entries, rank, size) for rank in range(size)]


def cost_of(entries):
    return sum(entry.cost for entry in entries)


def skipped_of(entries):
    return sum(bool(entry.skipped) for entry in entries)


def of_split(entries, split):
    return [entry for entry in entries if entry.split == split]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_shares_cover_the_manifest_and_do_not_overlap(size):
    shares = shares_of(ENTRIES, size)
    shared = itertools.chain.from_iterable(shares)
    assert sorted(entry.id for entry in shared) == sorted(entry.id for entry in ENTRIES)
    in_any_order = random.Random(size).sample(ENTRIES, len(ENTRIES))
    assert shares == shares_of(in_any_order, size)


@pytest.mark.parametrize("size", [2, 5, 16])
def test_shares_are_of_equal_cost(size):
    work = list(map(cost_of, shares_of(ENTRIES, size)))
    by_hash = sorted(ENTRIES, key=lambda entry: (entry.seed, entry.id))
    work_by_hash = [cost_of(by_hash[rank::size]) for rank in range(size)]
    assert max(work) < 1.03 * sum(work) / size
    assert max(work) < max(work_by_hash)


def test_an_entry_without_a_cost_counts_as_one_of_many_and_what_is_skipped_is_spread():
    unknown = [replace(entry, cost=0) for entry in ENTRIES]
    assert max(map(len, shares_of(unknown, 5))) <= len(ENTRIES) / 5 + 1
    counts = list(map(skipped_of, shares_of(ENTRIES, 4)))
    assert sum(counts) == skipped_of(ENTRIES) > 0
    assert max(counts) - min(counts) <= 1


def test_any_beginning_of_a_share_is_a_fair_mix():
    """A time limit leaves a beginning: it must not be the cheap, the thick, or the first
    material.
    """
    share_entries = share(ENTRIES, 1, 4)
    begun = share_entries[: len(share_entries) // 3]
    mean = []
    for sample_entries in (begun, ENTRIES):
        total = sum(entry.thickness_angstrom for entry in sample_entries)
        mean.append(total / len(sample_entries))
    assert mean[0] == pytest.approx(mean[1], rel=0.25)
    for material in MATERIALS:
        assert sum(entry.material == material.name for entry in begun) == pytest.approx(
            len(begun) / 3, rel=0.5
        )


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2, 5, 46])
def test_every_node_has_a_batch_for_each_of_its_ranks_and_held_out_samples(nodes):
    """As 400,000 entries on 1 to 4,600 nodes of six ranks: 14.5 entries per rank, here of 46
    nodes.
    """
    ranks = 6 * nodes
    rng = random.Random(7)
    splits = ["train"] * 18 + ["dev", "test"]
    entries = []
    for i in range(4000):
        entries.append(
            replace(
                ENTRIES[0],
                id=f"e{i}",
                seed=rng.getrandbits(40),
                cost=rng.randint(95, 105),
                split=rng.choice(splits),
            )
        )
    shares = shares_of(entries, ranks)
    training = [len(of_split(of_rank, "train")) for of_rank in shares]
    assert max(training) - min(training) <= max(2, 0.04 * max(training))
    for node in range(nodes):
        of_node = list(itertools.chain.from_iterable(shares[6 * node : 6 * node + 6]))
        training_of_node = len(of_split(of_node, "train"))
        assert training_of_node // 6 >= int(0.9 * 4000 / ranks) - 1 >= 1
        assert training_of_node < len(of_node)


def test_cost_is_slices_times_pixels_times_probes():
    coarse = config(
        specimen={"thickness_angstrom": [20, 40]}, simulation={"sampling_angstrom": 0.5}
    )
    fine = config(specimen={"thickness_angstrom": [20, 40]}, simulation={"sampling_angstrom": 0.25})
    thin, thick = build_entries(coarse, MATERIALS[:1])
    assert thick.cost == pytest.approx(2 * thin.cost, rel=0.1)
    assert build_entries(fine, MATERIALS[:1])[0].cost == pytest.approx(4 * thin.cost, rel=0.1)
    few = config(
        specimen={"thickness_angstrom": [20]},
        simulation={"sampling_angstrom": 0.5},
        scan={"shape": [4, 4]},
    )
    assert build_entries(few, MATERIALS[:1])[0].cost == thin.cost // 16


# ---- How a dataset is spread
# ----------------------------------------------------------------------------------------

THIRDS = Split(train=0.4, dev=0.3, test=0.3, by="prototype")
UNEVEN = {"train": 0.5, "dev": 0.25, "test": 0.25}


def test_every_sample_is_counted_once_in_every_kind() -> None:
    split = config(split=UNEVEN).split
    materials = []
    for n in range(2, 14):
        materials.append(replace(MATERIALS[n % 3], name=f"m{n}", formula=f"CuO{n}", kind="cif"))
    entries = build_entries(config(split=UNEVEN), materials)
    strata = count_strata(entries)
    assert sum(strata["samples"].values()) == len(entries) == 48
    for kind in ("sources", "crystal_systems", "space_groups", "thickness_angstrom", "zone_axes"):
        for name in SPLITS:
            assert (
                sum(counts[name] for counts in strata[kind].values()) == strata["samples"][name]
            ), kind
    for name in SPLITS:
        assert strata["formulas"][name] == sum(
            split_of(m.formula, split) == name for m in materials
        )
    assert strata["elements"] == {"Cu": strata["samples"], "O": strata["samples"]}
    assert list(strata["thickness_angstrom"]) == ["12.5", "20"]
    assert strata["zone_axes"]["[1 -1 0]"] == {
        name: count // 2 for name, count in strata["samples"].items()
    }
    assert strata["sources"] == {"cif": strata["samples"]}


def test_what_cannot_be_built_does_not_count_and_what_training_lacks_is_named() -> None:
    entries = build_entries(config(), MATERIALS)
    changed = [replace(e, skipped="x") if e.formula == "Cu" else e for e in entries]
    changed = [replace(e, split="test") if e.formula == "Si" else e for e in changed]
    strata = count_strata(changed)
    assert strata["samples"] == {"train": 4, "dev": 0, "test": 4}
    assert strata["elements_not_in_train"] == ["Si"]
    assert dict(table_rows(strata))["not in train"] == "Si"
    assert dict(table_rows(strata))["materials"] == "1/0/1 of 1/0/1 formulas"


@pytest.mark.slow
def test_every_builtin_crystal_has_a_system() -> None:
    entries = build_entries(config(), builtin_materials()[::3])
    systems = count_strata([replace(entry, skipped=None) for entry in entries])["crystal_systems"]
    assert "unknown" not in systems
    assert len(systems) == 7
    numbers = {e.space_group: int(e.material.split("-")[1]) for e in entries}
    trigonal = sum(143 <= numbers[e.space_group] <= 167 for e in entries)
    assert sum(systems["trigonal"].values()) == pytest.approx(trigonal)


def test_of_many_values_the_most_frequent_are_told() -> None:
    thick = config(specimen={"thickness_angstrom": [float(t) for t in range(4, 80, 4)]})
    row = dict(table_rows(count_strata(build_entries(thick, MATERIALS))))["thickness, Å"]
    assert row.endswith(", and 7 more")
    assert row.count(":") == 12


def material(name, formula, space_group):
    return Material(name, formula, space_group, bulk("Al"), "made up")


@pytest.mark.slow
def test_relatives_by_formula_or_prototype_are_in_one_split():
    """Rutile and anatase share a formula, rutile and cassiterite a prototype: all three go
    together.
    """
    crystals = builtin_materials()
    splits = assign(crystals, THIRDS)
    assert set(splits) == {"train", "dev", "test"}
    by_label = {}
    for crystal, split in zip(crystals, splits, strict=True):
        by_label.setdefault(crystal.formula, set()).add(split)
    assert all(len(splits) == 1 for splits in by_label.values())
    assert assign(crystals, Split()) == [
        split_of(crystal.formula, Split()) for crystal in crystals
    ]  # by formula alone

    family = [material("rutile", "TiO2", "P4_2/mnm"), material("anatase", "TiO2", "I4_1/amd")]
    family += [
        material("cassiterite", "SnO2", "P4_2/mnm"),
        material("zircon", "ZrSiO4", "I4_1/amd"),
    ]
    others = [material(f"X{i}", f"Al{i}O", f"group {i}") for i in range(2, 40)]
    splits = assign([*others, *family], THIRDS)[-4:]
    assert len(set(splits[:3])) == 1


def test_kind_of_formula_and_space_group_make_a_prototype_whatever_the_elements():
    pairs = []
    for i in range(2, 60):
        pairs.append(
            (material(f"a{i}", f"Li{i}F", f"g{i}"), material(f"b{i}", f"Na{i}Cl", f"g{i}"))
        )
    splits = assign(list(itertools.chain.from_iterable(pairs)), THIRDS)
    assert splits[::2] == splits[1::2]
    assert len(Counter(splits)) == 3


def test_the_largest_family_is_learnt_from():
    elements = [material(symbol, symbol, "Fm-3m") for symbol in ("Al", "Au", "Ag", "Cu", "Ni")]
    others = [material(f"X{i}", f"Al{i}O", f"group {i}") for i in range(2, 30)]
    assert set(assign([*elements, *others], THIRDS)[:5]) == {"train"}
    assert set(assign(elements, Split(train=0, dev=0, test=1, by="prototype"))) == {"test"}


# ---- Frozen benchmarks
# ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def benchmark():
    config = load_config(CONFIGS / "benchmark.yaml")
    crystals = select_materials(config.materials)
    return config, crystals, build_entries(config, crystals)


@pytest.mark.slow
def test_the_configuration_gives_the_frozen_list_with_held_out_materials_at_every_thickness(
    benchmark,
):
    config, crystals, entries = benchmark
    frozen = json.loads((CONFIGS / "benchmark.manifest.json").read_text())
    ids = {}
    for split in SPLITS:
        ids[split] = [entry.id for entry in of_split(feasible_entries(entries), split)]
    assert {"dev": frozen["dev"], "test": frozen["test"]} == {
        "dev": ids["dev"],
        "test": ids["test"],
    }
    assert frozen["train_samples"] == len(ids["train"])
    assert frozen["config_hash"] == manifest.config_hash(config, crystals)
    config, _, entries = benchmark
    assert set(config.specimen.thickness_angstrom) == {20, 50, 100, 200}
    tested = of_split(entries, "test")
    by_thickness = []
    for thickness in (20, 50, 100, 200):
        by_thickness.append(
            {entry.material for entry in tested if entry.thickness_angstrom == thickness}
        )
    for materials in by_thickness:
        assert materials == by_thickness[0]


def test_no_held_out_formula_or_prototype_is_learnt(benchmark):
    _, crystals, entries = benchmark
    prototypes = {crystal.name: prototype(crystal) for crystal in crystals}
    for label in (lambda entry: entry.formula, lambda entry: prototypes[entry.material]):
        labels = {}
        for split in SPLITS:
            labels[split] = set(map(label, of_split(entries, split)))
        assert not labels["train"] & (labels["dev"] | labels["test"])
        assert not labels["dev"] & labels["test"]


@pytest.mark.slow
def test_the_held_out_samples_of_reality_are_the_frozen_ones(monkeypatch):
    """Only the held-out materials are listed, in their splits among all: an interface has a partner
    of its own split.

    The samples of training follow from the same hash.
    """
    config = load_config(CONFIGS / "reality.yaml")
    crystals = select_materials(config.materials)
    frozen = json.loads((CONFIGS / "reality.manifest.json").read_text())
    assert frozen["config_hash"] == manifest.config_hash(config, crystals)
    split_of = dict(
        zip((crystal.name for crystal in crystals), assign(crystals, config.split), strict=True)
    )
    monkeypatch.setattr(
        entries,
        "assign",
        lambda materials, split: [split_of[crystal.name] for crystal in materials],
    )
    held_out = build_entries(
        config, [crystal for crystal in crystals if split_of[crystal.name] != "train"]
    )
    for split in ("dev", "test"):
        feasible = feasible_entries(of_split(held_out, split))
        assert [entry.id for entry in feasible] == frozen[split]
