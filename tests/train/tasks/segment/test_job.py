"""The job of the task segment on small crystals: composites, scores of all classes, and the
report.
"""

import numpy as np
import pytest
from packed import pack_run
from tiny import CONFIG, rows

from namsa.base.errors import InputError
from train.experiment.experiment import load
from train.input import batches, views
from train.tasks import task_of
from train.tasks.segment.composer import (
    LARGEST_DIAMETER,
    SHAPES,
    composite,
    draw_labels,
    ellipse,
    mean_area,
    polygon,
)
from train.tasks.segment.scores import confusion, intersections_over_unions, mean_iou
from train.tasks.segment.section import Inclusion
from train.tasks.segment.task import class_weights, weighted_cross_entropy

GRAIN = {"fraction": 0.2, "diameter_positions": [2, 4]}
PHASE = {"fraction": 0.1, "diameter_positions": [2, 3]}
NETWORK = {
    "input_shape": [16, 8, 8],
    "output_channels": 3,
    "layers": [1, 1, 1],
    "growth": 4,
    "kernel": 3,
}
TRAINING = {
    "task": "segment",
    "epochs": 2,
    "batch_size": 2,
    "segment": {"grain": GRAIN, "phase": PHASE, "draws": 2},
    "validation": {"every_epochs": 1},
    "inputs": {"layout": "scan", "augment": False},
    "optimizer": {"learning_rate": 1e-2},
}
SIMULATION = {
    "split": {"train": 0.6, "dev": 0.4, "test": 0},
    "specimen": CONFIG["specimen"]
    | {"zone_axes": [[0, 0, 1], [1, 1, 0]], "thickness_angstrom": [4.0]}
    | {"kinds": {"crystal": 3, "boundary": 1}, "per_zone_axis": 2},
    "scan": {"shape": [8, 12], "step_angstrom": [0.8, 0.8]},
    "detector": {"shape": [4, 4], "pixel_mrad": 10},
    "target": {"at": "scan"},
}


JOB = SIMULATION | {"network": NETWORK, "training": TRAINING}


@pytest.mark.slow
def test_held_out_composites_are_scored_beside_the_baseline(evaluation, page):
    assert (evaluation["task"], evaluation["classes"]) == ("segment", ["matrix", "grain", "phase"])
    scores = evaluation["scores"]["composite"]["dev"]
    table = np.array(evaluation["confusion"]["composite"]["dev"])
    composites = []
    for row in evaluation["samples"]:
        if row["kind"] == "crystal":
            composites.append(row)
    assert (table == sum(np.array(row["confusion"]) for row in composites)).all()
    assert table.sum() == scores["positions"] == scores["scans"] * 64 == len(composites) * 2 * 64
    assert scores["mean_iou"] == mean_iou(table)
    assert scores["baseline_mean_iou"] == pytest.approx(table[0].sum() / table.sum() / 3)
    specimens = []
    for row in evaluation["samples"]:
        if row["kind"] == "boundary":
            specimens.append(row)
    of_specimen = evaluation["scores"]["specimen"]["dev"]
    assert of_specimen["scans"] == len(specimens) > 0
    assert of_specimen["positions"] == 64 * len(specimens)
    assert of_specimen["fractions"]["grain"] > 0.1  # from the records' labels: about half of each
    assert of_specimen["fractions"]["phase"] == 0
    assert evaluation["expected_fractions"] == pytest.approx([0.7, 0.2, 0.1])
    assert "the mean intersection over union is" in page
    assert 'alt="Held-out scans with true and predicted classes"' in page


@pytest.mark.slow
def test_rows_and_validations_have_the_numbers_of_the_task(run_dir, validations):
    assert list(rows(run_dir)[0])[:5] == ["step", "epoch", "loss", "cross_entropy", "l2"]
    assert [row["epoch"] for row in validations] == [1, 2]
    assert list(validations[0])[3:] == ["error", "mean_iou", "iou_matrix", "iou_grain", "iou_phase"]
    for row in validations:
        assert row["error"] == 1 - row["mean_iou"]


@pytest.mark.slow
def test_a_resumed_job_makes_the_same_composites(assert_resumed):
    assert_resumed(1)


@pytest.mark.slow
def test_composites_follow_from_seed_and_epoch_and_their_parts_from_one_split(opened):
    experiment, dataset, present = opened
    task = task_of(experiment)
    entries = []
    for entry in task.usable(present):
        if entry.split == "train":
            entries.append(entry)
    composer = task.composer(dataset)
    drawn = []
    for entry in entries:
        for epoch in range(20):
            drawn.append(composer.labels(entry, epoch))
    for entry, (parts, labels) in zip([e for e in entries for _ in range(20)], drawn, strict=True):
        grain, phase = parts
        assert (grain.material, phase.split) == (entry.material, "train")
        assert grain.zone_axis != entry.zone_axis
        assert phase.material != entry.material
        assert labels.shape == (8, 12)
    again = []
    for entry in entries:
        for epoch in range(20):
            again.append(composer.labels(entry, epoch)[1])
    np.testing.assert_array_equal([labels for _, labels in drawn], again)
    assert len({labels.tobytes() for labels in again}) > 20
    cache = views.ReadCache()
    read = [
        list(batches.batches(dataset, entries, experiment, epoch, cache, task.target, composer))
        for epoch in (0, 1, 0)
    ]
    for (x, y), (x2, _), (x3, y3) in zip(*read, strict=True):
        np.testing.assert_array_equal(x, x3)
        np.testing.assert_array_equal(y, y3)
        assert not np.array_equal(x, x2)
        assert set(np.unique(y)) <= {0, 1, 2}


@pytest.mark.slow
def test_samples_that_make_no_composites_are_named(config, opened):
    experiment, dataset, present = opened
    large = load(config, ["training.segment.grain.diameter_positions=[2, 6]"])
    with pytest.raises(InputError, match="go beyond 4.8, 0.6 of the scan's shorter side"):
        task_of(large).resolve(present, dataset)
    alike = []
    for entry in present:
        if entry.zone_axis == (0, 0, 1):
            alike.append(entry)
    with pytest.raises(
        InputError, match="goes with another as class grain .*: give specimen.zone_axes another dir"
    ):
        task_of(experiment).resolve(alike, dataset)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "network.output_channels=2",
            r"training.segment has 3 classes \(matrix, grain, phase\): set it to 3",
        ),
        ("training.segment.phase.fraction=0", r"has 2 classes \(matrix, grain\): set it to 2"),
        ("training.segment.grain.fraction=0.9", "must have a sum between 0 and 1"),
        (
            "training.segment.grain.diameter_positions=[4, 2]",
            r"give \[least, most\], not \[4.0, 2.0\]",
        ),
        ("training.segment.weights=sqrt", "must be 'inverse_sqrt', 'inverse' or 'none'"),
        (
            "training.inputs.layout=detector",
            "labels scan positions, and training.inputs.layout is detector",
        ),
        (
            "network={kind: resnet50, input_shape: [1, 4, 4], classes: 3}",
            "kind resnet50 gives no image of classes",
        ),
    ],
)
def test_what_does_not_fit_the_task_is_named(config, override, message):
    with pytest.raises(InputError, match=message):
        load(config, [override])


@pytest.mark.slow
def test_weights_are_those_of_the_paper_and_one_on_average():
    fractions = [0.991**2, 0.0266**2, 0.13**2]  # as Kurth et al. give their square roots
    weights = np.array(class_weights(fractions, "inverse_sqrt"))
    np.testing.assert_allclose(weights / weights.sum(), [0.02180, 0.81205, 0.16616], atol=2e-5)
    for rule in ("inverse_sqrt", "inverse", "none"):
        assert np.dot(fractions, class_weights(fractions, rule)) == pytest.approx(1)
    assert class_weights([0.5, 0.5], "none") == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("channels_first", [False, True])
def test_the_loss_is_the_weighted_cross_entropy(channels_first):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2, 3, 4, 3))
    labels = rng.integers(0, 3, (2, 3, 4))
    weights = np.array([0.5, 2.0, 7.0])
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    right = np.take_along_axis(probabilities, labels[..., None], axis=-1)[..., 0]
    expected = -(weights[labels] * np.log(right)).mean()
    output = logits.transpose(0, 3, 1, 2) if channels_first else logits
    (loss,) = weighted_cross_entropy(tuple(weights), channels_first)(
        output, labels.astype(np.float32), 0.0
    )
    assert float(loss) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_intersections_over_unions_of_a_matrix_by_hand():
    truth = np.array([0, 0, 0, 0, 1, 1])
    labels = np.array([0, 0, 0, 1, 1, 0])
    table = confusion(truth, labels, 3)
    np.testing.assert_array_equal(table, [[3, 1, 0], [1, 1, 0], [0, 0, 0]])
    np.testing.assert_allclose(intersections_over_unions(table), [3 / 5, 1 / 3, np.nan])
    assert mean_iou(table) == pytest.approx((3 / 5 + 1 / 3) / 2)
    paper = np.array([[982, 0, 0], [17, 0, 0], [1, 0, 0]])  # every position called matrix
    assert mean_iou(paper) == pytest.approx(0.327, abs=5e-4)


@pytest.mark.slow
def test_a_packed_run_has_the_scores_of_its_classes(run_dir, evaluation, tmp_path):
    model, card, _ = pack_run(run_dir, tmp_path / "net", "error")
    assert model.experiment.training.segment.classes == ("matrix", "grain", "phase")
    scores = evaluation["scores"]["composite"]["dev"]
    assert f"| {scores['baseline_mean_iou']:.3f} |" in card
    assert f"of {scores['fractions']['grain']:.2%} |" in card
    assert "| specimens | simulated as a whole" in card
    assert "scored on composites alone" not in card
    assert "any scan, in overlapping windows" in card
    assert "get another class" in card


# ---- Composites: fractions of classes, and patterns of their samples
# ------------------------------------------------

SCAN = (24, 30)


def inclusion(fraction, least, most):
    return Inclusion(fraction=fraction, diameter_positions=(least, most))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [polygon, ellipse])
def test_a_shape_has_the_area_of_its_circle_and_lies_within_the_scan(shape):
    rng = np.random.default_rng(0)
    y = np.linspace(-1.2, 1.2, 401)[:, None]
    x = np.linspace(-1, 1, 301)[None]
    pixel = (y[1, 0] - y[0, 0]) * (x[0, 1] - x[0, 0])
    for _ in range(20):
        inside = shape(y, x, 2 * LARGEST_DIAMETER, rng)  # on a scan of sides 2.4 and 2
        assert inside.sum() * pixel == pytest.approx(np.pi * LARGEST_DIAMETER**2, rel=0.01)
        border = np.concatenate([inside[0], inside[-1], inside[:, 0], inside[:, -1]])
        assert not border.any()


@pytest.mark.slow
def test_classes_have_the_fractions_that_were_asked_for():
    asked = {"grain": inclusion(0.2, 4, 9), "phase": inclusion(0.1, 2, 5)}
    shaped = [(section, SHAPES[name]) for name, section in asked.items()]
    rng = np.random.default_rng(1)
    draws = 3000
    counts = np.array(
        [np.bincount(draw_labels(SCAN, shaped, rng).ravel(), minlength=3) for _ in range(draws)]
    )
    fractions = counts / np.prod(SCAN)
    error = fractions.std(axis=0) / np.sqrt(draws)
    np.testing.assert_array_less(abs(fractions.mean(axis=0) - [0.7, 0.2, 0.1]), 4 * error)
    assert (error < 0.004).all()  # the comparison says something


@pytest.mark.slow
def test_the_mean_area_is_that_of_evenly_drawn_diameters():
    diameters = np.random.default_rng(2).uniform(2, 5, 200_000)
    assert mean_area(inclusion(0.1, 2, 5)) == pytest.approx(
        (np.pi / 4 * diameters**2).mean(), rel=0.01
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_each_position_has_the_pattern_of_its_class_as_a_fraction_of_the_beam(dtype):
    rng = np.random.default_rng(3)
    scales = (2.0**14, 2.0**10, 2.0**17) if dtype == "float16" else (1.0, 1.0, 1.0)
    truth = [rng.uniform(0.1, 0.2, (4, 5, 3, 2)) / (scale / 2.0**14) for scale in scales]
    parts = [
        views.SampleView((array * scale).astype(dtype), scale, np.zeros((4, 5), np.float32), None)
        for array, scale in zip(truth, scales, strict=True)
    ]
    originals = [view.patterns.copy() for view in parts]
    labels = rng.integers(0, 3, (4, 5)).astype(np.uint8)
    composed = composite(parts[0], parts[1:], labels)
    expected = np.choose(labels[..., None, None], truth)
    assert composed.patterns.dtype == dtype
    np.testing.assert_allclose(
        composed.patterns.astype(float) / composed.scale, expected, rtol=2e-3
    )
    np.testing.assert_array_equal(composed.density, labels)
    for view, array in zip(parts, originals, strict=True):  # stored samples are not changed
        np.testing.assert_array_equal(view.patterns, array)
    alone = composite(parts[0], parts[1:], np.zeros((4, 5), np.uint8))
    np.testing.assert_array_equal(alone.patterns, parts[0].patterns)
