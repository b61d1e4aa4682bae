"""Which materials are learnt from and which are held out: decided by hashes, the same on every rank and machine."""

import hashlib
import warnings
from collections.abc import Sequence
from typing import Literal

from pymatgen.core import Composition

from namsa.config.materials import Split
from namsa.crystals.material import Material

SplitName = Literal["train", "dev", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "dev", "test")


def assign(materials: Sequence[Material], split: Split) -> list[SplitName]:
    """The split of each material; relatives, by what `split.by` says, are in one.

    By prototype, the largest family is learnt from where a split is to be: through elements, which have many structures
    and share them, it may be a fifth of all materials.
    """
    if split.by == "formula":
        return [split_of(material.formula, split) for material in materials]
    families = _families([{material.formula, _prototype(material)} for material in materials])
    largest = max(set(families), key=lambda family: (families.count(family), family))
    return [SPLITS[0] if family == largest and split.train > 0 else split_of(family, split) for family in families]


def split_of(family: str, split: Split) -> SplitName:
    """The split of a family of materials by its name, such as a reduced formula: SHA-256 as a number in [0, 1)."""
    number = int.from_bytes(_sha256(family)[:6], "big") / 2**48
    chosen, start = SPLITS[0], 0.0
    for name in SPLITS:
        fraction = getattr(split, name)
        if fraction > 0 and number >= start:  # so that rounding in the sum cannot choose an empty split
            chosen = name
        start += fraction
    return chosen


def _prototype(material: Material) -> str:
    """The kind of formula and the space group, such as "AB Fm-3m": coarser than a prototype, so that none is shared."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that noble gases have no electronegativity to sort by
        return f"{Composition(material.formula).anonymized_formula} {material.space_group}"


def _families(labels: Sequence[set[str]]) -> list[str]:
    """For each set of labels the first, in order, of all labels that it is connected with by common ones."""
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
