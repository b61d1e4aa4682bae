"""Conditions that held-out samples share, and the ranges that a quantity is divided into."""

import numpy as np

from namsa.dataset.entry import Entry
from train.measure.groups import group_labels, groups, measured, sample_facts, title


def test_a_sample_tells_its_kind_and_magnitudes_without_directions():
    varied = {
        "specimen_tilt_mrad": [3.0, -4.0],
        "C12_angstrom": [20.0, 1.5],
        "defocus_angstrom": -30.0,
    }
    entry = Entry("a", "Cu", "Cu", "Fm-3m", (0, 0, 1), 12.5, 0, "test", varied=varied, kind="twin")
    assert sample_facts(entry) == {
        "kind": "twin",
        "thickness_angstrom": 12.5,
        "specimen_tilt_mrad": 5.0,
        "C12_angstrom": 20.0,
        "defocus_angstrom": -30.0,
    }


def test_only_facts_that_differ_make_groups():
    facts = [{"kind": "twin", "defocus_angstrom": value} for value in (10.0, 2.0, 10.0)] + [
        {"kind": "twin"}
    ]
    assert list(groups(facts)) == [
        ("defocus_angstrom", "2", [1]),
        ("defocus_angstrom", "10", [0, 2]),
    ]
    assert list(groups([])) == []


def test_values_are_groups_themselves_unless_they_are_many():
    assert group_labels([1e3, 0.25, 1e3, "x"]) == ["1000", "0.25", "1000", "x"]
    many = group_labels([*np.arange(15.0).tolist(), "x"])
    assert sorted(set(many)) == ["0 to 4", "10 to 14", "5 to 9", "x"]


def test_names_are_told_with_their_units():
    assert (title("specimen_tilt_mrad"), title("C12_angstrom")) == ("specimen tilt, mrad", "C12, Å")
    assert title("dose_electrons_per_angstrom2") == "dose electrons per Å²"
    assert (title("hot_pixels"), title("detector_spread_pixels")) == (
        "hot pixels",
        "detector spread, pixels",
    )
    assert measured("turn_degrees", "0 to 3") == "turn 0 to 3\u00a0degrees"
    assert measured("ellipticity", "0.1") == "ellipticity 0.1"
