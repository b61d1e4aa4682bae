"""The model card of a task other than the density.

A task says how its network is applied, what it scores and what its answers cannot be trusted for. The other sections
are those of `train.reports.card_sections`. Scores are of the weights as they are packed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset
from namsa.dataset.strata import Strata

from ..experiment.experiment import Experiment
from ..reports import card_sections
from ..reports.card_sections import Usage
from ..reports.results import WeightsFile

Evaluation = Mapping[str, Any]  # contents of `evaluation.json`


@dataclass(frozen=True)
class Rounding:
    """What rounding the weights changes.

    Attributes:
        change: How much the answers change, in the measure of the error.
        error: The network's error.
        words: Both in words.
    """

    change: float
    error: float
    words: str


@dataclass(frozen=True)
class TaskCard:
    """What a task says of a network.

    Attributes:
        usage: How it is applied.
        scores: Returns the lines of the section with the scores.
        limits: Returns the limits that follow from the task and the scores, one line each.
        dev_error: Returns the error of the dev split, as validation measures it. `None` without samples.
        answers: Returns the network's answers for held-out samples, which are compared after the weights are rounded.
        rounding: Compares the answers before and after rounding, beside the error in the evaluation.
    """

    usage: Callable[[Experiment], Usage]
    scores: Callable[[Evaluation], Iterator[str]]
    limits: Callable[[Evaluation], Iterator[str]]
    dev_error: Callable[[Evaluation], float | None]
    answers: Callable[[Experiment, Any, Dataset, Sequence[Entry]], npt.NDArray[Any]]
    rounding: Callable[[npt.NDArray[Any], npt.NDArray[Any], Evaluation], Rounding]


@dataclass(frozen=True)
class TaskFacts:
    """Measured facts that the card of a task states.

    Attributes:
        evaluation: Results of the packed weights on held-out samples.
        training_s: Time in the training steps up to these weights, s.
        strata: Counts of samples by split.
        weights: Facts about the weights file.
        rounding: What rounding the weights has changed.
        chosen: Which weights of the run these are, if not the last.
    """

    evaluation: Evaluation
    training_s: float
    strata: Strata
    weights: WeightsFile
    rounding: Rounding
    chosen: str


def write_card(name: str, experiment: Experiment, task: TaskCard, facts: TaskFacts) -> str:
    """Returns a model card as Markdown.

    Args:
        name: Name of the model.
        experiment: Configuration of the run.
        task: What its task says of the network.
        facts: Measured facts.
    """
    usage = task.usage(experiment)
    weights = card_sections.weights_rows(facts.weights, facts.rounding.words, usage.command)
    limits = (
        *card_sections.training_limits(experiment),
        *card_sections.unseen_elements(facts.strata),
        *task.limits(facts.evaluation),
    )
    sections = (
        card_sections.purpose(name, experiment, usage),
        task.scores(facts.evaluation),
        limits,
        card_sections.data(experiment, facts.strata),
        card_sections.training(experiment, facts.evaluation["run"], facts.training_s, weights, facts.chosen),
    )
    return "\n\n".join("\n".join(lines) for lines in sections) + "\n"


def share_that_differs(before: npt.NDArray[Any], after: npt.NDArray[Any]) -> float:
    """Returns the fraction of the answers that are not the same."""
    return float(np.mean(before != after))
