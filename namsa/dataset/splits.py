"""Which materials are for training and which are held out: decided by hashes, the same on every rank and machine."""

import hashlib
import re
import warnings
from collections.abc import Sequence
from typing import Literal, Protocol

from pymatgen.core import Composition

from namsa.config.materials import Split
from namsa.crystals.material import Material

SplitName = Literal["train", "dev", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "dev", "test")


class Labelled(Protocol):
    """What relates a crystal to others: a material, or an entry of a list."""

    @property
    def formula(self) -> str:
        """The reduced formula."""

    @property
    def space_group(self) -> str:
        """The Hermann–Mauguin symbol."""


def assign(materials: Sequence[Material], split: Split) -> list[SplitName]:
    """Returns the split of each material. Related materials, as `split.by` defines it, are in the same split.

    By prototype, the largest family is in the training split, if that has a share: elements, which have many structures
    and share them, may connect a fifth of all materials to one family.
    """
    if split.by == "formula":
        return [split_of(material.formula, split) for material in materials]
    if split.by == "elements":
        return [split_of(_elements(material), split) for material in materials]
    families = _families([{material.formula, _prototype(material)} for material in materials])
    largest = max(set(families), key=lambda family: (families.count(family), family))
    return [SPLITS[0] if family == largest and split.train > 0 else split_of(family, split) for family in families]


def assign_more(
    listed: Sequence[tuple[Labelled, SplitName]], more: Sequence[Material], split: Split
) -> list[SplitName]:
    """Returns the split of materials that a list lacks. What is related to a held-out material of it is held out.

    Args:
        listed: The materials of the list, each with its split.
        more: The others.
        split: As of `assign`.
    """
    if split.by != "prototype":
        return assign(more, split)
    crystals: list[Labelled] = [*(crystal for crystal, _ in listed), *more]
    families = _families([{crystal.formula, _prototype(crystal)} for crystal in crystals])
    splits_of: dict[str, set[SplitName]] = {}
    for family, (_, name) in zip(families, listed, strict=False):
        splits_of.setdefault(family, set()).add(name)
    return [
        max(splits_of.get(family, {split_of(family, split)}), key=SPLITS.index) for family in families[len(listed) :]
    ]


def split_of(family: str, split: Split) -> SplitName:
    """Returns the split of a family of materials by its name's SHA-256, read as a number in [0, 1)."""
    number = int.from_bytes(_sha256(family)[:6], "big") / 2**48
    chosen, start = SPLITS[0], 0.0
    for name in SPLITS:
        fraction = getattr(split, name)
        if fraction > 0 and number >= start:  # rounding in the sum must not choose an empty split
            chosen = name
        start += fraction
    return chosen


def _elements(material: Material) -> str:
    """Returns the elements of a material, such as "Ca-O-Ti"."""
    return "-".join(sorted(set(re.findall("[A-Z][a-z]?", material.formula))))


def _prototype(material: Labelled) -> str:
    """Returns kind of formula and space group, such as "AB Fm-3m". Coarser than a prototype: splits share none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # noble gases have no electronegativity to sort by
        return f"{Composition(material.formula).anonymized_formula} {material.space_group}"


def _families(labels: Sequence[set[str]]) -> list[str]:
    """Returns, for each set of labels, the first in order of all labels connected to it by common ones."""
    parent = {label: label for labelled in labels for label in labelled}

    def root(label: str) -> str:
        while parent[label] != label:
            label = parent[label]
        return label

    for labelled in labels:
        first, *others = sorted(map(root, labelled))
        for other in others:
            parent[other] = first
    return [root(min(labelled)) for labelled in labels]


def _sha256(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
