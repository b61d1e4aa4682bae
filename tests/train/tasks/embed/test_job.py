"""The job of the task embed on small crystals: training, scores beside the baseline, the report,
and its resumption.
"""

import base64
from types import SimpleNamespace

import numpy as np
import pytest
from packed import pack_run
from tiny import rows

from namsa.dataset import manifest
from namsa.dataset.shards import Dataset
from namsa.figures.document_markdown import text_markdown
from namsa.io.calibration import CalibrationOverrides
from train.__main__ import main as command
from train.experiment.experiment import load
from train.ranks import connection
from train.scaling import forecast
from train.tasks.embed.application import embed
from train.tasks.embed.card import CARD
from train.tasks.embed.task import rmse_of_each
from train.tasks.pattern_images import images, intensities, patterns

NETWORK = {"kind": "cvae", "input_shape": [1, 32, 48], "filters": [2], "hidden": 8, "latent": 2}
TRAINING = {
    "task": "embed",
    "epochs": 4,
    "batch_size": 4,
    "embed": {"divergence_weight": 0.01, "materials": 2},
    "validation": {"every_epochs": 2},
    "inputs": {"layout": "pattern", "augment": False},
    "optimizer": {"learning_rate": 1e-2, "lars": "none"},
}


JOB = {
    "split": {"train": 0.6, "dev": 0.4, "test": 0},
    "scan": {"shape": [2, 4]},
    "target": {"at": "scan"},
    "network": NETWORK,
    "training": TRAINING,
}


def stored(experiment, training):
    """The network's images of each sample of a part of the dataset."""
    with Dataset(experiment.data.directory) as dataset:
        entries = manifest.present(experiment.data.directory, dataset.ids)
        return {
            entry.id: patterns(experiment, entry, dataset.read(entry.id), training=training)
            for entry in entries
            if (entry.split == "train") == training
        }


@pytest.mark.slow
def test_rows_have_the_loss_of_an_autoencoder_which_falls(run_dir):
    steps = rows(run_dir)
    assert len(steps) == 4 * 2  # 8 training samples
    assert list(steps[0])[:6] == ["step", "epoch", "loss", "rmse", "l2", "lr"]
    for row in steps:
        assert row["loss"] == pytest.approx(row["rmse"] + row["divergence"] + row["l2"])
    assert steps[-1]["rmse"] < steps[0]["rmse"]


@pytest.mark.slow
def test_held_out_patterns_are_scored_beside_as_many_components_and_the_mean_pattern(
    run_dir, evaluation
):
    experiment = load(run_dir / "config.yaml")
    assert (evaluation["task"], evaluation["latent"], list(evaluation["by_split"])) == (
        "embed",
        2,
        ["dev"],
    )
    trained = np.concatenate(list(stored(experiment, training=True).values()))
    flat = trained.reshape(len(trained), -1).astype(float)
    _, _, components = np.linalg.svd(flat - flat.mean(axis=0), full_matrices=False)
    held_out = stored(experiment, training=False)
    assert [row["id"] for row in evaluation["samples"]] == sorted(held_out)
    for row in evaluation["samples"]:
        x = held_out[row["id"]].reshape(row["patterns"], -1) - flat.mean(axis=0)
        left = x - x @ components[:2].T @ components[:2]
        assert row["baseline_rmse"] == pytest.approx(
            rmse_of_each(left, np.zeros(1)).mean(), rel=0.02
        )
        assert row["mean_rmse"] == pytest.approx(rmse_of_each(x, np.zeros(1)).mean(), rel=1e-5)
        assert row["baseline_rmse"] < row["mean_rmse"]
    means = evaluation["by_split"]["dev"]
    for key in ("rmse", "divergence", "baseline_rmse", "mean_rmse"):
        assert means[key] == pytest.approx(np.mean([row[key] for row in evaluation["samples"]]))


@pytest.mark.slow
def test_composites_have_one_sample_of_each_material(evaluation):
    material = {row["id"]: row["material"] for row in evaluation["samples"]}
    assert len(material) == 3  # of two materials
    (composite,) = evaluation["composites"]
    assert {material[id] for id in composite["ids"]} == set(material.values())
    assert (len(composite["ids"]), composite["patterns"]) == (2, 16)
    assert 0 <= composite["nmi"] <= 1
    assert 0 <= composite["baseline_nmi"] <= 1
    row = evaluation["by_split"]["dev"]
    assert (row["composites"], row["nmi"], row["baseline_nmi"]) == (
        1,
        composite["nmi"],
        composite["baseline_nmi"],
    )


@pytest.mark.slow
def test_report_has_the_numbers_and_the_picture(run_dir, evaluation, page):
    row = evaluation["by_split"]["dev"]
    assert f"<strong>{row['rmse']:.4g}</strong>; as many principal components have" in page
    picture = (run_dir / "latent_space.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert base64.b64encode(picture).decode() in page
    assert "Validation, dev split" in page
    (run_dir / "latent_space.png").rename(run_dir / "moved.png")
    assert command(["report", str(run_dir)]) == 0
    assert "latent_space.png is missing" in (run_dir / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_resumed_job_ends_with_the_same_bits(assert_resumed):
    """The draws of the latent numbers go on where they stopped."""
    assert_resumed(3)


@pytest.mark.slow
@pytest.mark.usefixtures("run_dir")
def test_a_job_of_embeddings_is_told_before_it_begins(config):
    connection.start(load(config).training)
    facts = forecast.forecast(load(config))
    assert (facts["steps"], facts["train_samples"]) == (8, 8)


@pytest.mark.slow
def test_images_stand_for_fractions_of_the_beam(run_dir):
    experiment = load(
        run_dir / "config.yaml", ["training.inputs.power=0.3", "training.inputs.gain=2"]
    )
    with Dataset(experiment.data.directory) as dataset:
        entry = manifest.present(experiment.data.directory, dataset.ids)[0]
        record = dataset.read(entry.id)
        x = patterns(experiment, entry, record, training=False)
    np.testing.assert_allclose(intensities(experiment, x), record.patterns(), rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(images(experiment, record.patterns()), x, rtol=1e-5)


@pytest.mark.slow
def test_the_baseline_of_a_part_of_each_scan_leaves_out_what_is_held_out(run_dir):
    overrides = ["training.inputs.window=[1, 1]", "training.inputs.held_out_positions=0.25"]
    experiment = load(run_dir / "config.yaml", overrides)
    assert {len(x) for x in stored(experiment, training=True).values()} == {6}  # of 8 positions


@pytest.mark.slow
def test_a_packed_run_embeds_without_its_dataset(run_dir, evaluation, tmp_path):
    model, card, weights = pack_run(run_dir, tmp_path / "net", "rmse")
    row = evaluation["by_split"]["dev"]
    assert "to 2 latent numbers, learnt without labels" in card
    assert f"| {row['baseline_rmse']:.4g} | {row['mean_rmse']:.4g} |" in card
    beam = CalibrationOverrides(
        energy_ev=100e3,
        semiangle_mrad=15.0,
        scan_step_angstrom=(1.0, 1.0),
        pixel_mrad=model.conditions.pixel_mrad,
    )
    scan = np.random.default_rng(0).exponential(1 / 1536, (2, 3, 32, 48)).astype(np.float32)
    before, after = (
        embed(scan, path, beam, clusters=2, beam_intensity=1.0)
        for path in (weights, tmp_path / "net")
    )
    np.testing.assert_allclose(after.latents, before.latents, atol=1e-2)


@pytest.mark.slow
def test_a_card_says_where_principal_components_are_better(evaluation):
    row = evaluation["by_split"]["dev"]
    worse = evaluation | {
        "by_split": {
            "dev": row | {"rmse": 2.0, "baseline_rmse": 1.0, "nmi": 0.5, "baseline_nmi": 0.4}
        }
    }
    limits = [text_markdown(limit) for limit in CARD.limits(SimpleNamespace(evaluation=worse))]
    assert limits[0].endswith("rms error 1, the network's 2.")
    for line in limits:
        assert "NMI" not in line
    rounding = CARD.rounding(np.zeros((2, 4)), np.full((2, 4), 0.5), worse)
    assert (rounding.change, rounding.error) == (0.5, 2.0)
