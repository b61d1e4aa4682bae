"""The classes of samples, from the dataset's manifest."""

import difflib
from collections.abc import Callable, Sequence
from functools import cache

from namsa.base.errors import InputError
from namsa.base.text import shorten
from namsa.dataset.entry import Entry
from namsa.dataset.strata import CRYSTAL_SYSTEMS, crystal_systems

from .section import Classify

MOST_NAMED = 12  # classes in a message
UNKNOWN = "unknown"  # crystal system of a space group that spglib does not know


_systems = cache(crystal_systems)
LABELS: dict[str, Callable[[Entry], str]] = {
    "crystal_system": lambda entry: _systems().get(entry.space_group, UNKNOWN),
    "space_group": lambda entry: entry.space_group,
    "zone_axis": lambda entry: f"[{' '.join(map(str, entry.zone_axis))}]",
    "material": lambda entry: entry.material,
    "thickness": lambda entry: f"{entry.thickness_angstrom:g}",
}
UNITS = {"thickness": "Å"}  # of labels whose classes are numbers


def in_words(name: str) -> str:
    """Returns a label as it is written in texts and pictures, with its unit."""
    unit = UNITS.get(name)
    return name.replace("_", " ") + (f" in {unit}" if unit else "")


def label(entry: Entry, config: Classify) -> str:
    """Returns the class of a sample."""
    return LABELS[config.label](entry)


def class_names(entries: Sequence[Entry], config: Classify) -> tuple[str, ...]:
    """Returns the classes of some samples: those of the configuration, or all in their natural
    order.
    """
    present = {label(entry, config) for entry in entries}
    if config.classes:
        for name in config.classes:
            if name not in present:
                nearest = difflib.get_close_matches(name, sorted(present), n=1, cutoff=0)
                raise InputError(
                    f"training.classify.classes has {shorten(name)}, and no sample has that "
                    f"{config.label}: did you mean {nearest[0] if nearest else 'another label'}? "
                    f"The samples have {_listed(present)}"
                )
        return config.classes
    if config.label == "crystal_system":
        return tuple(sorted(present, key=(*CRYSTAL_SYSTEMS, UNKNOWN).index))
    return tuple(sorted(present, key=float if config.label == "thickness" else str))


def check_classes(entries: Sequence[Entry], config: Classify, outputs: int) -> None:
    """Raises InputError if classes do not fit the network's outputs, are fewer than two, or lack
    training samples.
    """
    if len(config.classes) != outputs:
        raise InputError(
            f"the samples have {len(config.classes)} classes of {config.label} "
            f"({_listed(config.classes)}), and network.classes is {outputs}: set it to "
            f"{len(config.classes)}, or list training.classify.classes"
        )
    if len(config.classes) < 2:
        raise InputError(
            f"all samples have {config.label} {_listed(config.classes)}: there is nothing to tell "
            "apart"
        )
    present = {label(entry, config) for entry in entries if entry.split == "train"}
    if absent := [name for name in config.classes if name not in present]:
        raise InputError(
            f"no sample of the train split has {config.label} {_listed(absent)}: list other "
            "classes in training.classify.classes, or add materials"
        )


def _listed(names: Sequence[str] | set[str]) -> str:
    """Some names for a message, and the number of the others."""
    ordered = sorted(names) if isinstance(names, set) else list(names)
    more = f" and {len(ordered) - MOST_NAMED} more" if len(ordered) > MOST_NAMED else ""
    return ", ".join(shorten(name, 40) for name in ordered[:MOST_NAMED]) + more
