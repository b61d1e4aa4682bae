"""Groups of held-out samples that have something in common: a kind of specimen, or a range of a varied quantity."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from namsa.config.variation import magnitude
from namsa.dataset.entry import Entry

Facts = dict[str, str | float]  # about specimen, microscope and detector, by the configuration's names

GROUPS = 3  # of equal size, into which samples are divided by a quantity with more values than MOST_VALUES
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
    """Yields the groups by each fact that differs between samples: its name, the group in words, and its samples.

    Samples without a fact are in no group of it.
    """
    for name in dict.fromkeys(name for each in facts for name in each):
        known = [index for index, each in enumerate(facts) if name in each]
        labels = group_labels([facts[index][name] for index in known])
        for label in sorted(set(labels), key=_in_order) if len(set(labels)) > 1 else ():
            yield name, label, [index for index, other in zip(known, labels, strict=True) if other == label]


def group_labels(values: Sequence[str | float]) -> list[str]:
    """Returns the group of each value: the value itself, or one of `GROUPS` ranges of numbers if there are many."""
    numbers = sorted({value for value in values if isinstance(value, int | float)})
    if len(numbers) <= MOST_VALUES:
        return [value if isinstance(value, str) else f"{value:.4g}" for value in values]
    ranges = np.array_split(numbers, GROUPS)
    label_of = {number: f"{part[0]:.3g} to {part[-1]:.3g}" for part in ranges for number in part.tolist()}
    return [value if isinstance(value, str) else label_of[float(value)] for value in values]


def measured(name: str, value: str) -> str:
    """Returns a fact with its value and unit: "specimen tilt 3.1 mrad"."""
    noun, _, unit = title(name).partition(", ")
    return f"{noun} {value}" + (unit and f"\u00a0{unit}")


def title(name: str) -> str:
    """Returns the name of a fact in words, with its unit: "specimen tilt, mrad" for specimen_tilt_mrad."""
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
