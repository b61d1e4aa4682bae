"""Draws: samples as the factory makes them, of materials that are not held out, in this process or
in another.
"""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from paths import ROOT

from namsa.base.errors import InputError, WorkError
from namsa.config.materials import Split
from namsa.config.simulation import SimulationConfig
from namsa.crystals.material import Material
from namsa.crystals.select import select_materials
from namsa.dataset import drawn, entry, factory
from namsa.dataset.drawn import (
    DrawFailure,
    DrawnSample,
    SpecimenDraws,
    further_materials,
    train_entries,
)
from namsa.dataset.entries import build_entries
from namsa.dataset.entry import materials_named, prototype
from namsa.dataset.listing import Listing
from namsa.dataset.sample_process import InProcess, InThread
from namsa.dataset.shards import Dataset

TREE = {
    "seed": 3,
    "materials": {
        "builtin": [
            "Ag-225-cF4",
            "Al-225-cF4",
            "Ar-225-cF4",
            "C-227-cF8",
            "Ca-225-cF4",
            "Cu-225-cF4",
        ]
    },
    "split": {"train": 0.6, "dev": 0.2, "test": 0.2},
    "specimen": {
        "zone_axes": [[0, 0, 1], [1, 1, 0]],
        "thickness_angstrom": [12.0],
        "lateral_angstrom": [7.0, 8.0],
        "max_strain": 0.15,
        "kinds": {"crystal": 1, "vacancies": 1, "precipitate": 1},
    },
    "variation": {
        "rule": "random",
        "configurations": 2,
        "thickness_angstrom": [4, 12],
        "defocus_angstrom": [-50, 50],
    },
    "microscope": {"energy_ev": 100e3, "semiangle_mrad": 15.0},
    "scan": {"shape": [2, 3], "step_angstrom": [0.5, 0.4], "origin_angstrom": "random"},
    "simulation": {"sampling_angstrom": 0.3, "slice_thickness_angstrom": 2, "method": "scatter"},
    "detector": {"shape": [6, 7], "pixel_mrad": 6},
    "target": {"at": "scan"},
}


def draws_of(tree=TREE, more=0):
    """(draws, the list)."""
    config = SimulationConfig.model_validate(tree)
    materials = select_materials(config.materials)
    listed = build_entries(config, materials)
    further = further_materials(config, listed, more) if more else ()
    return SpecimenDraws.of_list(
        config, listed, {material.name: material for material in materials}, further
    ), listed


@pytest.fixture(scope="module")
def draws():
    return draws_of()[0]


@pytest.mark.slow
@pytest.mark.parametrize("each_alone", [False, True])
def test_samples_have_the_bits_of_the_factory(tmp_path, monkeypatch, each_alone):
    tree = TREE
    if each_alone:  # by multislice
        varied = {"rule": "random", "configurations": 2, "defocus_angstrom": [-50, 50]}
        tree = TREE | {
            "simulation": TREE["simulation"] | {"method": "multislice"},
            "variation": varied,
        }
    draws, _ = draws_of(tree)
    entries = []
    for draw in (0, 5):
        entries.extend(draws.entries(draw))
    assert len({entry.id for entry in entries}) == 4

    def listed(directory, config, part):
        return Listing(directory, config, entries, part(entries), draws.materials, None, "")

    monkeypatch.setattr(factory, "plan_list", listed)
    factory.produce(draws.config, tmp_path)
    process = InProcess(draws, None, 0)
    try:
        for maker in (process, InThread(draws)):
            made = []
            for draw in (0, 5):
                for sample in maker.samples(draw):
                    made.append((sample.entry, sample.read()))
            assert [entry for entry, _ in made] == entries
            with Dataset(tmp_path) as dataset:
                for entry, record in made:
                    assert bytes(record) == bytes(dataset.read_bytes(entry.id))
    finally:
        process.close()


@pytest.mark.slow
def test_held_out_materials_are_never_drawn():
    """Of the sources and the split of reality.yaml, with kinds that have partners."""
    materials = {"builtin": "all", "max_atomic_number": 83, "limit": 48}
    config = {
        "materials": materials,
        "split": {"train": 0.7, "dev": 0.1, "test": 0.2, "by": "prototype"},
    }
    draws, listed = draws_of(TREE | config, more=40)
    drawn_entries = []
    for draw in range(100):
        drawn_entries.extend(draws.entries(draw, draw % 5))
    held_out = []
    for of_list in listed:
        if of_list.split != "train":
            held_out.append(of_list)
    known = values_of(listed, "material")
    new = {}
    for one in drawn_entries:
        if one.material not in known:
            new[one.material] = one
    assert len(new) > 10
    held_prototypes = set(map(prototype, held_out))
    assert not held_prototypes & set(map(prototype, new.values()))
    assert values_of(drawn_entries, "split") == {"train"}
    assert len(values_of(held_out, "material")) == 5
    assert not materials_named(drawn_entries) & materials_named(held_out)
    assert not values_of(drawn_entries, "formula") & values_of(held_out, "formula")
    assert any(values_of(drawn_entries, "partner"))
    assert not values_of(drawn_entries, "id") & values_of(listed, "id")
    assert not values_of(drawn_entries, "seed") & values_of(listed, "seed")


def values_of(entries, name):
    """The values of an attribute of entries."""
    return {getattr(one, name) for one in entries}


def test_a_new_material_that_connects_a_held_out_family_with_others_is_held_out():
    def crystal(formula, group):
        return Material(formula, formula, group, None, "test")

    split = Split(train=0.5, dev=0, test=0.5, by="prototype")
    listed = [(crystal("NaCl", "Fm-3m"), "train"), (crystal("SiO2", "P3_221"), "test")]
    more = [
        crystal("KCl", "Fm-3m"),
        crystal("GeO2", "P3_221"),
        crystal("SiO2", "P4_2/mnm"),
        crystal("TiO2", "P4_2/mnm"),
    ]
    assert entry.assign_more(listed, more, split) == ["train", "test", "test", "test"]
    lonely = [crystal(f"{symbol}2O3", "R-3c") for symbol in ("Al", "Cr")]
    assert len(set(entry.assign_more(listed, lonely, split))) == 1
    by_formula = split.model_copy(update={"by": "formula"})
    assert entry.assign_more(listed, more, by_formula) == entry.assign(more, by_formula)


def test_as_many_draws_as_axes_take_each_once_and_no_two_draws_are_alike(draws):
    count = len(draws.axes)
    for turn in range(3):
        drawn_axes = [draws.entries(turn * count + place)[0] for place in range(count)]
        assert sorted((entry.material, entry.zone_axis) for entry in drawn_axes) == list(draws.axes)
    entries = []
    for draw in range(5 * count):
        entries.extend(draws.entries(draw))
    assert len({entry.seed for entry in entries}) == len(entries)
    assert len({entry.thickness_angstrom for entry in entries}) > len(entries) // 2
    assert draws.entries(17) == draws_of()[0].entries(17)


def test_a_sample_that_fails_is_told_and_another_specimen_is_drawn(draws, monkeypatch):
    prepare = drawn.prepare_samples

    def failing(config, material, entries, on_progress):
        made = prepare(config, material, entries, on_progress)

        def simulate(entry):
            if entry.id.endswith("v0") and "r1" not in entry.id:
                raise InputError("no such probe")
            return made(entry)

        return simulate

    monkeypatch.setattr(drawn, "prepare_samples", failing)
    made = list(draws.samples(2))
    samples = []
    for outcome in made:
        if isinstance(outcome, DrawnSample):
            samples.append(outcome.entry.id)
    first = draws.entries(2)
    again = draws.entries(2, 1)
    assert samples == [first[1].id, again[0].id]
    assert [outcome for outcome in made if isinstance(outcome, DrawFailure)] == [
        DrawFailure(first[0].id, "no such probe", False)
    ]

    def out_of_memory(*_):
        raise MemoryError("no room")

    monkeypatch.setattr(drawn, "prepare_samples", out_of_memory)
    with pytest.raises(MemoryError, match="no room"):
        list(draws.samples(2))

    def broken(*_):
        raise WorkError("broken")

    monkeypatch.setattr(drawn, "prepare_samples", broken)
    with pytest.raises(
        WorkError, match="20 specimens drawn for number 2 lack 2 samples; the last: broken"
    ):
        list(draws.samples(2))


def test_a_process_that_is_killed_is_reported(draws):
    process = InProcess(draws, None, 0)
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(
        WorkError,
        match=rf"the simulating process {process.pid} has ended \(SIGKILL, as when the mem",
    ):
        list(process.samples(0))
    process.close()


PARENT = """
import json, os, sys, time
sys.path[:0] = {paths}
if __name__ == "__main__":
    from test_drawn import draws_of, InProcess
    process = InProcess(draws_of()[0], None, 3)
    print(json.dumps([process.pid, len([made.read() for made in process.samples(0)])]), flush=True)
    if {fails}:
        raise SystemExit(1)
    process._connection.send_bytes(b"1")
    time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, None])
def test_a_process_ends_when_its_parent_does(tmp_path, signal_number):
    script = tmp_path / "parent.py"
    paths = [str(ROOT / "tests/support"), str(ROOT / "tests/namsa/dataset"), str(ROOT)]
    script.write_text(PARENT.format(paths=paths, fails=signal_number is None))
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True
    ) as parent:
        pid, made = json.loads(parent.stdout.readline())
        child = psutil.Process(pid)
        assert made == 2
        assert not signal_number or child.nice() == psutil.Process().nice() + 3
        if signal_number:
            child.send_signal(
                signal.SIGTERM
            )  # as a batch system sends it to all processes: its parent decides
            time.sleep(0.1)
            assert child.is_running()
            parent.send_signal(signal_number)
    child.wait(20)


def test_without_samples_to_train_on_there_is_nothing_to_draw(draws):
    with pytest.raises(
        InputError, match="no specimen can be drawn: the training split has no sample that can be"
    ):
        SpecimenDraws.of_list(draws.config, [], {})
    assert train_entries([]) == []
