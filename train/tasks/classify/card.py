"""The model card of a network of the task classify."""

from collections.abc import Sequence

import numpy as np

from namsa.base.arrays import Array, Integers
from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset
from namsa.figures.document import Block, DocumentSection, Paragraph, Table, Text, strong

from ...apply.models import Model
from ...apply.weights import build_loaded
from ...experiment.experiment import Experiment
from ...reports.card_sections import Usage, undrawn
from ...reports.words import fixed
from ..card import CardFacts, Evaluation, Rounding, TaskCard, share_that_differs
from ..pattern_images import patterns
from ..splits import Split, dev, last
from .application import check_single_patterns
from .labels import in_words
from .report import score_table
from .task import logits_function

MOST_CLASSES = 12  # that are named, or are rows of a table

WORDS = {"potential_clusters": "cluster of the projected potential around the probe"}  # of labels


class ClassCard(TaskCard):
    """The model card of a network of the task classify; `TaskCard` documents the methods."""

    def usage(self, experiment: Experiment) -> Usage:
        config = experiment.training.classify
        check_single_patterns(experiment, "the folder of the run")
        answer = f"one of {len(config.classes)}"
        if len(config.classes) <= MOST_CLASSES:
            answer = f"one of {', '.join(config.classes)}"
        if config.label in WORDS:
            question = f"{WORDS[config.label]} at each position"
        else:
            question = f"{in_words(config.label)} at each position, and of the scan by their vote"
        checks = {}
        if config.label == "thickness":
            checks["thickness_angstrom"] = "what it answers"
        return Usage(
            f"From the patterns of a 4D-STEM scan to the {question}: {answer}.",
            "classify",
            "CLASSES.h5",
            by_pattern=True,
            checks=checks,
        )

    def scores(self, facts: CardFacts) -> DocumentSection:
        """Returns the section of balanced accuracies by split, with the confusion matrix."""
        evaluation = facts.evaluation
        text = (
            "Balanced accuracy, the mean over classes of the fraction that is right, of patterns "
            f"and of scans by the vote of their patterns{undrawn(facts.experiment)}. The baseline "
            "is the class with the nearest mean radial profile. Chance is that of an answer that "
            "is always the same."
        )
        blocks: list[Block] = [Paragraph(text), score_table(evaluation).of_card()]
        if len(evaluation["classes"]) <= MOST_CLASSES:
            split = last(evaluation["by_split"])[0]
            text = (
                "Fractions of the patterns of a class (rows) that are given to each class, "
                f"{split} split:"
            )
            blocks += [Paragraph(text), _confusion_table(evaluation, split)]
        return DocumentSection(f"Scores: {in_words(evaluation['label'])}", blocks)

    def limits(self, facts: CardFacts) -> Sequence[Text]:
        evaluation = facts.evaluation
        row = last(evaluation["by_split"])[1]
        limits: list[Text] = [
            f"Every pattern gets one of the {len(evaluation['classes'])} classes, also one of "
            "vacuum or of a specimen that is of none of them. The probabilities are not "
            "calibrated."
        ]
        if row["error"] > 0.5:
            wrong = (
                f"Of the patterns of held-out materials {row['error']:.0%} are given a wrong class."
            )
            limits.append((strong(wrong), " The answer is a hint, and no determination."))
        if "images" in evaluation["by_split"]:
            limits.append(
                "The split “images” says how patterns of materials that were trained on are told "
                "apart, no more."
            )
        return limits

    def dev_error(self, evaluation: Evaluation) -> float | None:
        return dev(evaluation, "error")

    def answers(self, model: Model, dataset: Dataset, entries: Sequence[Entry]) -> Integers:
        """Returns the class that each pattern of some samples is given."""
        experiment = model.experiment
        logits_of = logits_function(build_loaded(model, experiment.network))
        classes = []
        for entry in entries:
            record = dataset.read(entry.id)
            logits = logits_of(patterns(experiment, entry, record, training=False))
            classes.append(logits.argmax(axis=1))
        return np.concatenate(classes)

    def rounding(self, before: Array, after: Array, evaluation: Evaluation) -> Rounding:
        """Returns the fraction of the patterns whose class changes, beside the fraction that is
        wrong.
        """
        change = share_that_differs(before, after)
        error = last(evaluation["by_split"])[1]["error"]
        words = f"{change:.2%} of {len(before):,} held-out patterns are given another class"
        return Rounding(change, error, f"{words}; {error:.1%} are given a wrong one")


def _confusion_table(evaluation: Evaluation, split: Split) -> Table:
    """Returns the fractions of the patterns of each class that are given to each class."""
    names = evaluation["classes"]
    rows = []
    for name, row in zip(names, evaluation["confusion"][split], strict=True):
        total = sum(row)
        cells = [name, f"{total:,}"]
        for given in row:
            cells.append(fixed(given / total, 2) if total else fixed(None))
        rows.append(cells)
    return Table(("", "patterns", *names), rows, text_columns=1)


CARD = ClassCard()
