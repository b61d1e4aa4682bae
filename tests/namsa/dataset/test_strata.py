"""How a dataset is spread: counts that add up, by split, of what the entries are of."""

from dataclasses import replace

import pytest
from fake_samples import MATERIALS, config

from namsa.crystals.builtin import builtin_materials
from namsa.dataset.entries import build_entries
from namsa.dataset.entry import SPLITS, split_of
from namsa.dataset.strata import count_strata, table_rows

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
