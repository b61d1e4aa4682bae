"""Windows whose density is known, under the conditions that a network was trained for, to calibrate
it with.

A sample of the dataset gives one window as it is stored, the middle one, and one as training would
see it: at a random place, with the imperfections and the dose of `training.inputs` drawn, but for
an epoch that no training has.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Array
from namsa.dataset.entry import Entry

from ..experiment.experiment import Experiment
from ..input import batches, imperfections, noise, views
from ..input.windows import middle
from ..measure.groups import Facts, sample_facts

EPOCH = 10**7  # larger than that of any training


class KnownWindow(NamedTuple):
    """A window and its density."""

    patterns: Array  # `(1, sy, sx, dy, dx)`, fractions of the beam
    density: Array  # `(h, w)`, e/Å²
    facts: Facts  # what is known about specimen, microscope and detector, by name
    entry: Entry  # the sample
    is_last: bool  # whether it is the last window of its sample


def known_windows(
    dataset: views.Readable, entries: Iterable[Entry], experiment: Experiment
) -> Iterator[KnownWindow]:
    """Yields the windows of samples: as they are stored, and as training would see them if that
    differs.
    """
    # the network is shown all mirrors anyway
    inputs = experiment.training.inputs.model_copy(update={"augment": False})
    training = experiment.training.model_copy(update={"inputs": inputs})
    unmirrored = experiment.model_copy(update={"training": training})
    training_differs = bool(inputs.dose_electrons_per_pattern or inputs.imperfections)
    (*scan, dy, dx), _ = experiment.window_shapes()
    for entry in entries:
        facts = sample_facts(entry)
        with dataset.view(entry.id, check=True) as view:
            record = middle(view, (scan[0], scan[1]))
            patterns = record.patterns().reshape(1, *scan, dy, dx)
            density = record.density.copy()
        yield KnownWindow(
            patterns, density, facts | {"window": "as simulated"}, entry, not training_differs
        )
        if training_differs:
            drawn = batches.read_batch(dataset, [entry], unmirrored, EPOCH, views.ReadCache())
            patterns = np.asarray(drawn.patterns, np.float32) / np.asarray(drawn.scale)[..., None]
            drawn_facts = {"window": "as in training"} | _drawn_facts(experiment, entry)
            yield KnownWindow(
                patterns, np.array(drawn.density[0]), facts | drawn_facts, entry, True
            )


def _drawn_facts(experiment: Experiment, entry: Entry) -> Facts:
    """Returns the dose and the magnitudes of the imperfections that were drawn for a sample."""
    inputs = experiment.training.inputs
    facts = Facts()
    if inputs.dose_electrons_per_pattern:
        electrons = noise.draw_electrons(inputs.dose_electrons_per_pattern, entry.seed, EPOCH)
        facts["electrons_per_pattern"] = electrons
    if inputs.imperfections:
        drawn = imperfections.draw(inputs.imperfections, entry.seed, EPOCH)
        for name in inputs.imperfections.given():
            facts[name] = float(np.linalg.norm(getattr(drawn, name)))
    return facts
