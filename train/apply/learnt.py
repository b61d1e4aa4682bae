"""The crystals that a network has learnt: by formula, and by prototype.

The prototype is the kind of formula with the space group, such as "AB Fm-3m", as the splits of a
dataset take it (`namsa.dataset.entry.prototype`). `learnt.json` in a model's folder lists both for
all trainings that led to its weights. A run without this file has the formulas in the header of its
checkpoints.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, NotRequired

import ase
from ase.formula import Formula
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from namsa.base.errors import InputError
from namsa.base.json_files import read_typed
from namsa.dataset.entry import UNKNOWN, Entry, materials_named, prototype

from ..optimization import checkpoint
from ..optimization.origin import LearntMaterials, learnt_of
from ..reports.results import write_json
from .models import Model, load_model

LEARNT = "learnt.json"

Kinship = Literal["formula", "prototype", "no", "unknown"]

WORDS: dict[Kinship, str] = {
    "formula": "a crystal of this formula was among the training materials of {name}",
    "prototype": "{name} has learnt crystals of this structure, of other elements",
    "no": "no crystal of this formula was among the training materials of {name}",
    "unknown": "whether {name} has learnt this formula is not known",
}


class LearntFile(TypedDict):
    """Contents of `learnt.json`."""

    formulas: list[str]  # reduced formulas
    names: list[str]  # names of the materials
    prototypes: list[str]  # as "AB Fm-3m"
    complete: bool  # whether the materials of all trainings are listed
    source: NotRequired[str]  # where the list is from, in words


@dataclass(frozen=True)
class LearntCrystals:
    """The crystals of all trainings that led to a network's weights.

    Attributes:
        formulas: Reduced formulas.
        prototypes: Prototypes; `None` if they are not known.
        complete: Whether the crystals of all trainings are known.
        source: Where this is from, in words.
    """

    formulas: frozenset[str]
    prototypes: frozenset[str] | None = None
    complete: bool = True
    source: str = ""

    def kinship(self, formula: str, prototype: str | None = None) -> Kinship:
        """Returns what a crystal has in common with those that were learnt.

        Args:
            formula: Its formula, in any order of the elements.
            prototype: As `prototype_of` returns it; `None` compares the formula alone.

        Returns:
            "formula" if a crystal of this formula was learnt, else "prototype" if one of its
            prototype was. "unknown" if neither was and the list is not complete.
        """
        composition = _composition(formula)
        if any(composition == _composition(learnt) for learnt in self.formulas):
            return "formula"
        if prototype is not None and self.prototypes is not None and prototype in self.prototypes:
            return "prototype"
        return "no" if self.complete else "unknown"


NOT_KNOWN = LearntCrystals(frozenset(), complete=False)


def learnt(model: Model) -> LearntCrystals:
    """Returns the crystals that a network has learnt, as far as its folder states them.

    Raises:
        InputError: If `learnt.json` holds something else, or the weights cannot be read.
    """
    stated = _read(model)
    if stated is None:
        materials = learnt_materials(model)
        return LearntCrystals(materials.formulas, complete=materials.complete)
    return LearntCrystals(
        frozenset(stated["formulas"]),
        frozenset(stated["prototypes"]),
        stated["complete"],
        stated.get("source", ""),
    )


def learnt_materials(model: Model) -> LearntMaterials:
    """Returns the materials that a network has learnt, for the origin of what starts from it.

    Raises:
        InputError: As of `learnt`.
    """
    stated = _read(model)
    if stated is not None:
        return LearntMaterials(
            frozenset(stated["formulas"]), frozenset(stated["names"]), stated["complete"]
        )
    try:
        return learnt_of(checkpoint.read_header(model.weights))
    except checkpoint.BROKEN as error:
        raise InputError(f"cannot read the weights {model.weights}: {error}") from None


class UnseenSamples(NamedTuple):
    """Samples of materials that a network has not learnt."""

    dev: list[Entry]
    test: list[Entry]


def unseen_held_out(model: Model, entries: Iterable[Entry], directory: Path) -> UnseenSamples:
    """Returns the samples of the splits dev and test of materials that a network has not learnt.

    A network that started from other weights may have learnt some of them before, as may any
    network some of another dataset.

    Args:
        entries: The samples of a dataset.
        directory: The dataset, for the message.

    Raises:
        InputError: If the dev split has no such sample, or the weights cannot be read.
    """
    in_split: dict[str, list[Entry]] = {"dev": [], "test": []}
    for entry in entries:
        if entry.split in in_split:
            in_split[entry.split].append(entry)
    if not in_split["dev"]:
        raise InputError(f"{directory} has no sample of the dev split to calibrate with")
    materials = learnt_materials(model)
    unseen = UnseenSamples(materials.unseen(in_split["dev"]), materials.unseen(in_split["test"]))
    if not unseen.dev:
        raise InputError(
            f"{model.name} has learnt all materials of the dev split of {directory}, in this "
            "training or in one that it started from: give a dataset of other materials"
        )
    return unseen


def _read(model: Model) -> LearntFile | None:
    """Returns the contents of a model's `learnt.json`; `None` without one."""
    path = model.folder / LEARNT
    if not path.is_file():
        return None
    return read_typed(LearntFile, path, "take the model's folder again from where it is from")


def write_learnt(folder: Path, entries: Iterable[Entry], start_from: str | None) -> None:
    """Writes `learnt.json` of a network into a folder.

    Args:
        folder: The folder of the model.
        entries: The samples of its training.
        start_from: The network whose weights it started from; `None` for random weights.
    """
    entries = list(entries)
    formulas = {entry.formula for entry in entries} - {UNKNOWN}
    prototypes = {prototype(entry) for entry in entries if entry.formula != UNKNOWN}
    names = materials_named(entries)
    complete = True
    if start_from is not None:
        start = _learnt_by_start(start_from)
        formulas |= start.formulas
        prototypes |= start.prototypes or set()
        complete = start.complete and start.prototypes is not None
    write_json(
        folder / LEARNT,
        LearntFile(
            formulas=sorted(formulas),
            names=sorted(names),
            prototypes=sorted(prototypes),
            complete=complete,
        ),
    )


def _learnt_by_start(name: str) -> LearntCrystals:
    """Returns what the network has learnt that a training started from; nothing if it is gone."""
    try:
        return learnt(load_model(name))
    except InputError:
        return NOT_KNOWN


def prototype_of(crystal: ase.Atoms) -> str:
    """Returns the prototype of a crystal without defects, such as "AB Fm-3m"."""
    from namsa.crystals.cif import reduced_formula
    from namsa.crystals.symmetry import space_group

    return prototype(_Crystal(reduced_formula(crystal), space_group(crystal)))


class _Crystal(NamedTuple):
    """The properties of a crystal that decide its prototype."""

    formula: str
    space_group: str


def kinship_line(model: Model, formula: str) -> str:
    """Returns a line about whether a network has learnt a crystal of a formula."""
    return f"{formula}: {WORDS[learnt(model).kinship(formula)].format(name=model.name)}"


def _composition(formula: str) -> frozenset[tuple[str, int]] | str:
    """Returns the elements of a formula with their reduced counts; the text if it has fractions."""
    try:
        reduced, _ = Formula(formula).reduce()
    except ValueError:
        return formula
    return frozenset(reduced.count().items())
