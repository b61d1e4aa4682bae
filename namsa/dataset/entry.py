"""One sample of a dataset before it is simulated: a line of the manifest."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

from pydantic import ConfigDict

from namsa.config.variation import VariedValues
from namsa.crystals.material import Material
from namsa.dataset.splits import SplitName
from namsa.json_files import Count, Name, Positive, parse_typed

# Values that are not written: manifests from before these fields existed have the same lines.
_LEFT_OUT: dict[str, Any] = {"varied": {}, "specimen": "", "kind": "crystal", "partner": None}


@dataclass(frozen=True, slots=True)
class Entry:
    """One sample to simulate."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    id: Name  # readable, unique and stable; the key of the sample's record
    material: Name  # the name of the material
    formula: str  # its reduced formula
    space_group: str  # its Hermann–Mauguin symbol
    zone_axis: tuple[int, int, int]  # (u, v, w) along the beam
    thickness_angstrom: Positive  # the requested thickness, Å; a supercell has a whole number of repeats
    seed: Count  # seeds everything that is random in the sample
    split: SplitName  # the part of the dataset that the sample belongs to
    # Why no supercell can be built. Such an entry is never simulated. `None` if one can be built.
    skipped: str | None = None
    source: str = ""  # the kind of source of the material, as `Material.kind`; "" in manifests without it
    # Values of the microscope of this sample alone, by name, with units in the names. See `namsa.config.variation`.
    varied: VariedValues = field(default_factory=dict)
    cost: Count = 0  # slices × pixels of the grid × probes, by which the ranks share the work; 0 if unknown
    # The name of the specimen, which the samples that are cut from one have in common. "" if the sample alone has it.
    specimen: str = ""
    kind: str = "crystal"  # what was made of the crystal; "crystal" is the perfect crystal
    # The name of the second material of an interface or precipitate, which is of the same split. `None` without one.
    partner: Name | None = None

    def to_json(self) -> str:
        """Returns the entry as a line of the manifest, without the line's end."""
        values: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        kept = {name: value for name, value in values.items() if name not in _LEFT_OUT or value != _LEFT_OUT[name]}
        return json.dumps(kept, ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str, source: str = "a line of a manifest", remedy: str = "delete the manifest") -> "Entry":
        """Returns the entry that a line of the manifest holds.

        Args:
            source: Where it comes from, for the message.
            remedy: What to do if it holds no entry, for the message.

        Raises:
            InputError: If it holds no entry.
        """
        return parse_typed(Entry, line, source, remedy)


def material_of(entry: Entry, materials: Mapping[str, Material]) -> Material:
    """Returns the crystal of a sample, with its partner if the specimen is an interface.

    Raises:
        KeyError: If one of them is missing.
    """
    material = materials[entry.material]
    return replace(material, partner=materials[entry.partner]) if entry.partner else material


def materials_named(entries: Iterable[Entry]) -> set[str]:
    """Returns the names of the crystals of some samples, partners included."""
    return {name for entry in entries for name in (entry.material, entry.partner) if name}


def seed_of_kind(seed: int, specimen: str) -> int:
    """Returns the seed of what is drawn for the kind of a specimen. Its thermal displacements have another."""
    return seed_of(seed, f"{specimen} kind")


def seed_of(seed: int, name: str) -> int:
    """Returns a seed that follows from the configuration's seed and the name of a sample or specimen alone."""
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:6], "big")
