"""The crystals that shipped networks, runs and folders without a list have learnt."""

import json
import shutil

import pytest
from ase.build import bulk
from small_network import BEAM, experiment, patterns, write_run

from namsa import InputError
from namsa.dataset.entry import Entry
from train.apply.learnt import (
    LEARNT,
    LearntCrystals,
    kinship_line,
    learnt,
    learnt_materials,
    prototype_of,
    unseen_held_out,
    write_learnt,
)
from train.apply.models import load_model, shipped
from train.optimization import checkpoint
from train.tasks.density.scan.application import reconstruct
from train.tasks.density.trust.consistency import KnownSpecimen

MODELS = {model.name: model for model in shipped()}
REALITY = MODELS["200kv-20mrad-reality"]

# The twelve crystals of scripts/bench/amount.py (commit 73bfceb1): those whose formula is in the
# training splits of the recipe's stages, and those of which only the structure is.
FORMULAS = ("MgAl2O4", "Pt", "W", "YBa2Cu3O7", "Ag", "CaF2", "TiO2", "Al")
STRUCTURES = {
    "LaAlO3": "ABC3 Pm-3m",
    "InAs": "AB F-43m",
    "CeO2": "AB2 Fm-3m",
    "KTaO3": "ABC3 Pm-3m",
}


@pytest.mark.parametrize("name", MODELS)
def test_every_shipped_network_lists_what_it_has_learnt(name):
    crystals = learnt(MODELS[name])
    assert crystals.complete
    assert crystals.formulas
    assert crystals.prototypes
    assert crystals.source


def test_the_twelve_crystals_of_the_benchmark_are_known_by_formula_or_structure():
    crystals = learnt(REALITY)
    for formula in FORMULAS:
        assert crystals.kinship(formula) == "formula"
    for formula, prototype in STRUCTURES.items():
        assert crystals.kinship(formula) == "no"
        assert crystals.kinship(formula, prototype) == "prototype"
    assert crystals.kinship("CsPbI3", "ABC3 P1") == "no"


def test_a_prototype_is_that_of_the_splits():
    assert prototype_of(bulk("NaCl", "rocksalt", a=5.64)) == "AB Fm-3m"
    assert prototype_of(bulk("Au", "fcc", a=4.08, cubic=True).repeat(2)) == "A Fm-3m"


def test_formulas_are_compared_whatever_their_order_and_multiple():
    crystals = LearntCrystals(frozenset({"Ba2YCu3O7", "Sr0.5Ca0.5TiO3"}))
    assert crystals.kinship("YBa2Cu3O7") == "formula"
    assert crystals.kinship("Y2Ba4Cu6O14") == "formula"
    assert crystals.kinship("Sr0.5Ca0.5TiO3") == "formula"
    assert crystals.kinship("YBa2Cu3O6") == "no"


def test_a_run_has_what_its_checkpoint_lists_and_otherwise_it_is_not_known(tmp_path):
    model = load_model(write_run(tmp_path, experiment()))
    assert learnt(model).kinship("SrTiO3") == "unknown"
    header, arrays = checkpoint.read(model.weights)
    facts = {key: header[key] for key in ("step", "epoch", "network")}
    materials = {"formulas": ["SrTiO3"], "names": [], "complete": True}
    facts["origin"] = {"identity": {}, "start": None, "learnt": materials}
    with model.weights.open("wb") as file:
        checkpoint.write(file, facts, header["variables"], arrays)
    assert learnt(model).kinship("TiSrO3") == "formula"
    assert learnt(model).kinship("GaAs") == "no"
    assert kinship_line(model, "GaAs").endswith(f"the training materials of {model.name}")


def test_what_starts_from_a_shipped_network_has_learnt_its_materials():
    materials = learnt_materials(REALITY)
    assert materials.complete
    assert "MgAl2O4" in materials.formulas
    assert "MgAl2O4-227-cF56" in materials.names


def test_a_list_that_is_written_joins_that_of_the_start(tmp_path):
    sample = Entry("a", "NaCl-225-cF8", "NaCl", "Fm-3m", (0, 0, 1), 20.0, 0, "train")
    write_learnt(tmp_path, [sample], None)
    values = json.loads((tmp_path / LEARNT).read_text())
    assert values == {
        "formulas": ["NaCl"],
        "names": ["NaCl-225-cF8"],
        "prototypes": ["AB Fm-3m"],
        "complete": True,
    }
    write_learnt(tmp_path, [sample], REALITY.name)
    values = json.loads((tmp_path / LEARNT).read_text())
    assert {"NaCl", "CaF2"} <= set(values["formulas"])
    assert values["complete"]
    write_learnt(tmp_path, [sample], "runs/that-is-gone")
    assert not json.loads((tmp_path / LEARNT).read_text())["complete"]


def test_a_calibration_takes_no_materials_that_were_learnt_before(tmp_path):
    """The network has learnt CaF2, which another dataset or split may hold out."""
    learnt_before = {}
    for split in ("train", "dev", "test"):
        learnt_before[split] = Entry(
            split, "CaF2-225-cF12", "CaF2", "Fm-3m", (0, 0, 1), 20.0, 0, split
        )
    other = Entry("b", "KTaO3-221-cP5", "KTaO3", "Pm-3m", (0, 0, 1), 20.0, 0, "dev")
    entries = [*learnt_before.values(), other]
    assert unseen_held_out(REALITY, entries, tmp_path) == ([other], [])
    with pytest.raises(InputError, match="has learnt all materials of the dev split of"):
        unseen_held_out(REALITY, entries[:-1], tmp_path)
    with pytest.raises(InputError, match="has no sample of the dev split to calibrate with"):
        unseen_held_out(REALITY, [learnt_before["train"]], tmp_path)


def test_a_reconstruction_says_whether_the_formula_was_learnt(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    write_run(run, experiment())
    shutil.copy(REALITY.folder / LEARNT, run)
    for formula, kinship in (("CaF2", "formula"), ("KTaO3", "no")):
        specimen = KnownSpecimen(20.0, formula)
        result = reconstruct(patterns((24, 24)), run, BEAM, beam_intensity=1.0, specimen=specimen)
        assert result.provenance["formula_learnt"] == kinship
        assert kinship_line(load_model(run), formula) in result.notes


def test_a_damaged_list_is_an_error(tmp_path):
    run = write_run(tmp_path, experiment())
    (tmp_path / LEARNT).write_text('{"formulas": "CaF2"}')
    with pytest.raises(InputError, match="learnt.json"):
        learnt(load_model(run))
