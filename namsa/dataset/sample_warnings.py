"""Warnings of the samples of a dataset, one line for all that differ in numbers alone."""

import re
import warnings
from collections.abc import Iterable

from namsa.base.errors import SimulationWarning

# Numbers, and the directions of crystals.
VALUES = re.compile(r"\[[-\d ]+\]|-?\d+(?:\.\d+)?")


class SampleWarnings:
    """Collects the warnings that the provenance of samples has."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}  # by the text without its values

    def add(self, texts: Iterable[str]) -> None:
        """Adds the warnings of a sample."""
        for text in texts:
            self._texts.setdefault(VALUES.sub("", text), []).append(text)

    def issue(self, samples: int) -> None:
        """Issues a warning for each kind of text.

        Args:
            samples: The number of samples that were simulated.
        """
        for texts in self._texts.values():
            text = texts[0]
            if len(texts) > 1:
                text = (
                    f"{len(texts)} of {samples} samples: {text} (the first of them; the provenance "
                    "of each has its own numbers)"
                )
            warnings.warn(text, SimulationWarning, stacklevel=3)
