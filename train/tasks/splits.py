"""The parts of the held-out samples: positions of training samples, the dev split and the test
split.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, TypeVar, get_args

from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from namsa.dataset.entry import Entry

from ..measure.results import Evaluation, RunFacts
from ..reports.held_out import unseen

T = TypeVar("T")

Split = Literal["images", "dev", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)


def meanings(run: RunFacts) -> dict[str, str]:
    """Returns what the splits of an evaluation are, from the facts of its run."""
    materials = f"materials {unseen(run)}"
    return {
        "images": "held-out patterns of specimens that were trained on, which leak",
        "dev": materials,
        "test": materials,
    }


class HeldOutRow(TypedDict):
    """A held-out sample in an `evaluation.json`."""

    id: str  # identifier of the sample in its dataset
    material: str  # name of the material
    formula: str  # chemical formula
    # "dev" or "test", from the manifest, or "images" for held-out positions of a training sample
    split: str


class HeldOutPatterns(HeldOutRow):
    """The held-out patterns of a sample."""

    space_group: str  # Hermann–Mauguin symbol
    patterns: int  # number of patterns


def held_out_row(entry: Entry) -> HeldOutRow:
    """Returns what is known of a held-out sample."""
    split = "images" if entry.split == "train" else entry.split
    return {"id": entry.id, "material": entry.material, "formula": entry.formula, "split": split}


def by_split(rows: Iterable[T]) -> dict[Split, list[T]]:
    """Returns the rows of each split that has some, in the order of `SPLITS`. A row has the key
    "split".
    """
    rows_of_split: dict[Split, list[T]] = {split: [] for split in SPLITS}
    for row in rows:
        rows_of_split[row["split"]].append(row)  # type: ignore[index]
    return {split: members for split, members in rows_of_split.items() if members}


def last(scores: Mapping[Split, T]) -> tuple[Split, T]:
    """Returns the split that a report is about, "test" if it has samples, and what it scores."""
    split = [split for split in SPLITS if split in scores][-1]
    return split, scores[split]


def dev(evaluation: Evaluation, key: str) -> float | None:
    """Returns a score of the dev split in an `evaluation.json`; `None` without samples."""
    row = evaluation["by_split"].get("dev")
    return row and row[key]
