"""Groups of held-out samples that have something in common: a kind of specimen, or a range of a
varied quantity.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from namsa.config.variation import magnitude
from namsa.dataset.entry import Entry

# about specimen, microscope and detector, by the configuration's names
Facts = dict[str, str | float]

# of equal size, into which samples are divided by a quantity with more values than MOST_VALUES
GROUPS = 3
MOST_VALUES = 12
UNITS = {
    "_per_angstrom2": " per Å²",
    "_per_angstrom": " per Å",
    "_angstrom": ", Å",
    "_mrad": ", mrad",
    "_spread_pixels": " spread, pixels",
    "_shift_pixels": " shift, pixels",
    "_degrees": ", degrees",
}


def sample_facts(entry: Entry) -> Facts:
    """Returns the kind, the thickness and the magnitudes of the varied quantities of a sample."""
    facts: Facts = {"kind": entry.kind, "thickness_angstrom": entry.thickness_angstrom}
    return facts | {name: magnitude(name, value) for name, value in entry.varied.items()}


def groups(facts: Sequence[Mapping[str, str | float]]) -> Iterator[tuple[str, str, list[int]]]:
    """Yields the groups by each fact that differs between samples.

    Samples without a fact are in no group of it.

    Yields:
        The name of the fact, the group in words, and the indices of its samples.
    """
    known: dict[str, dict[int, str | float]] = {}  # values by name of the fact and sample
    for index, facts_of_sample in enumerate(facts):
        for name, value in facts_of_sample.items():
            known.setdefault(name, {})[index] = value
    for name, values in known.items():
        labels = group_labels(list(values.values()))
        samples_of: dict[str, list[int]] = {}
        for index, label in zip(values, labels, strict=True):
            samples_of.setdefault(label, []).append(index)
        if len(samples_of) > 1:
            for label in sorted(samples_of, key=_in_order):
                yield name, label, samples_of[label]


def group_labels(values: Sequence[str | float]) -> list[str]:
    """Returns the group of each value.

    It is the value itself, or one of `GROUPS` ranges of numbers if there are many.
    """
    numbers = sorted({value for value in values if isinstance(value, int | float)})
    label_of = {float(value): f"{value:.4g}" for value in numbers}
    if len(numbers) > MOST_VALUES:
        for members in np.array_split(numbers, GROUPS):
            label = f"{members[0]:.3g} to {members[-1]:.3g}"
            label_of |= dict.fromkeys(members.tolist(), label)
    labels = []
    for value in values:
        labels.append(value if isinstance(value, str) else label_of[float(value)])
    return labels


def measured(name: str, value: str) -> str:
    """Returns a fact with its value and unit: "specimen tilt 3.1 mrad"."""
    noun, _, unit = title(name).partition(", ")
    return f"{noun} {value}" + (unit and f"\u00a0{unit}")


def title(name: str) -> str:
    """Returns the name of a fact in words, with its unit: "specimen tilt, mrad" for
    specimen_tilt_mrad.
    """
    for suffix, unit in UNITS.items():
        if name.endswith(suffix):
            return name.removesuffix(suffix).replace("_", " ") + unit
    return name.replace("_", " ")


def _in_order(label: str) -> tuple[float, str]:
    """Returns what sorts labels by the number that they begin with, and others behind them."""
    try:
        return float(label.split(maxsplit=1)[0]), label
    except ValueError:
        return np.inf, label
