"""`namsa-train calibrate RUN_DIR`: measures once how far a trained network can be trusted, and
stores it.

transfer.json       Conversion from density to potential, fitted to the training samples
                    (`namsa.inverse.mott_bethe`).
calibration.json    Factor from predicted to actual error and its coverage
                    (`train.tasks.density.trust.uncertainty`); fraction of the beam that the
                    training patterns hold.
familiarity.npz     The features of windows of the training data, by which the out-of-distribution
                    score is measured (`train.tasks.density.trust.familiarity`).
evaluation.json     Gets "consistency_r" and "consistency_empty_r" of held-out samples
                    (`namsa.inverse.consistency`), which the report shows.
"""

from argparse import Namespace
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Array
from namsa.base.digested_json import with_digest
from namsa.base.errors import InputError
from namsa.base.folders import open_folder
from namsa.base.identity import compare
from namsa.base.pixels import scan_positions
from namsa.base.provenance_values import Provenance, value
from namsa.base.text import without_folders
from namsa.config.simulation import SimulationConfig
from namsa.dataset import manifest
from namsa.dataset.entry import Entry
from namsa.dataset.sample_setup import with_varied_values
from namsa.dataset.shards import Dataset
from namsa.inverse import mott_bethe
from namsa.inverse.consistency import Consistency, check, scan_simulation

from ....apply.digests import renew_digests
from ....apply.identity import calibration_identity
from ....apply.known_windows import KnownWindow, known_windows
from ....apply.models import CALIBRATION, Model, load_model
from ....input.windows import middle
from ....optimization import checkpoint
from ....reports.calibration_results import UncertaintyCalibration, read_calibration
from ....reports.results import write_json
from ...card import OnSample
from ...reporting import write_report
from ..results import read_evaluation
from . import familiarity
from .calibration_samples import (
    CalibrationDataset,
    CalibrationDatasets,
    CalibrationSamples,
    choose_samples,
    open_datasets,
)
from .familiarity import Familiarity, PatternStatistics
from .outside import outside_windows
from .predictions import (
    TrainedEnsemble,
    describe_windows,
    mean_density,
    predicted,
    trained_ensemble,
)
from .uncertainty import WindowError, calibrate_uncertainty, told_apart, window_error


class CalibratedRun(NamedTuple):
    """The measurements of a run."""

    calibration: UncertaintyCalibration  # contents of calibration.json
    scores: list[float]  # consistency score R of each simulated sample


class HeldOutWindows(NamedTuple):
    """Predictions of held-out windows, with their errors."""

    dev: list[WindowError]
    test: list[WindowError]
    densities: dict[str, Array]  # of samples as they are stored, by id, e/Å²


class PredictedWindows(NamedTuple):
    """All windows of a calibration: features of windows, `(k,)` each, and held-out predictions."""

    training: list[Array]
    held_out: HeldOutWindows
    outside: list[Array]  # under conditions that were not learnt
    outside_test: list[Array]  # the same of test specimens


class Measurements(NamedTuple):
    """The contents of the files that a calibration writes."""

    calibration: UncertaintyCalibration
    familiarity: Familiarity
    conversion: mott_bethe.DensityToPotential
    scores: dict[str, Consistency]  # of held-out samples, by id


def calibrate(
    run_dir: Path,  # the run, with its dataset at hand
    # Predictions with dropout per symmetry; see `train.tasks.density.scan.ensemble.choose_views`.
    passes: int | None = None,
    # Number of held-out samples that get a consistency score, which takes a simulation each. `None`
    # takes all.
    simulated: int | None = None,
    # Called with the number of samples that are done and their total. Held-out samples count twice:
    # once predicted, once with a consistency score.
    on_sample: OnSample = lambda done, total: None,
    # Number of training specimens that are simulated under conditions that were not learnt, to
    # learn what lies outside, and a third as many test specimens, to measure how well that is told
    # apart. 0 uses no windows outside, nor those that need no simulation.
    outside: int = 0,
    # Dataset whose splits are used; `None` takes the run's. Of one without a training split the
    # held-out samples are used, and the training samples are those of the run's dataset.
    data: Path | None = None,
) -> CalibratedRun:
    """Measures the uncertainty and the consistency of a run and writes the files of this module.

    Each window is predicted once: what is predicted of a held-out sample as it is stored serves
    uncertainty and consistency alike. The files are written at the end, so that an interrupted
    calibration leaves those before.

    Raises:
        InputError: If the run has no checkpoint, the dataset has no dev sample or other conditions
            than the network, or the network gives only one prediction and no error of it.
    """
    model = load_model(run_dir)
    ensemble = trained_ensemble(model, passes, with_maps=True)
    if ensemble.views.members < 2 and not model.predicts_its_error:
        raise InputError(
            f"{run_dir}: its network has one answer alone, without symmetry and without dropout"
        )
    with ExitStack() as stack:
        datasets = open_datasets(model, data, stack)
        samples = choose_samples(model, datasets, simulated, outside)
        measured = _measure(model, ensemble, datasets, samples, _counted(on_sample, samples.total))
        ids = datasets.held_out.dataset.ids
        made_of = _identity(model, ids, passes, simulated, outside)
    calibration = measured.calibration
    calibration["made_of"] = made_of
    if data is not None:
        calibration["data"] = without_folders(data)
    calibration["step"] = int(checkpoint.read_header(model.weights)["step"])
    _write(run_dir, measured)
    scores = [consistency.score for consistency in measured.scores.values()]
    return CalibratedRun(calibration, scores)


def _counted(on_sample: OnSample, total: int) -> Callable[[], None]:
    """Returns what calls `on_sample` with the number of its own calls and the total."""
    numbers = count(1)
    return lambda: on_sample(next(numbers), total)


def _measure(
    model: Model,
    ensemble: TrainedEnsemble,
    datasets: CalibrationDatasets,
    samples: CalibrationSamples,
    on_sample: Callable[[], None],
) -> Measurements:
    """Predicts and scores the samples. `made_of`, `data` and `step` are still to be added."""
    windows = _predict_windows(model, ensemble, datasets, samples, on_sample)
    learnt, calibration = calibrate_windows(windows, ensemble)
    training_dataset = datasets.training.dataset
    calibration["transmitted_fraction"] = _transmitted_fraction(training_dataset, samples.training)
    conversion = mott_bethe.fit(training_dataset.read(entry.id) for entry in samples.training)
    scores = {}
    for entry in samples.scored:
        density = windows.held_out.densities.get(entry.id)
        scores[entry.id] = score_sample(datasets.held_out, entry, density, ensemble, conversion)
        on_sample()
    return Measurements(calibration, learnt, conversion, scores)


def _predict_windows(
    model: Model,
    ensemble: TrainedEnsemble,
    datasets: CalibrationDatasets,
    samples: CalibrationSamples,
    on_sample: Callable[[], None],
) -> PredictedWindows:
    """Predicts each window of a calibration once."""
    statistics = PatternStatistics.of(model.conditions.scan_shape, model.conditions)

    def features(windows: Iterable[KnownWindow]) -> list[Array]:
        return describe_windows(ensemble, windows, statistics, on_sample)

    training = datasets.training
    held_out = datasets.held_out
    return PredictedWindows(
        training=features(known_windows(training.dataset, samples.training, training.experiment)),
        held_out=predict_held_out(ensemble, held_out, samples, statistics, on_sample),
        outside=features(outside_windows(training.dataset, samples.outside)),
        outside_test=features(outside_windows(held_out.dataset, samples.outside_test)),
    )


def _write(run_dir: Path, measured: Measurements) -> None:
    """Writes the files of this module into the folder of a run, all or none."""
    with open_folder(run_dir, key_file=CALIBRATION) as new:
        familiarity.write_familiarity(new / familiarity.FILE, measured.familiarity)
        write_json(new / CALIBRATION, with_digest(measured.calibration))
        mott_bethe.write(measured.conversion, new / "transfer.json")
        _add_scores(run_dir / "evaluation.json", measured.scores, new)
        renew_digests(run_dir, new)


def predict_held_out(
    ensemble: TrainedEnsemble,
    source: CalibrationDataset,
    samples: CalibrationSamples,
    statistics: PatternStatistics,
    on_sample: Callable[[], None],
) -> HeldOutWindows:
    """Predicts the windows of held-out samples, and compares them with their densities."""
    dev: list[WindowError] = []
    test: list[WindowError] = []
    densities: dict[str, Array] = {}
    windows = known_windows(source.dataset, [*samples.dev, *samples.test], source.experiment)
    for window, prediction in predicted(ensemble, windows):
        errors = test if window.entry.split == "test" else dev
        errors.append(window_error(window, prediction, statistics))
        # the first window of a sample is the one that is stored
        densities.setdefault(window.entry.id, mean_density(prediction))
        if window.is_last:
            on_sample()
    return HeldOutWindows(dev, test, densities)


def calibrate_windows(
    windows: PredictedWindows, ensemble: TrainedEnsemble
) -> tuple[Familiarity, UncertaintyCalibration]:
    """Returns what the network has learnt, and the contents of `calibration.json` that follow from
    its windows.
    """
    training = np.stack(windows.training)
    held_out = windows.held_out
    dev = np.stack([window.features for window in held_out.dev])
    outside = np.stack(windows.outside) if windows.outside else None
    learnt = Familiarity.fit(training, dev, outside)
    calibration = calibrate_uncertainty(
        held_out.dev, held_out.test, learnt, ensemble.method, ensemble.views.members
    )
    if windows.outside_test:
        alike = Familiarity.fit(training, dev, None)
        test = [window.features for window in held_out.test]
        calibration["outside"] = told_apart(learnt, alike, test, windows.outside_test)
    return learnt, calibration


def _transmitted_fraction(dataset: Dataset, entries: Sequence[Entry]) -> float:
    """Returns the mean fraction of the beam that the patterns of samples hold."""
    fractions = []
    for entry in entries:
        fractions.append(dataset.read(entry.id).patterns().sum(axis=(1, 2)).mean())
    return float(np.mean(fractions))


def ensure_calibrated(run_dir: Path, simulated: int, outside: int, on_sample: OnSample) -> None:
    """Calibrates a run as `calibrate` does, unless it has that calibration."""
    if not is_calibrated(run_dir, None, simulated, outside):
        calibrate(run_dir, None, simulated, on_sample, outside)


def is_calibrated(run_dir: Path, passes: int | None, simulated: int | None, outside: int) -> bool:
    """Returns whether a run has the calibration that `calibrate` would measure with its dataset.

    Where the dataset is gone, all but the samples are compared.
    """
    path = run_dir / CALIBRATION
    if not path.is_file():
        return False
    stored = read_calibration(path).get("made_of")
    if stored is None:  # of an earlier version, which cannot be compared
        return False
    model = load_model(run_dir)
    directory = model.experiment.data.directory
    if not (directory / manifest.FILE_NAME).is_file():
        identity = _identity(model, (), passes, simulated, outside)
        identity["samples"] = stored.get("samples")
        return not compare(stored, identity)
    with Dataset(directory) as dataset:
        return not compare(stored, _identity(model, dataset.ids, passes, simulated, outside))


def _identity(
    model: Model, ids: Collection[str], passes: int | None, simulated: int | None, outside: int
) -> dict[str, object]:
    """Returns what a calibration follows from."""
    return calibration_identity(model, ids, passes=passes, simulated=simulated, outside=outside)


def calibrate_run(run_dir: Path, options: Namespace, on_sample: OnSample) -> Callable[[], str]:
    """Measures a run for `namsa-train calibrate`. Returns what writes its report and says the
    result.
    """
    calibration, scores = calibrate(
        run_dir,
        passes=options.passes,
        simulated=options.simulated,
        on_sample=on_sample,
        outside=options.outside,
        data=options.data,
    )
    tested = calibration.get("test", calibration)
    median = sorted(scores)[len(scores) // 2]
    return lambda: (
        f"uncertainty: {calibration['scale']:.3g} times the spread of {calibration['method']}; "
        f"within it lie {calibration['coverage_68']:.1%} of the dev pixels and "
        f"{tested['coverage_68']:.1%} of the test ones\n"
        f"consistency: median R {median:.3f} of {len(scores)} samples\n"
        f"{write_report(run_dir)}"
    )


def score_sample(
    source: CalibrationDataset,
    entry: Entry,
    density: Array | None,  # the prediction, e/Å²; `None` predicts it
    ensemble: TrainedEnsemble,  # the predictions
    conversion: mott_bethe.DensityToPotential,
) -> Consistency:
    """Scores the density of a sample's middle window in the sample's own cell; see
    `namsa.inverse.consistency`.
    """
    input_shape, _ = source.experiment.window_shapes()
    scan_shape = input_shape[:2]
    record = middle(source.dataset.read(entry.id), scan_shape)
    patterns = record.patterns()
    if density is None:
        window = patterns.reshape(1, *input_shape)
        density = mean_density(next(ensemble.predict(window).of_each()))
    config = _of_window(with_varied_values(source.experiment, entry), density, record.provenance)
    simulation = scan_simulation(
        config,
        value(record.provenance, "thickness_angstrom"),
        density.shape,
        scan_positions(record.provenance),
        tuple(value(record.provenance, "extent_angstrom")),
    )
    return check(density, patterns, simulation, conversion)


def _of_window(
    config: SimulationConfig, density: Array, provenance: Provenance
) -> SimulationConfig:
    """Returns `config` with the scan of the window that a density is of."""
    if config.target.at != "scan" or density.shape == config.scan.shape:
        return config
    step_angstrom = tuple(value(provenance, "density_sampling_angstrom"))
    window = {"shape": density.shape, "step_angstrom": step_angstrom}
    return config.model_copy(update={"scan": config.scan.model_copy(update=window)})


def _add_scores(path: Path, scores: dict[str, Consistency], folder: Path) -> None:
    """Writes an evaluation.json, if there is one, with the scores of samples, by id, into another
    folder.
    """
    if not path.is_file():
        return
    evaluation = read_evaluation(path)
    for row in evaluation["samples"]:
        consistency = scores.get(row["id"])
        if consistency is not None:
            row["consistency_r"] = consistency.score
            row["consistency_empty_r"] = consistency.empty
    write_json(folder / path.name, evaluation)
