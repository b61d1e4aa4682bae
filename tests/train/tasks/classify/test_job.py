"""The job of the task classify on small crystals, with validation, its end at a threshold, and its
resumption.
"""

import json
import re
from contextlib import closing
from types import SimpleNamespace

import h5py
import keras
import numpy as np
import pytest
import yaml
from packed import pack_run
from tiny import rows

from namsa.base.errors import InputError
from namsa.base.markup import to_html
from namsa.base.pixels import PixelGrid
from namsa.dataset import manifest
from namsa.dataset.shards import Dataset
from namsa.figures.document import Document, blocks_html
from namsa.figures.document_markdown import to_markdown
from namsa.io.calibration import CalibrationOverrides
from train.__main__ import main as command
from train.experiment.experiment import load
from train.input import batches, windows
from train.main import train
from train.optimization import checkpoint
from train.ranks import connection
from train.scaling import forecast
from train.tasks import task_of
from train.tasks.classify.application import classify
from train.tasks.classify.card import CARD
from train.tasks.classify.figure import class_figure
from train.tasks.classify.potential_clusters import (
    Clusters,
)
from train.tasks.classify.report import REPORT

NETWORK = {
    "kind": "resnet50",
    "input_shape": [1, 32, 48],
    "classes": 2,
    "units": [1, 1],
    "width": 4,
}
INPUTS = {"layout": "pattern", "window": [1, 1], "held_out_positions": 0.25, "augment": False}
TRAINING = {
    "task": "classify",
    "epochs": 4,
    "batch_size": 4,
    "classify": {"label": "thickness"},
    "validation": {"every_epochs": 2},
    "inputs": INPUTS,
    "optimizer": {"kind": "momentum", "learning_rate": 1e-2, "lars": "none"},
    "schedule": {"rule": "constant"},
}

PIXELS = PixelGrid((1.0, 1.0), (0.0, 0.0))


JOB = {
    "split": {"train": 0.6, "dev": 0.4, "test": 0},
    "scan": {"shape": [2, 4]},
    "target": {"at": "scan"},
    "network": NETWORK,
    "training": TRAINING,
}


@pytest.mark.slow
def test_patterns_of_both_splits_are_scored_beside_the_baseline_and_chance(
    run_dir, evaluation, page
):
    assert (evaluation["task"], evaluation["classes"]) == ("classify", ["4", "8"])
    assert list(evaluation["by_split"]) == ["images", "dev"]
    for split, scores in evaluation["by_split"].items():
        samples = []
        for row in evaluation["samples"]:
            if row["split"] == split:
                samples.append(row)
        assert scores["chance"] == 0.5
        assert scores["patterns"] == sum(row["patterns"] for row in samples)
        assert {row["patterns"] for row in samples} == (
            {2} if split == "images" else {8}
        )  # a quarter, or all
        recalls = []
        for name in (0, 1):
            of_class = []
            for row in samples:
                if row["class"] == name:
                    of_class.append(row)
            correct = 0
            for row in of_class:
                correct += sum(n for true, given, n in row["counts"] if true == given)
            recalls.append(correct / sum(row["patterns"] for row in of_class))
        assert scores["balanced_accuracy"] == pytest.approx(np.mean(recalls))
        assert 0 <= scores["baseline_balanced_accuracy"] <= 1
    trained = yaml.safe_load((run_dir / "config.yaml").read_text())["training"]
    assert trained["classify"]["classes"] == [
        "4",
        "8",
    ]  # a later job has the same, whatever is simulated until then
    assert "finds the thickness with a balanced accuracy of" in page
    assert "Validation, dev split" in page


@pytest.mark.slow
def test_rows_have_the_loss_of_classes(run_dir):
    steps = rows(run_dir)
    assert len(steps) == 4 * 2  # 8 training samples
    assert list(steps[0])[:6] == ["step", "epoch", "loss", "cross_entropy", "l2", "lr"]
    assert steps[0]["loss"] == pytest.approx(steps[0]["cross_entropy"] + steps[0]["l2"])
    assert {row["lr"] for row in steps} == {1e-2}


@pytest.mark.slow
def test_the_weights_of_the_lowest_error_are_kept(run_dir, validations):
    assert [(row["epoch"], row["step"]) for row in validations] == [(2, 4), (4, 8)]
    best = min(validations, key=lambda row: row["error"])
    header, _ = checkpoint.read(run_dir / "best.npz")
    assert header["step"] == best["step"]


@pytest.mark.slow
def test_a_resumed_job_validates_to_the_same_bits_and_stops_where_the_other_does(
    run_dir, config, assert_resumed
):
    assert not (assert_resumed(3) / "validation.jsonl").exists()
    stopped = config.parent / "stopped"
    for _ in range(2):  # a job that is started again has nothing left to train
        train(config, ["training.validation.stop_at=1"], stopped)
        assert [row["step"] for row in rows(stopped)] == [1, 2, 3, 4]


@pytest.mark.slow
def test_held_out_positions_are_never_trained_on(run_dir, config):
    mask = windows.held_out_positions((2, 4), 0.25, 7)
    held_out = set(map(tuple, np.argwhere(mask).tolist()))
    assert len(held_out) == 2
    for window in ((1, 1), (1, 3), (2, 4)):
        drawn = set()
        for epoch in range(200):
            (y, x), taken = windows.draw_training_window(mask, window, (0, 0), 7, epoch)
            places = np.argwhere(np.ones(window)) + np.array([y, x])
            kept = ~mask[tuple(places.T)]
            np.testing.assert_array_equal(
                taken[kept], np.flatnonzero(kept)
            )  # the others' places stay their own
            drawn |= set(map(tuple, places[taken].tolist()))
        assert drawn == {(y, x) for y in range(2) for x in range(4)} - held_out
    experiment = load(run_dir / "config.yaml")
    task = task_of(experiment)
    with Dataset(experiment.data.directory) as dataset:
        entries = []
        for e in manifest.present(experiment.data.directory, dataset.ids):
            if e.split == "train":
                entries.append(e)
        pattern = keras.Input((None, None, 1))
        score = task.scorer(keras.Model(pattern, pattern[:, 0, :2, 0]), dataset)
        assert [row["patterns"] for row in score(entries)] == [2] * 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["network.classes=3"],
            r"2 classes of thickness \(4, 8\), and network.classes is 3: set it to 2",
        ),
        (
            ["training.classify.label=material", "network.classes=6"],
            "no sample of the train split has material",
        ),
        (
            ["training.classify.label=crystal_system", "network.classes=1"],
            "all samples have crystal_system cubic",
        ),
    ],
)
@pytest.mark.usefixtures("run_dir")
def test_classes_that_do_not_fit_the_samples_are_named(config, tmp_path, overrides, message):
    with pytest.raises(InputError, match=message):
        train(config, overrides, tmp_path)


@pytest.mark.slow
def test_classes_that_do_not_fit_are_named_before_anything_is_simulated(config, tmp_path):
    overrides = [f"data.directory={tmp_path / 'new'}", "training.classify.classes=['4', '9']"]
    with pytest.raises(
        InputError, match="has 9, and no sample has that thickness: did you mean .*4, 8"
    ):
        train(config, overrides, tmp_path / "run")
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="has 9, and no sample has that thickness"):
        forecast.forecast(load(config, overrides))


@pytest.mark.slow
@pytest.mark.usefixtures("run_dir")
def test_a_job_of_classes_is_told_before_it_begins(config):
    connection.start(load(config).training)
    facts = forecast.forecast(load(config))
    assert (facts["steps"], facts["train_samples"]) == (8, 8)


@pytest.fixture(scope="module")
def clustered(config, run_dir):
    path = config.parent / "clustered"
    train(
        config,
        [
            "training.classify.label=potential_clusters",
            "network.classes=3",
            "training.epochs=1",
            "training.validation.every_epochs=1",
        ],
        path,
    )
    return path


@pytest.mark.slow
def test_each_position_has_the_cluster_of_the_potential_around_it(clustered):
    evaluation = json.loads((clustered / "evaluation.json").read_text(encoding="utf-8"))
    experiment = load(clustered / "config.yaml")
    assert list(experiment.training.classify.classes) == evaluation["classes"] == ["1", "2", "3"]
    assert {row["class"] for row in evaluation["samples"]} == {None}
    for scores in evaluation["by_split"].values():
        assert scores["vote_balanced_accuracy"] is None
    task = task_of(experiment)
    clusters = Clusters.of(experiment.training.classify)
    with Dataset(experiment.data.directory) as dataset:
        entries = [
            e
            for e in manifest.present(experiment.data.directory, dataset.ids)
            if e.split == "train"
        ][:4]
        with closing(
            batches.batches(task.readable(dataset), entries, experiment, 3, target=task.target)
        ) as read:
            ((_, y),) = read
        for entry, cluster in zip(entries, y.numpy(), strict=True):
            held_out = windows.held_out_positions((2, 4), 0.25, entry.seed)
            (row, column), _ = windows.draw_training_window(held_out, (1, 1), (0, 0), entry.seed, 3)
            assert cluster == clusters.nearest(dataset.read(entry.id))[4 * row + column]
    page = re.sub(r"\s+", " ", (clustered / "report.html").read_text(encoding="utf-8"))
    assert "finds the potential clusters with a balanced accuracy of" in page
    assert "By the vote" not in page


@pytest.mark.slow
def test_clusters_are_those_of_the_run_when_it_is_evaluated_again(clustered):
    before = json.loads((clustered / "evaluation.json").read_text(encoding="utf-8"))
    train(clustered / "config.yaml", run_dir=clustered, evaluate_only=True)
    after = json.loads((clustered / "evaluation.json").read_text(encoding="utf-8"))
    assert after["samples"] == before["samples"]


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["", "best.npz"])
def test_a_file_is_classified_as_its_sample_is(evaluation, applied, capsys, weights):
    sample = next(row for row in evaluation["samples"] if row["split"] == "dev")
    code, out = applied("classify", sample["id"], weights)
    assert code == 0
    printed = capsys.readouterr().out
    with h5py.File(out) as file:
        probabilities = file["classes/probability/data"][:]
        classes = file["classes/class/data"][:]
        facts = json.loads(file["classes"].attrs["provenance"])
        assert [file[f"classes/probability/dim{axis}"].attrs["name"] for axis in range(3)] == [
            "index",
            "y",
            "x",
        ]
    assert probabilities.shape == (2, 2, 4)
    np.testing.assert_allclose(probabilities.sum(axis=0), 1, rtol=1e-5)
    np.testing.assert_array_equal(classes, probabilities.argmax(axis=0))
    assert facts["classes"] == ["4", "8"]
    assert facts["vote"] == ["4", "8"][int(probabilities.mean(axis=(1, 2)).argmax())]
    assert f"thickness in Å by vote: {facts['vote']}" in printed
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    if not weights:  # the newest checkpoint, of which the evaluation is
        np.testing.assert_allclose(
            probabilities.mean(axis=(1, 2)), sample["probability"], rtol=1e-3
        )


@pytest.mark.slow
def test_many_classes_are_drawn_and_reported(tmp_path, evaluation):
    rng = np.random.default_rng(0)
    names = [f"P{n}/m" for n in range(40)]
    figure = class_figure(
        rng.dirichlet(np.ones(40), (4, 6)).transpose(2, 0, 1), names, "space_group", PIXELS, "$x"
    )
    assert {text.get_text() for text in figure.axes[2].get_yticklabels()} < set(names)
    thicknesses = class_figure(
        rng.dirichlet([1, 9, 4], (4, 6)).transpose(2, 0, 1), ["40", "60", "20"], "t", PIXELS, ""
    )
    shown = [text.get_text() for text in thicknesses.axes[2].get_yticklabels()]
    assert shown == ["20", "40", "60"]  # ordered as numbers, in a sequential colour map
    confusion = {}
    for split, counts in evaluation["confusion"].items():
        confusion[split] = np.pad(counts, (0, 38)).tolist()
    text = json.dumps(evaluation | {"classes": names, "confusion": confusion})
    (tmp_path / "evaluation.json").write_text(text, encoding="utf-8")
    page = to_html(*blocks_html(REPORT.part(tmp_path).results))
    assert "The most frequent errors, dev" in page


@pytest.mark.slow
def test_a_network_of_classes_reconstructs_nothing(run_dir, config, capsys):
    assert command(["calibrate", str(run_dir)]) == 2
    assert (
        "is a network for training.task classify, and a density is asked for"
        in capsys.readouterr().err
    )


@pytest.mark.slow
def test_a_packed_run_classifies_without_its_dataset(run_dir, evaluation, tmp_path):
    model, card, weights = pack_run(run_dir, tmp_path / "net", "error")
    assert model.experiment.training.classify.classes == ("4", "8")
    assert (
        "to the thickness in Å at each position, and of the scan by their vote: one of 4, 8."
        in card
    )
    assert "    namsa-train classify DATA.h5 --checkpoint net --out CLASSES.h5" in card
    assert " Å | any |" in card
    patterns = np.random.default_rng(0).exponential(1 / 1536, (2, 3, 32, 48)).astype(np.float32)
    conditions = model.conditions
    beam = CalibrationOverrides(
        energy_ev=conditions.energy_ev,
        semiangle_mrad=conditions.semiangle_mrad,
        scan_step_angstrom=(1.0, 1.0),
        pixel_mrad=conditions.pixel_mrad,
    )
    before = classify(patterns, weights, beam, beam_intensity=1.0)
    after = classify(patterns, tmp_path / "net", beam, beam_intensity=1.0)
    np.testing.assert_allclose(after.probabilities, before.probabilities, atol=5e-3)
    for split, row in evaluation["by_split"].items():  # the baseline does not depend on the weights
        assert f"| {split} | " in card
        assert f"| {row['baseline_balanced_accuracy']:.3f} |" in card


@pytest.mark.slow
def test_names_of_classes_are_neither_markdown_nor_html(run_dir, evaluation):
    facts = SimpleNamespace(
        evaluation=evaluation | {"classes": ["<b>|x", "`y`"]},
        experiment=load(run_dir / "config.yaml"),
    )
    lines = to_markdown(Document("name", (CARD.scores(facts),)))
    assert "&lt;b&gt;\\|x" in lines
    assert "<" not in lines
    assert "that training draws" not in lines  # neither noise nor imperfections


# ---- Clusters of the potential around the probe
# ----------------------------------------------------------------------
