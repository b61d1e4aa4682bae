"""Samples beyond what a network has learnt: one quantity each, and what calibration learns from
them.
"""

import json
import shutil
from contextlib import closing

import numpy as np
import pytest
import yaml
from tiny import CONFIG, write_config

from namsa import InputError
from namsa.config.materials import Split
from namsa.config.variation import magnitude
from namsa.dataset import factory, manifest
from namsa.dataset.shards import Dataset
from train.apply import known_windows
from train.experiment.experiment import load
from train.input import imperfections, noise
from train.main import train
from train.tasks.density.trust import familiarity, outside
from train.tasks.density.trust.calibration import calibrate
from train.tasks.density.trust.outside import BEYOND, LEAST_DOSE, outside_windows, plan_outside

VARIATION = {
    "rule": "random",
    "configurations": 3,
    "thickness_angstrom": [4, 8],
    "defocus_angstrom": [-40, 40],
    "C12_angstrom": [0, 10],
    "specimen_tilt_mrad": [0, 5],
}
DOSE = (1e3, 1e6)
SOURCE = 0.6
SCALE = 0.02
WINDOW = (8, 8)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """A job on samples that are cut from scattered specimens, with imperfections and dose."""
    ranges = {"source_size_angstrom": [0, SOURCE], "pixel_scale": [0, SCALE]}
    inputs = {
        "layout": "scan",
        "augment": True,
        "dose_electrons_per_pattern": DOSE,
        "imperfections": ranges,
    }
    return write_config(
        tmp_path_factory.mktemp("outside"),
        split={"train": 0.5, "dev": 0.25, "test": 0.25},
        specimen=CONFIG["specimen"] | {"thickness_angstrom": [8.0]},
        variation=VARIATION,
        simulation={"grid_shape": [32, 32], "method": "scatter"},
        scan={"shape": [12, 13], "step_angstrom": [0.5, 0.4]},
        detector={"shape": [6, 8], "pixel_mrad": 8},
        target={"at": "scan"},
        network=CONFIG["network"] | {"input_shape": [48, *WINDOW]},
        training={"epochs": 1, "inputs": inputs},
    )


@pytest.fixture(scope="module")
def samples(config):
    """The configuration, its dataset's folder, and the training samples."""
    experiment = load(config)
    factory.produce(experiment, experiment.data.directory)
    with Dataset(experiment.data.directory) as dataset:
        present = manifest.present(experiment.data.directory, dataset.ids)
    return (
        experiment,
        experiment.data.directory,
        [entry for entry in present if entry.split == "train"],
    )


@pytest.fixture(scope="module")
def run(config, no_reports):
    train(config, run_dir=config.parent / "run")
    return config.parent / "run"


def beyond_range(entry):
    """The varied quantities of a sample that are out of their ranges, as multiples of the largest
    magnitude.
    """
    ratios = {
        name: abs(magnitude(name, value)) / VARIATION[name][1]
        for name, value in entry.varied.items()
    }
    return {name: ratio for name, ratio in ratios.items() if ratio > 1}


@pytest.mark.slow
def test_each_scattered_sample_is_beyond_one_range_and_keeps_its_direction(samples):
    experiment, _, entries = samples
    planned = []
    for plan in plan_outside(entries, experiment, 100):
        if plan.material:
            planned.append(plan)
    of_entry = {entry.id: entry for entry in entries}
    quantities = set()
    for plan in planned:
        assert len({entry.specimen for entry in plan.entries}) == 1
        assert plan.material.name == plan.entries[0].material
        for entry in plan.entries:
            ((name, ratio),) = beyond_range(entry).items()
            assert BEYOND[0] - 1e-9 <= ratio <= BEYOND[1] + 1e-9
            original = of_entry[entry.id.rpartition("-")[0]]
            assert {k: v for k, v in entry.varied.items() if k != name} == {
                k: v for k, v in original.varied.items() if k != name
            }
            if name == "C12_angstrom":
                assert entry.varied[name][1] == original.varied[name][1]
            quantities.add(name)
    assert quantities >= {"defocus_angstrom", "C12_angstrom"}
    assert len({entry.id for plan in planned for entry in plan.entries}) == sum(
        len(plan.entries) for plan in planned
    )
    assert plan_outside(entries, experiment, 0) == []
    assert sum(plan.material is not None for plan in plan_outside(entries, experiment, 1)) == 1


@pytest.mark.slow
def test_a_tilted_specimen_has_one_tilt_beyond_the_range(samples):
    experiment, _, entries = samples
    ranges = experiment.variation.quantities()
    group = []
    for entry in entries:
        if entry.specimen == entries[0].specimen:
            group.append(entry)
    moved = outside._moved(group, ranges, outside.TILTED - 1)
    assert len({tuple(entry.varied["specimen_tilt_mrad"]) for entry in moved}) == 1
    for entry in moved:
        assert list(beyond_range(entry)) == ["specimen_tilt_mrad"]


@pytest.mark.slow
def test_values_are_beyond_both_sides_of_a_range():
    rng = np.random.default_rng(1)
    values = np.array([outside.beyond((-20.0, 40.0), rng) for _ in range(200)])
    distance = abs(values - 10) / 30
    assert distance.min() >= BEYOND[0]
    assert distance.max() <= BEYOND[1]
    assert 60 < (values > 10).sum() < 140
    vectors = np.array([outside.beyond((0.0, 5.0), rng, direction=True) for _ in range(200)])
    lengths = np.hypot(*vectors.T) / 5
    assert lengths.min() >= BEYOND[0]
    assert lengths.max() <= BEYOND[1]
    assert abs(vectors.mean(axis=0)).max() < 3  # in all directions


@pytest.mark.slow
def test_imperfections_and_dose_are_beyond_what_is_drawn_in_training(samples):
    experiment, directory, entries = samples
    planned = []
    for plan in plan_outside(entries, experiment, 1):
        if not plan.material and not plan.orientation:
            planned.append(plan)
    assert len(planned) == 3
    ranges = [plan.experiment.training.inputs for plan in planned]
    source, scale = (inputs.imperfections.given() for inputs in ranges[:2])
    assert source == {"source_size_angstrom": (BEYOND[0] * SOURCE, BEYOND[1] * SOURCE)}
    assert scale == {"pixel_scale": (BEYOND[0] * SCALE, BEYOND[1] * SCALE)}
    assert ranges[2].dose_electrons_per_pattern == tuple(factor * DOSE[0] for factor in LEAST_DOSE)
    with Dataset(directory) as dataset:
        for plan in planned:
            windows = list(outside_windows(dataset, [plan]))
            assert [window.entry for window in windows] == list(plan.entries)
            assert {window.patterns.shape for window in windows} == {(1, *WINDOW, 6, 8)}
    few = windows[0]
    entry = planned[2].entries[0]
    electrons = noise.draw_electrons(
        ranges[2].dose_electrons_per_pattern, entry.seed, known_windows.EPOCH
    )
    assert electrons < DOSE[0]
    assert few.facts["electrons_per_pattern"] == electrons
    drawn = imperfections.draw(ranges[0].imperfections, entry.seed, known_windows.EPOCH)
    assert drawn.source_size_angstrom > SOURCE


@pytest.mark.slow
def test_orientations_of_the_detector_are_all_but_the_right_one(samples):
    experiment, directory, entries = samples
    planned = []
    for plan in plan_outside(entries, experiment, 1):
        if plan.orientation:
            planned.append(plan)
    assert [plan.orientation for plan in planned] == [1, 2, 3]  # 6×8 pixels cannot be transposed
    many = []
    for plan in plan_outside(entries * 50, experiment, 1):
        if plan.orientation:
            many.append(plan)
    assert [len(plan.entries) for plan in many] == [outside.ORIENTED // 2] * 2 + [outside.ORIENTED]
    with Dataset(directory) as dataset:
        for plan in planned:
            drawn = []
            for w in known_windows.known_windows(dataset, plan.entries, experiment):
                if w.is_last:
                    drawn.append(w)
            windows = list(outside_windows(dataset, [plan]))
            for window, right in zip(windows, drawn, strict=True):
                y, x = (slice(None, None, -1 if plan.orientation & bit else 1) for bit in (1, 2))
                np.testing.assert_array_equal(window.patterns, right.patterns[..., y, x])
                np.testing.assert_array_equal(window.density, right.density)
    square = experiment.model_copy(
        update={"detector": experiment.detector.model_copy(update={"shape": (8, 8)})}
    )
    assert [plan.orientation for plan in outside._misoriented(entries * 50, square)] == [
        1,
        2,
        3,
        4,
        5,
        6,
        7,
    ]


@pytest.mark.slow
def test_a_sample_with_its_own_values_is_that_of_the_dataset(samples):
    experiment, directory, entries = samples
    (planned,) = (plan for plan in plan_outside(entries, experiment, 1) if plan.material)
    specimen = []
    for entry in entries:
        if entry.specimen == planned.entries[0].specimen:
            specimen.append(entry)
    same = outside.OutsideSamples(specimen, experiment, planned.material)
    with Dataset(directory) as dataset, closing(outside_windows(dataset, [same])) as windows:
        again = {}
        for window in windows:
            if window.facts["window"] == "as simulated":
                again[window.entry.id] = window
        stored = {}
        for window in known_windows.known_windows(dataset, specimen, experiment):
            if window.facts["window"] == "as simulated":
                stored[window.entry.id] = window
        assert again.keys() == stored.keys()
        for name, window in stored.items():
            np.testing.assert_allclose(
                again[name].patterns, window.patterns, atol=2e-3 * window.patterns.max()
            )
        beyond = next(iter(outside_windows(dataset, [planned])))
    original = stored[beyond.entry.id.rpartition("-")[0]].patterns
    assert abs(beyond.patterns - original).max() > 0.1 * original.max()


@pytest.mark.slow
def test_crystals_that_are_not_at_hand_are_bad_input_with_a_remedy(samples):
    experiment, _, entries = samples
    gone = experiment.materials.model_copy(update={"builtin": ("No-1-cP1",)})
    with pytest.raises(InputError, match="without --outside no crystals are needed"):
        plan_outside(entries, experiment.model_copy(update={"materials": gone}), 1)


@pytest.mark.slow
def test_calibration_learns_from_them_and_measures_on_other_crystals(samples, run, tmp_path):
    shutil.copytree(run, tmp_path / "other")
    progress = []
    with_outside = calibrate(
        run, 2, 1, lambda *counts: progress.append(counts), outside=2
    ).calibration
    without = calibrate(tmp_path / "other", 2, 1).calibration
    assert [done for done, _ in progress] == list(range(1, progress[0][1] + 1))
    measured = with_outside.pop("outside")
    experiment, directory, _ = samples
    with Dataset(directory) as dataset:
        present = manifest.present(directory, dataset.ids)
    tested = []
    for entry in present:
        if entry.split == "test":
            tested.append(entry)
    planned = plan_outside(tested, experiment, 1)
    windows = sum(len(plan.entries) * (2 if plan.material else 1) for plan in planned)
    assert (measured["windows_inside"], measured["windows_outside"]) == (2 * len(tested), windows)
    assert 0 <= measured["auroc"] <= 1
    assert 0 <= measured["auroc_alike"] <= 1
    assert "outside" not in without
    assert with_outside["uncertainty_factor"] == without["uncertainty_factor"]
    learnt, plain = (familiarity.read_familiarity(folder) for folder in (run, tmp_path / "other"))
    assert learnt.whitening.shape == plain.whitening.shape
    assert not np.array_equal(learnt.whitening, plain.whitening)
    assert json.loads((run / "calibration.json").read_text())["outside"] == measured


@pytest.mark.slow
def test_calibration_on_another_dataset_uses_its_crystals(samples, run, tmp_path):
    _, directory, _ = samples
    shutil.copytree(run, tmp_path / "moved")
    expected = calibrate(run, 2, 1, outside=2).calibration
    moved = tmp_path / "moved/config.yaml"
    moved.write_text(moved.read_text().replace(str(directory), str(tmp_path / "nothing")))
    calibration = calibrate(tmp_path / "moved", 2, 1, outside=2, data=directory).calibration
    assert calibration.pop("data") == directory.name
    assert calibration == expected

    narrow = yaml.safe_load((directory / "config.yaml").read_text())
    narrow["microscope"]["semiangle_mrad"] = 12.0
    (tmp_path / "narrow").mkdir()
    (tmp_path / "narrow/config.yaml").write_text(yaml.safe_dump(narrow))
    with pytest.raises(
        InputError, match=r"narrow has another semiangle_mrad than moved: give a dataset"
    ):
        calibrate(tmp_path / "moved", 2, 1, data=tmp_path / "narrow")


@pytest.mark.slow
def test_held_out_samples_may_be_those_of_a_dataset_without_a_training_split(
    samples, run, tmp_path
):
    experiment, directory, _ = samples
    shutil.copytree(directory, tmp_path / "held-out")
    without = tuple(entry for entry in manifest.read(directory) if entry.split != "train")
    config = experiment.model_copy(update={"split": Split(train=0, dev=0.5, test=0.5)})
    text = manifest.text_of(config, manifest.read_header(directory)["config_hash"], without, ())
    (tmp_path / "held-out/manifest.jsonl").write_text(text)
    expected = calibrate(run, 2, 1).calibration
    calibration = calibrate(run, 2, 1, data=tmp_path / "held-out").calibration
    assert calibration.pop("data") == "held-out"
    assert calibration == expected
