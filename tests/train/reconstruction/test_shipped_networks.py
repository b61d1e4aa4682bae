"""The networks that come with the package: whole, described, and of use on a crystal of their microscope."""

import hashlib

import pytest
from paths import DATA

from namsa.config.materials import Materials
from namsa.crystals.select import select_materials
from namsa.dataset import records
from namsa.dataset.entries import build_entries
from namsa.dataset.simulate_entry import simulate_entry
from train.measure.metrics import image_metrics
from train.reconstruction.calibrate import trained_ensemble
from train.reconstruction.models import COMMANDS, shipped
from train.reconstruction.pack import mean_predictions

CRYSTAL = DATA / "mixed_perovskite.cif"  # in no library
MODELS = {model.name: model for model in shipped()}
DENSITIES = [name for name, model in MODELS.items() if model.experiment.training.task == "density"]


@pytest.mark.parametrize("name", MODELS)
def test_a_card_is_of_the_weights_beside_it(name):
    model = MODELS[name]
    card = (model.folder / "CARD.md").read_text(encoding="utf-8")
    assert hashlib.sha256(model.weights.read_bytes()).hexdigest() in card
    task = model.experiment.training.task
    assert f"python -m train {COMMANDS.get(task, task)} DATA.h5 --checkpoint {name} --out " in card


@pytest.mark.parametrize("name", DENSITIES)
def test_the_uncertainty_of_a_density_is_calibrated(name):
    model = MODELS[name]
    assert (model.calibration.uncertainty_factor or 0) > 0
    assert (model.folder / "transfer.json").is_file()


@pytest.mark.parametrize("name", DENSITIES)
def test_a_crystal_of_no_library_comes_out(name):
    model = MODELS[name]
    thickness = model.experiment.specimen.thickness_angstrom[1]
    specimen = model.experiment.specimen.model_copy(
        update={"thickness_angstrom": (thickness,), "zone_axes": ((0, 0, 1),), "max_strain": 0.1}
    )
    config = model.experiment.model_copy(
        update={"materials": Materials(builtin=(), cif=(CRYSTAL,)), "specimen": specimen}
    )
    crystals = select_materials(config.materials)
    (entry,) = build_entries(config, crystals)
    sample = simulate_entry(config, crystals[0], entry)
    record = records.decode(records.encode(sample, "float16"))
    (density,) = mean_predictions(trained_ensemble(model).predict, [record])
    scores = image_metrics(density, record.density, huber_delta=10.0)
    assert scores["ssim"] > 0.9
    assert scores["pearson"] > 0.95
