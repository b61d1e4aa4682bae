"""One sample of a dataset before it is simulated: a line of the manifest.

Which materials are for training and which are held out is decided by hashes, the same on every rank
and machine.
"""

import hashlib
import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, Literal, Protocol

from pydantic import ConfigDict
from pymatgen.core import Composition

from namsa.base.json_files import Count, Name, Positive, parse_typed
from namsa.config.materials import Split
from namsa.config.variation import VariedValues
from namsa.crystals.material import Material

# Values that are not written: manifests from before these fields existed have the same lines.
_LEFT_OUT: dict[str, object] = {"varied": {}, "specimen": "", "kind": "crystal", "partner": None}


SplitName = Literal["train", "dev", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "dev", "test")
UNKNOWN = "unknown"  # material, formula or space group of a sample from a file that does not say it


class Labelled(Protocol):
    """Relations of a crystal to others: a material, or an entry of a list."""

    @property
    def formula(self) -> str:
        """The reduced formula."""

    @property
    def space_group(self) -> str:
        """The Hermann–Mauguin symbol."""


def assign(materials: Sequence[Material], split: Split) -> list[SplitName]:
    """Returns the split of each material. Related materials, as `split.by` defines it, are in the
    same split.

    By prototype, the largest family is in the training split, if that has a share: elements, which
    have many structures and share them, may connect a fifth of all materials to one family.
    """
    if split.by == "formula":
        return [split_of(material.formula, split) for material in materials]
    if split.by == "elements":
        return [split_of(_elements(material), split) for material in materials]
    families = _families([{material.formula, prototype(material)} for material in materials])
    largest = max(set(families), key=lambda family: (families.count(family), family))
    assigned = []
    for family in families:
        in_training = family == largest and split.train > 0
        assigned.append(SPLITS[0] if in_training else split_of(family, split))
    return assigned


def assign_more(
    listed: Sequence[tuple[Labelled, SplitName]], more: Sequence[Material], split: Split
) -> list[SplitName]:
    """Returns the split of materials that a list lacks. What is related to a held-out material of
    it is held out.
    """
    if split.by != "prototype":
        return assign(more, split)
    crystals: list[Labelled] = [*(crystal for crystal, _ in listed), *more]
    families = _families([{crystal.formula, prototype(crystal)} for crystal in crystals])
    splits_of: dict[str, set[SplitName]] = {}
    for family, (_, name) in zip(families, listed, strict=False):
        splits_of.setdefault(family, set()).add(name)
    return [
        max(splits_of.get(family, {split_of(family, split)}), key=SPLITS.index)
        for family in families[len(listed) :]
    ]


def split_of(family: str, split: Split) -> SplitName:
    """Returns the split of a family of materials by its name's SHA-256, read as a number in [0,
    1).
    """
    uniform = int.from_bytes(_sha256(family)[:6], "big") / 2**48
    chosen = SPLITS[0]
    start = 0.0
    for name in SPLITS:
        fraction = getattr(split, name)
        if fraction > 0 and uniform >= start:  # rounding in the sum must not choose an empty split
            chosen = name
        start += fraction
    return chosen


def _elements(material: Material) -> str:
    """Returns the elements of a material, such as "Ca-O-Ti"."""
    return "-".join(sorted(set(re.findall("[A-Z][a-z]?", material.formula))))


def prototype(material: Labelled) -> str:
    """Returns kind of formula and space group, such as "AB Fm-3m". Coarser than a prototype: splits
    share none.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # noble gases have no electronegativity to sort by
        return f"{Composition(material.formula).anonymized_formula} {material.space_group}"


def _families(labels: Sequence[set[str]]) -> list[str]:
    """Returns, for each set of labels, the first in order of all labels connected to it by common
    ones.
    """
    parent = {label: label for labelled in labels for label in labelled}

    def root(label: str) -> str:
        while parent[label] != label:
            label = parent[label]
        return label

    for labelled in labels:
        base, *others = sorted(map(root, labelled))
        for other in others:
            parent[other] = base
    return [root(min(labelled)) for labelled in labels]


def _sha256(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


@dataclass(frozen=True, slots=True)
class Entry:
    """One sample to simulate."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    id: Name  # readable, unique and stable; the key of the sample's record
    material: Name  # the name of the material
    formula: str  # its reduced formula
    space_group: str  # its Hermann–Mauguin symbol
    zone_axis: tuple[int, int, int]  # (u, v, w) along the beam
    # the requested thickness, Å; a supercell has a whole number of repeats
    thickness_angstrom: Positive
    seed: Count  # seeds everything that is random in the sample
    split: SplitName  # the part of the dataset that the sample belongs to
    # Why no supercell can be built. Such an entry is never simulated. `None` if one can be built.
    skipped: str | None = None
    # the kind of source of the material, as `Material.kind`; "" in manifests without it
    source: str = ""
    # Values of the microscope of this sample alone, by name, with units in the names. See
    # `namsa.config.variation`.
    varied: VariedValues = field(default_factory=dict)
    # slices × pixels of the grid × probes, by which the ranks share the work; 0 if unknown
    cost: Count = 0
    # The name of the specimen, which the samples that are cut from one have in common. "" if the
    # sample alone has it.
    specimen: str = ""
    kind: str = "crystal"  # what was made of the crystal; "crystal" is the perfect crystal
    # The name of the second material of an interface or precipitate, which is of the same split.
    # `None` without one.
    partner: Name | None = None

    def to_json(self) -> str:
        """Returns the entry as a line of the manifest, without the line's end."""
        values: dict[str, object] = {
            attribute.name: getattr(self, attribute.name) for attribute in fields(self)
        }
        kept = {
            name: value
            for name, value in values.items()
            if name not in _LEFT_OUT or value != _LEFT_OUT[name]
        }
        return json.dumps(kept, ensure_ascii=False)

    @classmethod
    def from_json(
        cls, line: str, source: str = "a line of a manifest", remedy: str = "delete the manifest"
    ) -> "Entry":
        """Returns the entry that a line of the manifest holds. Raises InputError if it holds
        none.
        """
        return parse_typed(Entry, line, source, remedy)


def material_of(entry: Entry, materials: Mapping[str, Material]) -> Material:
    """Returns a sample's crystal, with its partner if it is an interface. Raises KeyError if one of
    them is missing.
    """
    material = materials[entry.material]
    if entry.partner:
        return replace(material, partner=materials[entry.partner])
    return material


def feasible_entries(entries: Iterable[Entry]) -> list[Entry]:
    """Returns the entries whose samples can be built."""
    return [entry for entry in entries if not entry.skipped]


def merged_names(materials: Iterable[Material]) -> dict[str, list[str]]:
    """Returns the names of the materials that were merged into others, by the name of these."""
    merged = {}
    for material in materials:
        if material.merged:
            merged[material.name] = list(material.merged)
    return merged


def materials_named(entries: Iterable[Entry]) -> set[str]:
    """Returns the names of the crystals of some samples, partners included."""
    return {name for entry in entries for name in (entry.material, entry.partner) if name}


def seed_of_kind(seed: int, specimen: str) -> int:
    """Returns the seed of what is drawn for the kind of a specimen. Its thermal displacements have
    another.
    """
    return seed_of(seed, f"{specimen} kind")


def seed_of(seed: int, name: str) -> int:
    """Returns a seed that follows from the configuration's seed and the name of a sample or
    specimen alone.
    """
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:6], "big")
