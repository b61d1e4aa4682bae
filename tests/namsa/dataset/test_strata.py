"""How a dataset is spread: counts that add up, by split, of what the entries are of."""

from collections import Counter
from dataclasses import replace

import pytest
from ase.build import bulk
from fake_samples import MATERIALS, config

from namsa.config.materials import Split
from namsa.crystals.builtin import builtin_materials
from namsa.crystals.material import Material
from namsa.dataset.entries import build_entries
from namsa.dataset.entry import SPLITS, assign, split_of
from namsa.dataset.strata import count_strata, table_rows

THIRDS = Split(train=0.4, dev=0.3, test=0.3, by="prototype")
UNEVEN = {"train": 0.5, "dev": 0.25, "test": 0.25}


def test_every_sample_is_counted_once_in_every_kind() -> None:
    split = config(split=UNEVEN).split
    materials = [replace(MATERIALS[n % 3], name=f"m{n}", formula=f"CuO{n}", kind="cif") for n in range(2, 14)]
    entries = build_entries(config(split=UNEVEN), materials)
    strata = count_strata(entries)
    assert sum(strata["samples"].values()) == len(entries) == 48
    for kind in ("sources", "crystal_systems", "space_groups", "thickness_angstrom", "zone_axes"):
        for name in SPLITS:
            assert sum(counts[name] for counts in strata[kind].values()) == strata["samples"][name], kind
    for name in SPLITS:
        assert strata["formulas"][name] == sum(split_of(m.formula, split) == name for m in materials)
    assert strata["elements"] == {"Cu": strata["samples"], "O": strata["samples"]}
    assert list(strata["thickness_angstrom"]) == ["12.5", "20"]
    assert strata["zone_axes"]["[1 -1 0]"] == {name: count // 2 for name, count in strata["samples"].items()}
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


def test_relatives_by_formula_or_prototype_are_in_one_split():
    """Rutile and anatase share a formula, rutile and cassiterite a prototype: all three go together."""
    crystals = builtin_materials()
    splits = assign(crystals, THIRDS)
    assert set(splits) == {"train", "dev", "test"}
    by_label = {}
    for crystal, split in zip(crystals, splits, strict=True):
        by_label.setdefault(crystal.formula, set()).add(split)
    assert all(len(splits) == 1 for splits in by_label.values())

    family = [material("rutile", "TiO2", "P4_2/mnm"), material("anatase", "TiO2", "I4_1/amd")]
    family += [material("cassiterite", "SnO2", "P4_2/mnm"), material("zircon", "ZrSiO4", "I4_1/amd")]
    others = [material(f"X{i}", f"Al{i}O", f"group {i}") for i in range(2, 40)]
    splits = assign([*others, *family], THIRDS)[-4:]
    assert len(set(splits[:3])) == 1


def test_kind_of_formula_and_space_group_make_a_prototype_whatever_the_elements():
    pairs = [(material(f"a{i}", f"Li{i}F", f"g{i}"), material(f"b{i}", f"Na{i}Cl", f"g{i}")) for i in range(2, 60)]
    splits = assign([each for pair in pairs for each in pair], THIRDS)
    assert splits[::2] == splits[1::2]
    assert len(Counter(splits)) == 3


def test_the_largest_family_is_learnt_from():
    elements = [material(symbol, symbol, "Fm-3m") for symbol in ("Al", "Au", "Ag", "Cu", "Ni")]
    others = [material(f"X{i}", f"Al{i}O", f"group {i}") for i in range(2, 30)]
    assert set(assign([*elements, *others], THIRDS)[:5]) == {"train"}
    assert set(assign(elements, Split(train=0, dev=0, test=1, by="prototype"))) == {"test"}


def test_by_formula_nothing_has_changed():
    crystals = builtin_materials()
    assert assign(crystals, Split()) == [split_of(crystal.formula, Split()) for crystal in crystals]
