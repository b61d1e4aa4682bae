"""The datasets and samples that a calibration is measured on."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from namsa.base.errors import InputError
from namsa.config.loading import validate
from namsa.config.simulation import load_config
from namsa.dataset import manifest
from namsa.dataset.entries import spread_over_thicknesses
from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset

from ....apply.learnt import unseen_held_out
from ....apply.models import Model
from ....experiment.conditions import conditions
from ....experiment.experiment import Experiment
from ....input.selection import limit
from .outside import OutsideSamples, plan_outside

# A sample is read, and two windows of it are predicted in eight views: thousands would take many
# minutes.
TRAINING_SAMPLES = 1000
HELD_OUT_SAMPLES = 400  # of dev, and of test


class CalibrationDataset(NamedTuple):
    """A dataset of which samples are taken."""

    dataset: Dataset
    experiment: Experiment  # with the dataset's samples
    entries: Sequence[Entry]  # of the samples that are there

    def split(self, name: str) -> list[Entry]:
        """Returns the samples of a split."""
        return [entry for entry in self.entries if entry.split == name]


class CalibrationDatasets(NamedTuple):
    """The datasets of a calibration, which are the same where one has all splits."""

    training: CalibrationDataset  # whose training split is used, if it has one
    held_out: CalibrationDataset  # whose splits dev and test are used


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


def open_datasets(model: Model, data: Path | None, stack: ExitStack) -> CalibrationDatasets:
    """Opens the datasets of a calibration until the stack is closed.

    Args:
        model: The network, with the dataset of its run.
        data: The dataset whose splits are used; `None` takes the run's. Where it has no training
            split, that of the run's dataset is used.
        stack: Closes the datasets.

    Raises:
        InputError: If the conditions of `data` are not those of the network.
    """
    if data is None:
        source = open_dataset(model.experiment, stack)
        return CalibrationDatasets(source, source)
    held_out = open_dataset(on_dataset(model, data), stack)
    if held_out.split("train"):
        return CalibrationDatasets(held_out, held_out)
    return CalibrationDatasets(open_dataset(model.experiment, stack), held_out)


def open_dataset(experiment: Experiment, stack: ExitStack) -> CalibrationDataset:
    """Opens the dataset of an experiment until the stack is closed."""
    directory = experiment.data.directory
    dataset = stack.enter_context(Dataset(directory))
    return CalibrationDataset(dataset, experiment, manifest.present(directory, dataset.ids))


def on_dataset(model: Model, directory: Path) -> Experiment:
    """Returns the experiment of a network with the samples of another dataset.

    Raises:
        InputError: If microscope, scan or detector of the dataset are not those of the network.
    """
    path = directory / "config.yaml"
    experiment = model.experiment
    samples = load_config(path).model_copy(update={"variation": experiment.variation})
    measured = conditions(samples, experiment.window_shapes()[0][:2])
    differing = []
    for name, value in vars(measured).items():
        if value != getattr(model.conditions, name):
            differing.append(name)
    if differing:
        raise InputError(
            f"{directory} has another {' and '.join(differing)} than {model.name}: give a dataset "
            "of the network's microscope, scan and detector"
        )
    tree = experiment.model_dump(mode="json") | samples.model_dump(mode="json")
    tree["data"]["directory"] = str(directory)
    return validate(Experiment, tree, str(path))


def choose_samples(
    model: Model, datasets: CalibrationDatasets, simulated: int | None, outside: int
) -> CalibrationSamples:
    """Returns the samples of a calibration; other arguments as of `calibration.calibrate`.

    Raises:
        InputError: If there is no sample of the dev split whose material was not learnt.
    """
    held_out = datasets.held_out
    dev, test = unseen_held_out(model, held_out.entries, held_out.experiment.data.directory)
    training = limit(datasets.training.split("train") or dev, TRAINING_SAMPLES)
    limited_test = limit(test, HELD_OUT_SAMPLES)
    scored = dev + test
    if simulated is not None:
        scored = spread_over_thicknesses(scored, simulated)
    return CalibrationSamples(
        training=training,
        dev=limit(dev, HELD_OUT_SAMPLES),
        test=limited_test,
        scored=scored,
        outside=plan_outside(training, datasets.training.experiment, outside),
        outside_test=plan_outside(limited_test, held_out.experiment, -(-outside // 3)),
    )
