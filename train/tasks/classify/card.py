"""What a model card says of a network of the task classify."""

from collections.abc import Iterator, Sequence

import numpy as np

from namsa.arrays import Array, Integers
from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset

from ...apply.card import CardFacts, Evaluation, Rounding, TaskCard, share_that_differs
from ...apply.models import Model
from ...apply.weights import build_loaded
from ...experiment.experiment import Experiment
from ...reports.card_sections import Usage, undrawn
from ...reports.markdown import number, plain, section, table
from ..pattern_images import patterns
from ..splits import dev, last
from .application import check_single_patterns
from .labels import in_words
from .report import score_table
from .task import logits_function

MOST_CLASSES = 12  # that are named, or are rows of a table

WORDS = {"potential_clusters": "cluster of the projected potential around the probe"}  # of labels


class ClassCard(TaskCard):
    """What a model card says of a network of the task classify; `TaskCard` documents the methods."""

    def usage(self, experiment: Experiment) -> Usage:
        config = experiment.training.classify
        check_single_patterns(experiment, "the folder of the run")
        names = ", ".join(map(plain, config.classes)) if len(config.classes) <= MOST_CLASSES else ""
        found = f"one of {names}" if names else f"one of {len(config.classes)}"
        words = WORDS.get(config.label, in_words(config.label))
        vote = "" if config.label in WORDS else ", and of the scan by their vote"
        return Usage(
            f"From the patterns of a 4D-STEM scan to the {words} at each position{vote}: {found}.",
            "classify",
            "CLASSES.h5",
            by_pattern=True,
            checks={"thickness_angstrom": "what it answers"} if config.label == "thickness" else {},
        )

    def scores(self, facts: CardFacts) -> Iterator[str]:
        """The balanced accuracies by split, and who is taken for whom."""
        evaluation = facts.evaluation
        blocks: list[str | Iterator[str]] = [
            "Balanced accuracy, the mean over classes of the fraction that is right, of patterns and of scans by the "
            f"vote of their patterns{undrawn(facts.experiment)}. The baseline is the class with the nearest mean "
            "radial profile. Chance is that of an answer that is always the same.",
            score_table(evaluation).markdown(),
        ]
        names, split = evaluation["classes"], last(evaluation["by_split"])[0]
        if len(names) <= MOST_CLASSES:
            shares = [
                (plain(name), f"{sum(row):,}", *(number(value / sum(row) if sum(row) else None, 2) for value in row))
                for name, row in zip(names, evaluation["confusion"][split], strict=True)
            ]
            blocks += [
                f"Fractions of the patterns of a class (rows) that are given to each class, {plain(split)} split:",
                table(("", "patterns", *map(plain, names)), shares),
            ]
        return section(f"Scores: {plain(in_words(evaluation['label']))}", *blocks)

    def limits(self, facts: CardFacts) -> Iterator[str]:
        evaluation = facts.evaluation
        row = last(evaluation["by_split"])[1]
        yield (
            f"- Every pattern gets one of the {len(evaluation['classes'])} classes, also one of vacuum "
            "or of a specimen that is of none of them. The probabilities are not calibrated."
        )
        if row["error"] > 0.5:
            yield (
                f"- **Of the patterns of unseen materials {row['error']:.0%} are given a wrong class.** The answer is "
                "a hint, and no determination."
            )
        if "images" in evaluation["by_split"]:
            yield "- The split “images” says how patterns of materials that were trained on are told apart, no more."

    def dev_error(self, evaluation: Evaluation) -> float | None:
        return dev(evaluation, "error")

    def answers(self, model: Model, dataset: Dataset, entries: Sequence[Entry]) -> Integers:
        """Returns the class that each pattern of some samples is given."""
        experiment = model.experiment
        logits_of = logits_function(build_loaded(model, experiment.network))
        found = (logits_of(patterns(experiment, entry, dataset.read(entry.id), training=False)) for entry in entries)
        return np.concatenate([logits.argmax(axis=1) for logits in found])

    def rounding(self, before: Array, after: Array, evaluation: Evaluation) -> Rounding:
        """Returns the fraction of the patterns whose class changes, beside the fraction that is wrong."""
        change, error = share_that_differs(before, after), last(evaluation["by_split"])[1]["error"]
        words = f"{change:.2%} of {len(before):,} held-out patterns are given another class"
        return Rounding(change, error, f"{words}; {error:.1%} are given a wrong one")


CARD = ClassCard()
