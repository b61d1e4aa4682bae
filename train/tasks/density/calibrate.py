"""`python -m train calibrate RUN_DIR`: measures once how far a trained network can be trusted, and stores it.

transfer.json       Conversion from density to potential, fitted to the training samples (`namsa.inverse.mott_bethe`).
calibration.json    Factor from predicted to actual error and its coverage (`train.apply.uncertainty`);
                    fraction of the beam that the training patterns hold.
familiarity.npz     What windows of the training data look like (`train.apply.familiarity`).
evaluation.json     Gets "consistency_r" and "consistency_empty_r" of held-out samples (`namsa.inverse.consistency`),
                    which the report shows.
"""

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from namsa.arrays import Array
from namsa.config.loading import validate
from namsa.config.simulation import load_config
from namsa.dataset import manifest
from namsa.dataset.entries import spread_over_thicknesses
from namsa.dataset.entry import Entry
from namsa.dataset.sample_setup import with_varied_values
from namsa.dataset.shards import Dataset
from namsa.errors import InputError
from namsa.files import open_folder
from namsa.inverse import mott_bethe
from namsa.inverse.consistency import Consistency, check, scan_simulation
from namsa.pixels import scan_positions
from namsa.provenance_values import value

from ...apply import familiarity
from ...apply.card import OnSample
from ...apply.ensemble import Predict, Prediction, Views, choose_views, ensemble_predictor
from ...apply.familiarity import Familiarity, PatternStatistics, window_features
from ...apply.known_windows import KnownWindow, known_windows
from ...apply.models import CALIBRATION, Model, load_model
from ...apply.outside import outside_windows, plan_outside
from ...apply.uncertainty import WindowError, calibrate_uncertainty, told_apart, window_error
from ...apply.weights import load_network
from ...experiment.conditions import conditions
from ...experiment.experiment import Experiment
from ...input.selection import limit
from ...input.windows import middle
from ...optimization import checkpoint
from ...reports.calibration_results import Calibration
from ...reports.results import write_json
from ..reporting import write_report
from .results import read_evaluation

# A sample is read, and two windows of it are predicted in eight views: thousands would take many minutes.
TRAINING_SAMPLES = 1000
HELD_OUT_SAMPLES = 400  # of dev, and of test
WINDOWS = 8  # that are predicted together, which takes less time than one by one


class CalibratedRun(NamedTuple):
    """What was measured about a run."""

    calibration: Calibration  # contents of calibration.json
    scores: list[float]  # consistency score R of each simulated sample


class TrainedEnsemble(NamedTuple):
    """The predictions of a network for windows as it was trained with."""

    predict: Predict  # predicts densities from windows
    views: Views  # the views of a window
    predicts_its_error: bool  # whether predictions have variances of their own

    @property
    def method(self) -> str:
        """How the predictions are made, in words."""
        passes = f", {self.views.passes} passes with dropout each" if self.views.passes else ""
        predicted = " with predicted errors" if self.predicts_its_error else ""
        return f"{len(self.views.symmetries)} symmetries{passes}{predicted}"


def calibrate(
    run_dir: Path,  # the run, with its dataset at hand
    passes: int | None = None,  # predictions with dropout per symmetry; see `train.apply.ensemble.choose_views`
    # Number of held-out samples that get a consistency score, which takes a simulation each. `None` takes all.
    simulated: int | None = None,
    # Called with the number of samples that are done and their total. Held-out samples count twice: once predicted,
    # once with a consistency score.
    on_sample: OnSample = lambda done, total: None,
    # Number of training specimens that are simulated under conditions that were not learnt, to learn what lies outside,
    # and a third as many test specimens, to measure how well that is told apart. 0 uses no windows outside, nor those
    # that need no simulation.
    outside: int = 0,
    data: Path | None = None,  # dataset whose splits are used; `None` takes the run's
) -> CalibratedRun:
    """Measures the uncertainty and the consistency of a run and writes the files of this module.

    Each window is predicted once: what is predicted of a held-out sample as it is stored serves uncertainty and
    consistency alike. The files are written at the end, so that an interrupted calibration leaves those before.

    Raises:
        InputError: If the run has no checkpoint, the dataset has no dev sample or other conditions than the network,
            or the network gives only one prediction and no error of it.
    """
    model = load_model(run_dir)
    ensemble = trained_ensemble(model, passes, with_maps=True)
    if ensemble.views.members < 2 and not model.predicts_its_error:
        raise InputError(f"{run_dir}: its network has one answer alone, without symmetry and without dropout")
    experiment = model.experiment if data is None else on_dataset(model, data)
    directory = experiment.data.directory
    with Dataset(directory) as dataset:
        present = manifest.present(directory, dataset.ids)
        splits = {split: [e for e in present if e.split == split] for split in ("train", "dev", "test")}
        if not splits["dev"]:
            raise InputError(f"{directory} has no sample of the dev split to calibrate with")
        trained_on = limit(splits["train"] or splits["dev"], TRAINING_SAMPLES)
        dev_entries, test_entries = (limit(splits[split], HELD_OUT_SAMPLES) for split in ("dev", "test"))
        held_out = splits["dev"] + splits["test"]
        scored = held_out if simulated is None else spread_over_thicknesses(held_out, simulated)
        to_learn = plan_outside(trained_on, experiment, outside)
        to_test = plan_outside(test_entries, experiment, -(-outside // 3))
        planned = sum(len(each.entries) for each in (*to_learn, *to_test))
        total, counted = planned + sum(map(len, (trained_on, dev_entries, test_entries, scored))), count(1)
        statistics = PatternStatistics.of(model.conditions.scan_shape, model.conditions)

        def done() -> None:
            on_sample(next(counted), total)

        features = describe_windows(ensemble, known_windows(dataset, trained_on, experiment), statistics, done)
        rows: dict[str, list[WindowError]] = {"dev": [], "test": []}
        densities: dict[str, Array] = {}  # of held-out samples as they are stored, by id
        for window, prediction in predicted(ensemble, known_windows(dataset, dev_entries + test_entries, experiment)):
            rows[window.entry.split].append(window_error(window, prediction, statistics))
            densities.setdefault(window.entry.id, mean_density(prediction))  # the first is the one that is stored
            if window.is_last:
                done()

        of_outside, of_tested = (
            describe_windows(ensemble, outside_windows(dataset, plan), statistics, done) for plan in (to_learn, to_test)
        )
        dev, test = rows["dev"], rows["test"]
        learnt, alike = (
            Familiarity.fit(np.stack(features), np.stack([row.features for row in dev]), beyond)
            for beyond in (np.stack(of_outside) if of_outside else None, None)
        )
        calibration = calibrate_uncertainty(dev, test, learnt, ensemble.method, ensemble.views.members)
        if of_tested:
            calibration["outside"] = told_apart(learnt, alike, [row.features for row in test], of_tested)
        if data is not None:
            calibration["data"] = str(data)
        calibration["transmitted_fraction"] = float(
            np.mean([dataset.read(e.id).patterns().sum(axis=(1, 2)).mean() for e in trained_on])
        )
        conversion = mott_bethe.fit(dataset.read(entry.id) for entry in trained_on)

        scores = {}
        for entry in scored:
            scores[entry.id] = score_sample(dataset, entry, densities.get(entry.id), ensemble, experiment, conversion)
            done()
    calibration["step"] = int(checkpoint.read_header(model.weights)["step"])
    with open_folder(run_dir) as new:
        familiarity.write_familiarity(new / familiarity.FILE, learnt)
        write_json(new / CALIBRATION, calibration)
        mott_bethe.write(conversion, new / "transfer.json")
        _add_scores(run_dir / "evaluation.json", scores, new)
    return CalibratedRun(calibration, [consistency.score for consistency in scores.values()])


def calibrate_run(run_dir: Path, options: Namespace, on_sample: OnSample) -> Callable[[], str]:
    """Measures a run for `python -m train calibrate`. Returns what writes its report and says the result."""
    passes, simulated, outside, data = options.passes, options.simulated, options.outside, options.data
    calibration, scores = calibrate(run_dir, passes, simulated, on_sample, outside, data)
    tested = calibration.get("test", calibration)
    return lambda: (
        f"uncertainty: {calibration['scale']:.3g} times the spread of {calibration['method']}; within it lie "
        f"{calibration['coverage_68']:.1%} of the dev pixels and {tested['coverage_68']:.1%} of the "
        f"test ones\nconsistency: median R {sorted(scores)[len(scores) // 2]:.3f} of {len(scores)} samples\n"
        f"{write_report(run_dir)}"
    )


def on_dataset(model: Model, directory: Path) -> Experiment:
    """Returns an experiment with another dataset's samples, and its ranges. Raises InputError if conditions differ."""
    path, own = directory / "config.yaml", model.experiment
    samples = load_config(path).model_copy(update={"variation": own.variation})
    found = conditions(samples, own.window_shapes()[0][:2])
    if differ := [name for name, value in vars(found).items() if value != getattr(model.conditions, name)]:
        raise InputError(
            f"{directory} has another {' and '.join(differ)} than {model.name}: give a dataset of the network's "
            "microscope, scan and detector"
        )
    tree = own.model_dump(mode="json") | samples.model_dump(mode="json")
    tree["data"]["directory"] = str(directory)
    return validate(Experiment, tree, str(path))


def trained_ensemble(model: Model, passes: int | None = None, with_maps: bool = False) -> TrainedEnsemble:
    """Loads a network for windows as it was trained with, in the views that `reconstruct` uses."""
    views = choose_views(model, model.conditions.scan_shape, model.conditions.scan_step_angstrom, passes)
    *_, height, width = model.network.input_shape
    predict = ensemble_predictor(load_network(model, (height, width)), model, views, with_maps)
    return TrainedEnsemble(predict, views, model.predicts_its_error)


def predicted(ensemble: TrainedEnsemble, windows: Iterable[KnownWindow]) -> Iterator[tuple[KnownWindow, Prediction]]:
    """Yields windows and what is predicted of each, as `Prediction.of_each` gives it."""
    remaining = iter(windows)
    while group := list(islice(remaining, WINDOWS)):
        predictions = ensemble.predict(np.concatenate([window.patterns for window in group]))
        yield from zip(group, predictions.of_each(), strict=True)


def describe_windows(
    ensemble: TrainedEnsemble,  # the predictions, with maps
    windows: Iterable[KnownWindow],
    statistics: PatternStatistics,  # of the windows' shape
    on_sample: Callable[[], None],  # called after the last window of each sample
) -> list[Array]:
    """Returns the features of each window, `(k,)`, by which familiarity is measured."""
    features: list[Array] = []
    for window, prediction in predicted(ensemble, windows):
        features.extend(window_features(statistics, window.patterns, prediction.maps))
        if window.is_last:
            on_sample()
    return features


def mean_density(prediction: Prediction) -> Array:
    """Returns the density of a window in the mean over its views, `(h, w)`, e/Å²."""
    density: Array = prediction.density.mean(axis=0)
    return density


def score_sample(
    dataset: Dataset,
    entry: Entry,
    density: Array | None,  # the prediction, e/Å²; `None` predicts it
    ensemble: TrainedEnsemble,  # the predictions
    experiment: Experiment,  # the configuration of the dataset
    conversion: mott_bethe.DensityToPotential,
) -> Consistency:
    """Scores the density of a sample's middle window in the sample's own cell; see `namsa.inverse.consistency`."""
    (*scan, dy, dx), _ = experiment.window_shapes()
    record = middle(dataset.read(entry.id), (scan[0], scan[1]))
    if density is None:
        density = mean_density(next(ensemble.predict(record.patterns().reshape(1, *scan, dy, dx)).of_each()))
    provenance, config = record.provenance, with_varied_values(experiment, entry)
    if config.target.at == "scan" and density.shape != config.scan.shape:  # a window of the scan
        window = {"shape": density.shape, "step_angstrom": tuple(value(provenance, "density_sampling_angstrom"))}
        config = config.model_copy(update={"scan": config.scan.model_copy(update=window)})
    simulation = scan_simulation(
        config,
        value(provenance, "thickness_angstrom"),
        density.shape,
        scan_positions(provenance),
        tuple(value(provenance, "extent_angstrom")),
    )
    return check(density, record.patterns(), simulation, conversion)


def _add_scores(path: Path, scores: dict[str, Consistency], folder: Path) -> None:
    """Writes an evaluation.json, if there is one, with the scores of samples, by id, into another folder."""
    if not path.is_file():
        return
    evaluation = read_evaluation(path)
    for row in evaluation["samples"]:
        if score := scores.get(row["id"]):
            row["consistency_r"], row["consistency_empty_r"] = score.score, score.empty
    write_json(folder / path.name, evaluation)
