"""The model card of a density: its uses, its training, its scores and its limits."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple, cast

import numpy as np

from namsa.base.arrays import Array
from namsa.base.pixels import raster_shape
from namsa.dataset.entry import Entry
from namsa.dataset.records import Record
from namsa.dataset.shards import Dataset
from namsa.figures.document import DocumentSection, Text, code

from ....apply.models import Model, load_model
from ....experiment.experiment import Experiment
from ....input import noise
from ....input.windows import middle
from ....measure.groups import group_labels
from ....measure.metrics import image_metrics, mean_metrics
from ....reports.calibration_results import UncertaintyCalibration, read_calibration
from ....reports.card_sections import Usage
from ...card import CardFacts, OnSample, Packed, Rounding, TaskCard
from ..results import DoseRow, Evaluation
from ..scan.ensemble import Predict
from ..trust import familiarity
from ..trust.aberrations import MEASURED
from ..trust.predictions import trained_ensemble
from . import card_sections

DOSES = (None, 1e5, 1e4, 1e3)  # electrons per pattern


class Measured(NamedTuple):
    """Measurements of a packed density, beside its evaluation."""

    calibration: UncertaintyCalibration  # calibration of the uncertainty
    doses: list[DoseRow]  # one row per dose and thickness


class DensityCard(TaskCard):
    """The card of a density. It states the evaluation and the calibration of the run, whose newest
    weights it packs.
    """

    copied = ("calibration.json", "transfer.json", familiarity.FILE)

    def usage(self, experiment: Experiment) -> Usage:
        pacbed: Text = ("not in data files; ", code("--pacbed"), " fits it")
        checks = {"thickness_angstrom": pacbed}
        if experiment.training.inputs.layout == "scan":
            checks |= dict.fromkeys(sorted(MEASURED), "measured from the patterns")
        return Usage(
            "From 4D-STEM patterns to the projected electron density of a thin specimen, in e/Å².",
            "reconstruct",
            "DENSITY.h5",
            checks=checks,
            other_checks="by familiarity, all together",
        )

    def sections(self, facts: CardFacts) -> Sequence[DocumentSection]:
        calibration = facts.measured.calibration
        experiment = facts.experiment
        return (
            *card_sections.random_conditions(calibration),
            card_sections.scores(cast(Evaluation, facts.evaluation), experiment),
            card_sections.scores_by_dose(facts.measured.doses, calibration, experiment),
            card_sections.uncertainty(calibration),
        )

    def limits(self, facts: CardFacts) -> Sequence[Text]:
        evaluation = cast(Evaluation, facts.evaluation)
        return card_sections.limits(facts.experiment, evaluation, facts.measured.calibration)

    def answers(self, model: Model, dataset: Dataset, entries: Sequence[Entry]) -> Array:
        """Returns the errors of the mean predictions, `(n, h, w)`, e/Å²."""
        records = _windows(model, dataset, entries)
        truth = np.stack([record.density for record in records]).astype(np.float64)
        return np.asarray(mean_predictions(trained_ensemble(model).predict, records) - truth)

    def rounding(self, before: Array, after: Array, evaluation: Mapping[str, object]) -> Rounding:
        difference = after - before
        change = float(np.sqrt(np.mean(difference**2)))
        error = float(np.sqrt(np.mean(before**2)))
        words = (
            f"the answers change by {change:.2g} e/Å² (rms; at most "
            f"{float(np.abs(difference).max()):.2g}); the rms error is {error:.3g}"
        )
        return Rounding(change, error, words)

    def evaluate(self, packed: Packed) -> Mapping[str, object]:
        return packed.evaluation

    def measure(self, packed: Packed, on_sample: OnSample) -> Measured:
        folder = packed.model.folder
        calibration = read_calibration(folder / "calibration.json")
        return Measured(calibration, list(_measure_doses(load_model(folder), packed, on_sample)))


def _windows(model: Model, dataset: Dataset, entries: Sequence[Entry]) -> list[Record]:
    """Returns the middle windows of samples."""
    return [middle(dataset.read(entry.id), model.conditions.scan_shape) for entry in entries]


def _measure_doses(model: Model, packed: Packed, on_sample: OnSample) -> Iterator[DoseRow]:
    """Yields the mean scores of the predictions, one row per dose and thickness, or range of
    thicknesses.
    """
    predict = trained_ensemble(model).predict
    huber_delta = model.experiment.training.loss.huber_delta
    windows = _windows(model, packed.dataset, packed.compared)
    doses = DOSES[:1] if noise.describe_dose(windows[0].header["provenance"]) else DOSES
    labels = group_labels([entry.thickness_angstrom for entry in packed.compared])
    pairs = list(product(doses, dict.fromkeys(labels)))
    for done, (dose, thickness) in enumerate(pairs, start=1):
        records = []
        for record, label in zip(windows, labels, strict=True):
            if label == thickness:
                records.append(record)
        scores = []
        for density, record in zip(mean_predictions(predict, records, dose), records, strict=True):
            scores.append(image_metrics(density, record.density, huber_delta=huber_delta))
        row = {"electrons": dose, "thickness_angstrom": thickness, "samples": len(scores)}
        yield cast(DoseRow, row | mean_metrics(scores))
        on_sample(done, len(pairs))


def mean_predictions(
    predict: Predict, records: Sequence[Record], dose: float | None = None
) -> Array:
    """Returns the mean prediction for each sample, `(n, h, w)`, e/Å², with the noise of a dose per
    pattern.
    """
    densities = []
    for index, record in enumerate(records):
        scale = record.header["arrays"]["cbed"]["scale"]
        if dose:
            patterns = noise.count_electrons(record.cbed, scale, dose, index, 0)
        else:
            patterns = record.patterns()
        scan = raster_shape(record.header["provenance"], len(record.cbed))
        window = patterns.reshape(1, *scan, *record.cbed.shape[1:])
        densities.append(predict(window).density[:, 0].mean(axis=0, dtype=np.float64))
    return np.stack(densities)


CARD = DensityCard()
