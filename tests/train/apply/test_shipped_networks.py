"""The networks that come with the package: whole, described, and of use on a crystal of their
microscope.
"""

import hashlib
import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec

import numpy as np
import pytest
from paths import DATA, ROOT

from namsa.config.materials import Materials
from namsa.crystals.select import select_materials
from namsa.dataset import records
from namsa.dataset.entries import build_entries
from namsa.dataset.entry import assign
from namsa.dataset.simulate_entry import simulate_entry
from namsa.figures.document import BulletList, Document, DocumentSection
from namsa.figures.document_markdown import to_markdown
from namsa.io.calibration import CalibrationOverrides
from train.apply.models import shipped
from train.experiment.conditions import has_films_alone
from train.measure.metrics import image_metrics
from train.reports import card_sections
from train.reports.calibration_results import read_calibration
from train.tasks.card import card_of
from train.tasks.density.report import card_sections as density_sections
from train.tasks.density.report.card import mean_predictions
from train.tasks.density.scan.application import reconstruct
from train.tasks.density.trust.orientation import is_contradicted
from train.tasks.density.trust.predictions import trained_ensemble
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
    assert f"namsa-train {command.name} DATA.h5 --checkpoint {name} --out " in card


def section_text(section):
    """A section as Markdown, without its end of line."""
    _, _, text = to_markdown(Document("name", (section,))).split("\n", 2)
    return text.rstrip("\n")


@pytest.mark.parametrize("name", MODELS)
def test_a_card_says_what_follows_from_configuration_and_calibration(name):
    model = MODELS[name]
    card = (model.folder / "CARD.md").read_text(encoding="utf-8")
    experiment = model.experiment
    usage = card_of(experiment.training.task).usage(experiment)
    assert card.startswith(
        to_markdown(Document(name, card_sections.purpose(name, experiment, usage)))
    )
    limits = DocumentSection("Limits", (BulletList(card_sections.training_limits(experiment)),))
    assert section_text(limits) in card
    assert ("that training draws" in card) == bool(card_sections.undrawn(experiment))
    if name in DENSITIES:
        calibration = read_calibration(model.folder / "calibration.json")
        assert section_text(density_sections.uncertainty(calibration)) in card
        (section,) = density_sections.random_conditions(calibration)
        conditions = section_text(section).splitlines()
        scores = [
            line for line in conditions if line.startswith("| ")
        ]  # rounded twice, those of the file once more
        assert "\n".join(line for line in conditions if line not in scores[1:]).rstrip() in card
        assert card.index(conditions[0]) < card.index("## Scores on materials")


@pytest.mark.parametrize("name", DENSITIES)
def test_the_uncertainty_of_a_density_is_calibrated(name):
    model = MODELS[name]
    assert (model.calibration.uncertainty_factor or 0) > 0
    assert (model.folder / "transfer.json").is_file()


@pytest.mark.parametrize("name", DENSITIES)
def test_a_crystal_that_training_never_saw_comes_out(name):
    model = MODELS[name]
    record = window(name)
    (density,) = mean_predictions(trained_ensemble(model).predict, [record])
    scores = image_metrics(density, record.density, huber_delta=10.0)
    assert scores["ssim"] > 0.9
    assert scores["pearson"] > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIAR)
def test_half_a_turn_of_the_detector_is_told(name):
    model = MODELS[name]
    scan = model.conditions.scan_shape
    detector = model.conditions.detector_shape
    patterns = window(name).patterns().reshape(*scan, *detector)
    overrides = CalibrationOverrides(
        energy_ev=model.conditions.energy_ev,
        semiangle_mrad=model.conditions.semiangle_mrad,
        scan_step_angstrom=model.conditions.scan_step_angstrom,
        pixel_mrad=model.conditions.pixel_mrad,
        rotation_deg=0.0,
    )
    right = reconstruct(patterns, model, overrides, beam_intensity=1.0).provenance["orientation"]
    turned = reconstruct(patterns[..., ::-1, ::-1], model, overrides, beam_intensity=1.0)
    assert right["half_turn"] > 1
    assert turned.provenance["orientation"]["half_turn"] == pytest.approx(
        1 / right["half_turn"], rel=0.01
    )
    assert is_contradicted(turned.provenance["orientation"])
    assert turned.outside


@pytest.mark.slow  # it compiles all networks for both
@pytest.mark.skipif(find_spec("jax") is None, reason="no JAX")
def test_shipped_networks_give_the_same_under_both_backends(tmp_path):
    jobs = {}
    for backend in ("tensorflow", "jax"):
        jobs[backend] = subprocess.Popen(
            [
                sys.executable,
                ROOT / "scripts/bench/workers/network_answers.py",
                tmp_path / f"{backend}.npz",
            ],
            env=os.environ
            | {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)},
        )
    assert [job.wait() for job in jobs.values()] == [0, 0]
    with (
        np.load(tmp_path / "tensorflow.npz") as expected,
        np.load(tmp_path / "jax.npz") as under_jax,
    ):
        answers = []
        for key in expected.files:
            if not key.endswith("/seconds"):
                answers.append(key)
        assert {key.partition("/")[0] for key in answers} == MODELS.keys()
        for key in answers:
            error = np.abs(under_jax[key] - expected[key]).max() / np.abs(expected[key]).max()
            # The network predicts the logarithm of the error, of which the variance is the square.
            assert error <= (4e-5 if key.endswith("/variance") else 1e-5), f"{key}: {error:.1e}"


@cache
def window(name):
    """The record of a window of one perfect specimen in focus."""
    config, crystal = ideal(MODELS[name])
    entry, *_ = build_entries(config, [crystal])
    return records.decode(records.encode(simulate_entry(config, crystal, entry), "float16"))


def ideal(model):
    """The configuration of a window of one perfect specimen in focus, and its crystal, which
    training did not have.
    """
    experiment = model.experiment
    scan = experiment.scan.model_copy(update={"shape": model.conditions.scan_shape})
    thickness = min(
        experiment.specimen.thickness_angstrom, key=lambda listed: abs(listed - THICKNESS)
    )
    # the listed one is that which samples are cut from
    if "thickness_angstrom" in experiment.varied_quantities():
        thickness = THICKNESS
    perfect = {
        "kinds": None,
        "thickness_angstrom": (thickness,),
        "zone_axes": ((0, 0, 1),),
        "max_strain": 0.1,
    }
    specimen = experiment.specimen.model_copy(update=perfect)
    simulation = experiment.simulation.model_copy(update={"method": "multislice"})
    changed = {"variation": None, "specimen": specimen, "scan": scan, "simulation": simulation}
    config = experiment.model_copy(update=changed)
    if has_films_alone(experiment):
        crystals = select_materials(experiment.materials)
        splits = assign(crystals, experiment.split)
        return config, next(
            crystal for crystal, split in zip(crystals, splits, strict=True) if split == "test"
        )
    config = config.model_copy(update={"materials": Materials(builtin=(), cif=(CRYSTAL,))})
    return config, select_materials(config.materials)[0]
