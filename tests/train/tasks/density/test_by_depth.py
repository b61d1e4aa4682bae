"""The job of a density by depth on small stacks: the target, scores beside projections, the report,
and a scan.
"""

import json
from contextlib import nullcontext
from dataclasses import replace

import h5py
import numpy as np
import pytest
import tensorflow as tf
from needs_kind import needs
from tiny import CONFIG

from namsa.base.errors import InputError, WorkError
from namsa.io.calibration import CalibrationOverrides
from train.experiment import symmetries
from train.experiment.experiment import load
from train.input import batches
from train.input.normalisation import (
    Batch,
    Normalisation,
    normalise,
    normalise_graph,
    record_symmetries,
)
from train.input.windows import middle
from train.main import train
from train.optimization.losses import huber
from train.tasks import task_of
from train.tasks.density.depth_metrics import depth_scores, summarise
from train.tasks.density.report.card_sections import limits
from train.tasks.density.report.depth_section import read_bins
from train.tasks.density.results import read_evaluation
from train.tasks.density.scan.application import ReconstructionOptions, reconstruct
from train.tasks.density.trust.consistency import KnownSpecimen

BINS = 4
SCALE = 10
BEAM = CalibrationOverrides(
    energy_ev=100e3, semiangle_mrad=15.0, scan_step_angstrom=(0.8, 0.8), pixel_mrad=(10.0, 10.0)
)
NETWORK = {
    "input_shape": [16, 8, 12],
    "output_channels": BINS,
    "layers": [1, 1, 1],
    "growth": 4,
    "kernel": 3,
}
TRAINING = {
    "epochs": 2,
    "batch_size": 2,
    "validation": {"every_epochs": 1},
    "inputs": {"layout": "scan", "augment": True, "density_scale_e_per_angstrom2": SCALE},
    "loss": {"relative": True},
    "optimizer": {"learning_rate": 1e-2},
}
SIMULATION = {
    "split": {"train": 0.6, "dev": 0.4, "test": 0},
    "specimen": CONFIG["specimen"]
    | {"thickness_angstrom": [16.0], "kinds": {"stack": 1, "doped_layer": 1}},
    "scan": {"shape": [10, 12], "step_angstrom": [0.8, 0.8]},
    "detector": {"shape": [4, 4], "pixel_mrad": 10},
    "target": {"at": "scan", "depth_bins": BINS},
}


JOB = SIMULATION | {"network": NETWORK, "training": TRAINING}


@pytest.mark.slow
def test_bins_are_scored_beside_projections(run_dir, evaluation, page):
    by_depth = evaluation["by_depth"]
    samples = evaluation["samples"]
    assert (by_depth["bins"], by_depth["samples"]) == (BINS, len(samples))
    for name in ("network", "own_projected", "true_projected", "mean_predictor"):
        scores = [row["by_depth"][name] for row in samples]
        assert by_depth[name]["r_factor"] == pytest.approx(
            np.mean([row["r_factor"] for row in scores])
        )
        assert by_depth[name]["mae"] == pytest.approx(
            np.mean([row["mae"] for row in scores], axis=0)
        )
    ratio = by_depth["true_projected"]["r_factor"] / by_depth["network"]["r_factor"]
    assert by_depth["factor_true_projected"] == pytest.approx(ratio)
    # The other scores are those of the projected density, as without bins.
    for row in samples:
        assert len(row["by_depth"]["network"]["mae"]) == BINS
        assert isinstance(row["mae"], float)
    assert "<h2>By depth</h2>" in page
    assert "True projected density, equal parts" in page
    bins = read_bins(run_dir / "depth.npz")
    assert f'alt="Density by depth of {next(iter(bins))}"' in page
    truth, prediction = next(iter(bins.values()))
    assert truth.shape == prediction.shape == (BINS, 8, 12)


@pytest.mark.slow
def test_the_card_tells_the_bins(run_dir):
    evaluation = read_evaluation(run_dir / "evaluation.json")
    lines = list(limits(load(run_dir / "config.yaml"), evaluation, {}))
    (line,) = [line for line in lines if "bins along the beam" in line]
    assert f"R of {evaluation['by_depth']['network']['r_factor']:.3f} where equal parts" in line


@pytest.mark.slow
def test_batches_hold_the_bins_of_windows_under_their_symmetries(opened):
    experiment, dataset, present = opened
    task = task_of(experiment)
    settings = experiment.training.inputs
    entry = next(entry for entry in present if entry.split == "train")
    record = middle(dataset.read(entry.id), (8, 12))
    assert record.density_by_depth.shape == (BINS, 8, 12)
    np.testing.assert_allclose(
        record.density_by_depth.sum(axis=0), record.density, rtol=1e-4, atol=1e-3
    )
    by_depth = replace(record, density=record.density_by_depth)
    turned = symmetries.apply(
        3, record_symmetries(record), np.zeros((8, 12, 4, 4)), by_depth.density
    )[1]
    flipped = symmetries.apply(
        3, record_symmetries(record), np.zeros((8, 12, 4, 4)), record.density
    )[1]
    np.testing.assert_allclose(turned.sum(axis=0), flipped, rtol=1e-4, atol=1e-3)
    for data_format, axis in (("channels_last", -1), ("channels_first", 0)):
        y = normalise(by_depth, settings, data_format)[1]
        np.testing.assert_array_equal(
            np.moveaxis(y, axis, 0), record.density_by_depth / np.float32(SCALE)
        )
    (x, y), *_ = batches.batches(task.readable(dataset), [entry] * 2, experiment, 0)
    assert (x.shape, y.shape) == ((2, 8, 12, 16), (2, 8, 12, BINS))
    totals = {float(value) for value in np.round(y.numpy().sum(axis=(1, 2, 3)), 2)}
    assert len(totals) <= 2  # one sample, two windows
    target = task.statistic(dataset, [entry])
    np.testing.assert_allclose(target, record.density_by_depth)
    assert task.random_target((None, np.ones((2, 8, 12, 1)))).shape == (2, 8, 12, BINS)
    assert float(huber(y, y, 1.0, (0.0, 0.01))) == 0


@pytest.mark.slow
def test_samples_without_bins_are_refused(opened):
    experiment, dataset, present = opened

    class Projected:
        def view(self, sample_id, check=False):
            return nullcontext(replace(dataset.read(sample_id), density_by_depth=None))

    entry = next(entry for entry in present if entry.split == "train")
    with pytest.raises(WorkError, match=r"no density by depth.*target.depth_bins"):
        task_of(experiment).statistic(Projected(), [entry])


@pytest.mark.slow
def test_reconstruct_writes_the_bins_with_an_axis(opened, run_dir, tmp_path):
    _, dataset, present = opened
    record = dataset.read(next(entry.id for entry in present if entry.split == "dev"))
    patterns = record.patterns().reshape(10, 12, 4, 4)
    result = reconstruct(patterns, str(run_dir), BEAM, beam_intensity=1.0)
    assert result.density_by_depth.shape == (BINS, 10, 12)
    np.testing.assert_allclose(
        result.density_by_depth.sum(axis=0), result.density, rtol=1e-4, atol=1e-4
    )
    result.save(tmp_path / "out.h5")
    with h5py.File(tmp_path / "out.h5") as file:
        group = file["reconstruction/density_by_depth"]
        np.testing.assert_array_equal(group["data"], result.density_by_depth)
        assert dict(group["dim0"].attrs) == {"name": "depth", "units": "Å"}
        np.testing.assert_allclose(group["dim0"], (np.arange(BINS) + 0.5) * 16 / BINS)
    result.show(tmp_path / "out.png")
    assert "Depth 4–8 Å" in result._bin_names()
    known = KnownSpecimen(16.0)
    options = ReconstructionOptions(refine_steps=1)
    with pytest.raises(InputError, match="predicts it by depth"):
        reconstruct(
            patterns, str(run_dir), BEAM, beam_intensity=1.0, specimen=known, options=options
        )


@pytest.mark.slow
def test_scores_of_known_estimates():
    truth = np.zeros((2, 3, 5))
    truth[1] = 4.0  # all of it in the second bin
    scores = depth_scores(0.5 * truth, truth, np.full(truth.shape, 3.0))
    assert scores["network"] == {"r_factor": 0.5, "rmse": np.sqrt(2), "mae": [0.0, 2.0]}
    assert scores["own_projected"]["mae"] == [1.0, 3.0]
    assert scores["true_projected"] == {"r_factor": 1.0, "rmse": 2.0, "mae": [2.0, 2.0]}
    assert scores["mean_predictor"]["mae"] == [3.0, 1.0]
    assert scores["explained"] == pytest.approx(0.5)
    even = depth_scores(truth, np.ones((2, 3, 5)), truth)
    assert even["explained"] is None
    total = summarise([scores, scores], 2)
    assert (total["factor_own_projected"], total["factor_true_projected"]) == (2.0, 2.0)


UNET = [
    "network={kind: unet3d, input_shape: [16, 4, 8, 12], output_channels: 1, levels: 2, "
    "first_filters: 4}",
    "training.inputs.layout=depth",
]


@pytest.mark.slow
def test_a_volume_is_the_same_for_training_and_evaluation(opened, config):
    _, dataset, present = opened
    record = middle(
        dataset.read(next(entry.id for entry in present if entry.split == "train")), (8, 12)
    )
    record = replace(record, density=record.density_by_depth)
    for data_format in ("channels_last", "channels_first"):
        section = UNET[0].replace("levels", f"data_format: {data_format}, levels")
        experiment = load(config, [section, *UNET[1:]])
        inputs = experiment.training.inputs
        channels = experiment.channels()
        x, y = normalise(record, inputs, data_format, channels=channels)
        volume = (4, 8, 12, 16)
        target = (4, 8, 12, 1)
        if data_format == "channels_first":
            volume = (16, 4, 8, 12)
            target = (1, 4, 8, 12)
        assert (x.shape, y.shape) == (volume, target)
        batch = Batch(
            *map(
                tf.constant,
                (
                    record.patterns().reshape(1, 8, 12, 4, 4),
                    np.ones((1, 1, 1, 1), "f4"),
                    record.density[None],
                ),
            )
        )
        settings = Normalisation.of(inputs, data_format, "float32")
        graph_x, graph_y = normalise_graph(batch, settings, channels)
        np.testing.assert_allclose(graph_x[0], x, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(graph_y[0], y, rtol=1e-6)


@pytest.mark.slow
def test_the_unet_trains_and_reconstructs(config, run_dir, tmp_path):  # on the samples of `run_dir`
    run = tmp_path / "run"
    train(config, [*UNET, "training.steps=2"], run)
    results = json.loads((run / "evaluation.json").read_text(encoding="utf-8"))
    assert len(results["by_depth"]["network"]["mae"]) == 4
    patterns = np.random.default_rng(0).random((10, 14, 4, 4)) / 16
    result = reconstruct(patterns, str(run), BEAM, beam_intensity=1.0)
    assert result.density_by_depth.shape == (4, 10, 14)
    np.testing.assert_allclose(
        result.density_by_depth.sum(axis=0), result.density, rtol=1e-4, atol=1e-4
    )
    mirrored = reconstruct(patterns[::-1, :, ::-1], str(run), BEAM, beam_intensity=1.0)
    np.testing.assert_allclose(
        mirrored.density_by_depth, result.density_by_depth[:, ::-1], rtol=1e-4, atol=1e-4
    )
    with pytest.raises(InputError, match="refocuses windows of 8×12"):
        reconstruct(patterns[:8, :8], str(run), BEAM, beam_intensity=1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "setting", "message"),
    [
        ([], "network.output_channels=1", "target.depth_bins 4 needs 4"),
        ([], "training.loss.likelihood=laplace", "depth_bins is 4: set likelihood to none"),
        ([], "simulation.method=scatter", "simulation.method to auto"),
        (UNET, "training.inputs.layout=scan", "gives no image of densities"),
        (UNET, "target.depth_bins=1", "set target.depth_bins above 1"),
        (UNET, "network.output_channels=4", "a voxel has one density: set it to 1"),
        (UNET, "specimen.thickness_angstrom=[16, 20]", "give one specimen.thickness_angstrom"),
        (UNET, "training.inputs.channels=virtual", "layout depth refocuses detector pixels"),
        pytest.param(
            UNET,
            "training.split.ways=8",
            "layer down1_pool halves its maps, and a part has 1 rows of them: .*, at most",
            marks=needs("parts", "division"),
        ),
        (UNET, "target.depth_bins=8", r"the data give \[16, 8, 8, 12\]"),
    ],
)
def test_what_does_not_fit_is_named(config, job, setting, message):
    with pytest.raises(InputError, match=message):
        load(config, [*job, setting])
