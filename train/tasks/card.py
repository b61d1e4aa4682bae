"""The model card of a packed network, and the part of it that depends on the task.

That part is how the network is applied, its scores and what its answers cannot be trusted for. The
other sections are those of `train.reports.card_sections`. Scores are of the weights as they are
packed, except those of a density.
"""

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from namsa.base.arrays import Array
from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset
from namsa.dataset.strata import Strata
from namsa.figures.document import BulletList, Document, DocumentSection, Text
from namsa.figures.document_markdown import to_markdown

from ..apply.models import Model
from ..apply.weights import build_loaded
from ..experiment.experiment import Experiment
from ..input.selection import limit
from ..measure.results import Evaluation, RunFacts
from ..ranks.single import SingleProcess
from ..reports import card_sections
from ..reports.card_sections import Usage
from ..reports.results import WeightsFile, write_json
from . import registry, task_of
from .task import Answers

OnSample = Callable[[int, int], None]

BEAM_SAMPLES = 200  # training samples whose mean pattern is measured


@dataclass(frozen=True)
class Rounding:
    """The changes of the answers by rounding the weights."""

    change: float  # how much the answers change, in the measure of the error
    error: float  # the network's error
    words: str  # both in words


@dataclass(frozen=True)
class Packed:
    """A network whose weights are packed, and the samples that it is measured on."""

    model: Model  # the network, in its new folder
    run_dir: Path  # the run
    evaluation: Evaluation  # contents of the run's `evaluation.json`
    run: RunFacts  # facts of the run up to these weights
    dataset: Dataset  # the samples
    training: Sequence[Entry]  # those that were trained on
    held_out: Sequence[Entry]  # those that networks are evaluated on
    compared: Sequence[Entry]  # some held-out samples of one split, on which rounding is measured


@dataclass(frozen=True)
class CardFacts:
    """Measured facts that a card states."""

    experiment: Experiment  # configuration of the run
    evaluation: Evaluation  # results on held-out samples
    training_s: float  # time in the training steps up to these weights, s
    # trainings before, and what the first of them started from (`pack.trainings_before`)
    earlier_trainings: Sequence[str]
    strata: Strata  # counts of samples by split
    weights: WeightsFile  # facts about the weights file
    rounding: Rounding  # what rounding the weights has changed
    chosen: str = ""  # which weights of the run these are, if not the last
    measured: Any = None  # what `TaskCard.measure` has returned


class TaskCard(ABC):
    """The part of a model card that depends on the task."""

    # Files that `namsa-train calibrate` has written into the run and that go with the network.
    copied: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def usage(self, experiment: Experiment) -> Usage:
        """Returns how the network is applied."""

    def sections(self, facts: CardFacts) -> Sequence[DocumentSection]:
        """Returns the sections about scores."""
        return (self.scores(facts),)

    def scores(self, facts: CardFacts) -> DocumentSection:
        """Returns the section with the scores."""
        raise NotImplementedError

    @abstractmethod
    def limits(self, facts: CardFacts) -> Sequence[Text]:
        """Returns the limits that follow from the task and the scores."""

    def dev_error(self, evaluation: Evaluation) -> float | None:
        """Returns the error of the dev split, as validation measures it. `None` without samples.

        The weights of best.npz are packed if theirs is smaller. `None` packs those of the newest
        checkpoint.
        """
        return None

    @abstractmethod
    def answers(self, model: Model, dataset: Dataset, entries: Sequence[Entry]) -> Array:
        """Returns the network's answers for held-out samples, which are compared after the weights
        are rounded.
        """

    @abstractmethod
    def rounding(self, before: Array, after: Array, evaluation: Evaluation) -> Rounding:
        """Compares the answers before and after rounding, beside the error in the evaluation."""

    def evaluate(self, packed: Packed) -> Evaluation:
        """Evaluates the packed weights as a job does its own, since those of best.npz are not those
        of the run.
        """
        experiment = packed.model.experiment
        task = task_of(experiment)
        network = build_loaded(packed.model, experiment.network)
        baseline = task.statistic(packed.dataset, packed.training)
        answers = Answers(
            network, packed.dataset, packed.held_out, baseline, False, lambda line: None
        )
        with tempfile.TemporaryDirectory() as scratch:
            return task.evaluate(answers, Path(scratch), ranks=SingleProcess(), run=packed.run)

    def measure(self, packed: Packed, on_sample: OnSample) -> Any:
        """Measures what else the card states, and writes `calibration.json` if it is not copied.

        Args:
            on_sample: Called with the number of measurements that are done and their total.
        """
        chosen = limit(packed.training, BEAM_SAMPLES)
        beam = [
            packed.dataset.read(entry.id).patterns().sum(axis=(1, 2)).mean() for entry in chosen
        ]
        write_json(
            packed.model.folder / "calibration.json", {"transmitted_fraction": float(np.mean(beam))}
        )


def card_of(task: str) -> TaskCard:
    """Returns the part of a model card that depends on the task."""
    card: TaskCard = registry.part(task, "card").CARD
    return card


def write_card(name: str, task: TaskCard, facts: CardFacts) -> str:
    """Returns a model card as Markdown."""
    experiment = facts.experiment
    usage = task.usage(experiment)
    weights = card_sections.weights_rows(facts.weights, facts.rounding.words, usage.command)
    started_from = []
    for training in facts.earlier_trainings:
        started_from.append(f"earlier weights of {name}" if training == name else training)
    limits = (
        *card_sections.training_limits(experiment),
        *card_sections.unseen(experiment, facts.strata),
        *task.limits(facts),
    )
    card = Document(
        name,
        (
            *card_sections.purpose(name, experiment, usage),
            *task.sections(facts),
            DocumentSection("Limits", (BulletList(limits),)),
            card_sections.data(experiment, facts.strata),
            card_sections.training(
                experiment,
                facts.evaluation["run"],
                facts.training_s,
                started_from,
                weights,
                facts.chosen,
            ),
        ),
    )
    return to_markdown(card)


def share_that_differs(before: Array, after: Array) -> float:
    """Returns the fraction of the answers that are not the same."""
    return float(np.mean(before != after))
