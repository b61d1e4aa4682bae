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
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from namsa.base.arrays import Array
from namsa.base.digested_json import with_digest
from namsa.base.errors import InputError
from namsa.base.folders import open_folder
from namsa.base.identity import compare
from namsa.base.pixels import scan_positions
from namsa.base.provenance_values import value
from namsa.base.text import without_folders
from namsa.config.loading import validate
from namsa.config.simulation import load_config
from namsa.dataset import manifest
from namsa.dataset.entries import spread_over_thicknesses
from namsa.dataset.entry import Entry
from namsa.dataset.sample_setup import with_varied_values
from namsa.dataset.shards import Dataset
from namsa.inverse import mott_bethe
from namsa.inverse.consistency import Consistency, check, scan_simulation

from ....apply.digests import renew_digests
from ....apply.identity import calibration_identity
from ....apply.known_windows import known_windows
from ....apply.learnt import unseen_held_out
from ....apply.models import CALIBRATION, Model, load_model
from ....experiment.conditions import conditions
from ....experiment.experiment import Experiment
from ....input.selection import limit
from ....input.windows import middle
from ....optimization import checkpoint
from ....reports.calibration_results import UncertaintyCalibration, read_calibration
from ....reports.results import write_json
from ...card import OnSample
from ...reporting import write_report
from ..results import read_evaluation
from . import familiarity
from .familiarity import Familiarity, PatternStatistics
from .outside import OutsideSamples, outside_windows, plan_outside
from .predictions import (
    TrainedEnsemble,
    describe_windows,
    mean_density,
    predicted,
    trained_ensemble,
)
from .uncertainty import WindowError, calibrate_uncertainty, told_apart, window_error

# A sample is read, and two windows of it are predicted in eight views: thousands would take many
# minutes.
TRAINING_SAMPLES = 1000
HELD_OUT_SAMPLES = 400  # of dev, and of test


class CalibratedRun(NamedTuple):
    """The measurements of a run."""

    calibration: UncertaintyCalibration  # contents of calibration.json
    scores: list[float]  # consistency score R of each simulated sample


class SampleSource(NamedTuple):
    """A dataset of which samples are taken."""

    dataset: Dataset
    experiment: Experiment  # with the dataset's samples
    entries: Sequence[Entry]  # of the samples that are there

    def split(self, name: str) -> list[Entry]:
        """Returns the samples of a split."""
        return [entry for entry in self.entries if entry.split == name]


class CalibrationSamples(NamedTuple):
    """The samples that a calibration is measured on."""

    training: Sequence[Entry]  # those that were trained on
    dev: Sequence[Entry]  # those of the dev split whose windows are predicted
    test: Sequence[Entry]  # the same of the test split
    scored: Sequence[Entry]  # held-out samples that get a consistency score
    # Windows under conditions that were not learnt: to learn what lies outside, and to measure how
    # well that is told apart.
    outside: Sequence[OutsideSamples]
    outside_test: Sequence[OutsideSamples]

    @property
    def total(self) -> int:
        """Number of samples, of which held-out ones count twice."""
        samples = (self.training, self.dev, self.test, self.scored)
        plans = (*self.outside, *self.outside_test)
        return sum(map(len, samples)) + sum(len(plan.entries) for plan in plans)


class HeldOutWindows(NamedTuple):
    """Predictions of held-out windows, with their errors."""

    dev: list[WindowError]
    test: list[WindowError]
    densities: dict[str, Array]  # of samples as they are stored, by id, e/Å²


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
    experiment = model.experiment if data is None else on_dataset(model, data)
    statistics = PatternStatistics.of(model.conditions.scan_shape, model.conditions)
    with ExitStack() as stack:
        held_out_source = _source(experiment, stack)
        trained_source = held_out_source
        if data is not None and not held_out_source.split("train"):
            trained_source = _source(model.experiment, stack)
        dataset = held_out_source.dataset
        samples = choose_samples(model, trained_source, held_out_source, simulated, outside)
        counted = count(1)

        def done() -> None:
            on_sample(next(counted), samples.total)

        training_windows = known_windows(
            trained_source.dataset, samples.training, trained_source.experiment
        )
        features = describe_windows(ensemble, training_windows, statistics, done)
        held_out = predict_held_out(ensemble, dataset, samples, experiment, statistics, done)
        beyond = describe_windows(
            ensemble, outside_windows(trained_source.dataset, samples.outside), statistics, done
        )
        beyond_test = describe_windows(
            ensemble, outside_windows(dataset, samples.outside_test), statistics, done
        )
        learnt, calibration = calibrate_windows(features, held_out, beyond, beyond_test, ensemble)
        calibration["transmitted_fraction"] = _transmitted_fraction(
            trained_source.dataset, samples.training
        )
        conversion = mott_bethe.fit(
            trained_source.dataset.read(entry.id) for entry in samples.training
        )
        scores = {}
        for entry in samples.scored:
            density = held_out.densities.get(entry.id)
            scores[entry.id] = score_sample(
                dataset, entry, density, ensemble, experiment, conversion
            )
            done()
        calibration["made_of"] = _identity(model, dataset.ids, passes, simulated, outside)
    if data is not None:
        calibration["data"] = without_folders(data)
    calibration["step"] = int(checkpoint.read_header(model.weights)["step"])
    with open_folder(run_dir, key_file=CALIBRATION) as new:
        familiarity.write_familiarity(new / familiarity.FILE, learnt)
        write_json(new / CALIBRATION, with_digest(calibration))
        mott_bethe.write(conversion, new / "transfer.json")
        _add_scores(run_dir / "evaluation.json", scores, new)
        renew_digests(run_dir, new)
    return CalibratedRun(calibration, [consistency.score for consistency in scores.values()])


def _source(experiment: Experiment, stack: ExitStack) -> SampleSource:
    """Opens the dataset of an experiment until the stack is closed."""
    directory = experiment.data.directory
    dataset = stack.enter_context(Dataset(directory))
    return SampleSource(dataset, experiment, manifest.present(directory, dataset.ids))


def choose_samples(
    model: Model,
    trained: SampleSource,  # whose training split is used, if it has one
    held_out: SampleSource,  # whose splits dev and test are used
    simulated: int | None,
    outside: int,
) -> CalibrationSamples:
    """Returns the samples of a calibration; other arguments as of `calibrate`.

    Raises:
        InputError: If there is no sample of the dev split whose material was not learnt.
    """
    dev, test = unseen_held_out(model, held_out.entries, held_out.experiment.data.directory)
    training = limit(trained.split("train") or dev, TRAINING_SAMPLES)
    limited_test = limit(test, HELD_OUT_SAMPLES)
    scored = dev + test
    if simulated is not None:
        scored = spread_over_thicknesses(scored, simulated)
    return CalibrationSamples(
        training,
        limit(dev, HELD_OUT_SAMPLES),
        limited_test,
        scored,
        plan_outside(training, trained.experiment, outside),
        plan_outside(limited_test, held_out.experiment, -(-outside // 3)),
    )


def predict_held_out(
    ensemble: TrainedEnsemble,
    dataset: Dataset,
    samples: CalibrationSamples,
    experiment: Experiment,
    statistics: PatternStatistics,
    on_sample: Callable[[], None],
) -> HeldOutWindows:
    """Predicts the windows of held-out samples, and compares them with their densities."""
    dev: list[WindowError] = []
    test: list[WindowError] = []
    densities: dict[str, Array] = {}
    windows = known_windows(dataset, [*samples.dev, *samples.test], experiment)
    for window, prediction in predicted(ensemble, windows):
        errors = test if window.entry.split == "test" else dev
        errors.append(window_error(window, prediction, statistics))
        # the first window of a sample is the one that is stored
        densities.setdefault(window.entry.id, mean_density(prediction))
        if window.is_last:
            on_sample()
    return HeldOutWindows(dev, test, densities)


def calibrate_windows(
    training: Sequence[Array],
    held_out: HeldOutWindows,
    outside: Sequence[Array],
    outside_test: Sequence[Array],
    ensemble: TrainedEnsemble,
) -> tuple[Familiarity, UncertaintyCalibration]:
    """Returns what the network has learnt, and the contents of `calibration.json` that follow from
    its windows.

    Args:
        training: Features of training windows, `(k,)` each.
        held_out: What was predicted of held-out windows.
        outside: Features of windows under conditions that were not learnt.
        outside_test: The same of test specimens.
        ensemble: The predictions.
    """
    inside = np.stack(training)
    dev = np.stack([window.features for window in held_out.dev])
    learnt = Familiarity.fit(inside, dev, np.stack(outside) if outside else None)
    calibration = calibrate_uncertainty(
        held_out.dev, held_out.test, learnt, ensemble.method, ensemble.views.members
    )
    if outside_test:
        alike = Familiarity.fit(inside, dev, None)
        test = [window.features for window in held_out.test]
        calibration["outside"] = told_apart(learnt, alike, test, outside_test)
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
) -> dict[str, Any]:
    """Returns what a calibration follows from."""
    return calibration_identity(model, ids, passes=passes, simulated=simulated, outside=outside)


def calibrate_run(run_dir: Path, options: Namespace, on_sample: OnSample) -> Callable[[], str]:
    """Measures a run for `namsa-train calibrate`. Returns what writes its report and says the
    result.
    """
    passes = options.passes
    simulated = options.simulated
    outside = options.outside
    data = options.data
    calibration, scores = calibrate(run_dir, passes, simulated, on_sample, outside, data)
    tested = calibration.get("test", calibration)
    return lambda: (
        f"uncertainty: {calibration['scale']:.3g} times the spread of {calibration['method']}; "
        f"within it lie {calibration['coverage_68']:.1%} of the dev pixels and "
        f"{tested['coverage_68']:.1%} of the test ones\nconsistency: median R "
        f"{sorted(scores)[len(scores) // 2]:.3f} of {len(scores)} samples\n"
        f"{write_report(run_dir)}"
    )


def on_dataset(model: Model, directory: Path) -> Experiment:
    """Returns an experiment with another dataset's samples, and its ranges. Raises InputError if
    conditions differ.
    """
    path = directory / "config.yaml"
    experiment = model.experiment
    samples = load_config(path).model_copy(update={"variation": experiment.variation})
    measured = conditions(samples, experiment.window_shapes()[0][:2])
    if differ := [
        name for name, value in vars(measured).items() if value != getattr(model.conditions, name)
    ]:
        raise InputError(
            f"{directory} has another {' and '.join(differ)} than {model.name}: give a dataset of "
            "the network's microscope, scan and detector"
        )
    tree = experiment.model_dump(mode="json") | samples.model_dump(mode="json")
    tree["data"]["directory"] = str(directory)
    return validate(Experiment, tree, str(path))


def score_sample(
    dataset: Dataset,
    entry: Entry,
    density: Array | None,  # the prediction, e/Å²; `None` predicts it
    ensemble: TrainedEnsemble,  # the predictions
    experiment: Experiment,  # the configuration of the dataset
    conversion: mott_bethe.DensityToPotential,
) -> Consistency:
    """Scores the density of a sample's middle window in the sample's own cell; see
    `namsa.inverse.consistency`.
    """
    (*scan, dy, dx), _ = experiment.window_shapes()
    record = middle(dataset.read(entry.id), (scan[0], scan[1]))
    if density is None:
        density = mean_density(
            next(ensemble.predict(record.patterns().reshape(1, *scan, dy, dx)).of_each())
        )
    provenance = record.provenance
    config = with_varied_values(experiment, entry)
    if config.target.at == "scan" and density.shape != config.scan.shape:  # a window of the scan
        window = {
            "shape": density.shape,
            "step_angstrom": tuple(value(provenance, "density_sampling_angstrom")),
        }
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
    """Writes an evaluation.json, if there is one, with the scores of samples, by id, into another
    folder.
    """
    if not path.is_file():
        return
    evaluation = read_evaluation(path)
    for row in evaluation["samples"]:
        if score := scores.get(row["id"]):
            row["consistency_r"], row["consistency_empty_r"] = score.score, score.empty
    write_json(folder / path.name, evaluation)
