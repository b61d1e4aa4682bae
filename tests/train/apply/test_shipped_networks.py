"""The networks that come with the package: whole, described, and of use on a crystal of their microscope."""

import hashlib
from functools import cache

import pytest
from paths import DATA

from namsa.config.materials import Materials
from namsa.crystals.select import select_materials
from namsa.dataset import records
from namsa.dataset.entries import build_entries
from namsa.dataset.entry import assign
from namsa.dataset.simulate_entry import simulate_entry
from namsa.io.calibration import CalibrationOverrides
from train.apply.models import shipped
from train.apply.orientation import is_contradicted
from train.experiment.conditions import has_films_alone
from train.measure.metrics import image_metrics
from train.tasks.density.application import reconstruct
from train.tasks.density.calibrate import trained_ensemble
from train.tasks.density.card import mean_predictions
from train.tasks.scan_command import commands_of

CRYSTAL = DATA / "mixed_perovskite.cif"  # in no library
THICKNESS = 50  # Å, or that of a network nearest to it
MODELS = {model.name: model for model in shipped()}
DENSITIES = [name for name, model in MODELS.items() if model.experiment.training.task == "density"]
FAMILIAR = [name for name in DENSITIES if (MODELS[name].folder / "familiarity.npz").is_file()]


@pytest.mark.parametrize("name", MODELS)
def test_a_card_is_of_the_weights_beside_it(name):
    model = MODELS[name]
    card = (model.folder / "CARD.md").read_text(encoding="utf-8")
    assert hashlib.sha256(model.weights.read_bytes()).hexdigest() in card
    command, *_ = commands_of(model.experiment.training.task)
    assert f"python -m train {command.name} DATA.h5 --checkpoint {name} --out " in card


@pytest.mark.parametrize("name", DENSITIES)
def test_the_uncertainty_of_a_density_is_calibrated(name):
    model = MODELS[name]
    assert (model.calibration.uncertainty_factor or 0) > 0
    assert (model.folder / "transfer.json").is_file()


@pytest.mark.parametrize("name", DENSITIES)
def test_a_crystal_that_training_never_saw_comes_out(name):
    model, record = MODELS[name], window(name)
    (density,) = mean_predictions(trained_ensemble(model).predict, [record])
    scores = image_metrics(density, record.density, huber_delta=10.0)
    assert scores["ssim"] > 0.9
    assert scores["pearson"] > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIAR)
def test_half_a_turn_of_the_detector_is_told(name):
    model = MODELS[name]
    scan, detector = model.conditions.scan_shape, model.conditions.detector_shape
    patterns = window(name).patterns().reshape(*scan, *detector)
    told = CalibrationOverrides(
        energy_ev=model.conditions.energy_ev,
        semiangle_mrad=model.conditions.semiangle_mrad,
        scan_step_angstrom=model.conditions.scan_step_angstrom,
        pixel_mrad=model.conditions.pixel_mrad,
        rotation_deg=0.0,
    )
    right = reconstruct(patterns, model, told, beam_intensity=1.0).provenance["orientation"]
    turned = reconstruct(patterns[..., ::-1, ::-1], model, told, beam_intensity=1.0)
    assert right["half_turn"] > 1
    assert turned.provenance["orientation"]["half_turn"] == pytest.approx(1 / right["half_turn"], rel=0.01)
    assert is_contradicted(turned.provenance["orientation"])
    assert turned.outside


@cache
def window(name):
    """The record of a window of one perfect specimen in focus."""
    config, crystal = ideal(MODELS[name])
    entry, *_ = build_entries(config, [crystal])
    return records.decode(records.encode(simulate_entry(config, crystal, entry), "float16"))


def ideal(model):
    """The configuration of a window of one perfect specimen in focus, and its crystal, which training did not have."""
    experiment = model.experiment
    scan = experiment.scan.model_copy(update={"shape": model.conditions.scan_shape})
    thickness = min(experiment.specimen.thickness_angstrom, key=lambda each: abs(each - THICKNESS))
    if "thickness_angstrom" in experiment.varied_quantities():  # the listed one is that which samples are cut from
        thickness = THICKNESS
    perfect = {"kinds": None, "thickness_angstrom": (thickness,), "zone_axes": ((0, 0, 1),), "max_strain": 0.1}
    specimen = experiment.specimen.model_copy(update=perfect)
    simulation = experiment.simulation.model_copy(update={"method": "multislice"})
    changed = {"variation": None, "specimen": specimen, "scan": scan, "simulation": simulation}
    config = experiment.model_copy(update=changed)
    if has_films_alone(experiment):
        crystals = select_materials(experiment.materials)
        splits = assign(crystals, experiment.split)
        return config, next(crystal for crystal, split in zip(crystals, splits, strict=True) if split == "test")
    config = config.model_copy(update={"materials": Materials(builtin=(), cif=(CRYSTAL,))})
    return config, select_materials(config.materials)[0]
