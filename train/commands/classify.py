"""Classifies the patterns of a file."""

import argparse
from typing import TYPE_CHECKING

from .common import exit_code
from .models import write_result

if TYPE_CHECKING:
    from ..apply.classify import ClassifiedScan

MOST_NAMED = 3  # classes that are printed


def classify(options: argparse.Namespace) -> int:
    """Classifies the patterns of a 4D-STEM file."""

    def work() -> None:
        from ..apply.classify import classify

        write_result(options, classify, _vote)

    return exit_code(work)


def _vote(result: "ClassifiedScan") -> tuple[str]:
    """Returns a line about the class of the scan and the most probable ones."""
    from ..tasks.labels import in_words

    means = result.mean_probabilities
    order = sorted(range(len(means)), key=lambda index: -means[index])[:MOST_NAMED]
    likely = ", ".join(f"{result.classes[index]} {means[index]:.3f}" for index in order)
    return (f"{in_words(result.label)} by vote: {result.vote} (mean probabilities: {likely})",)
