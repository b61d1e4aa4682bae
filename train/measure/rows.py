"""Files of one JSON object per line that a job adds to while it trains; in a row, what is not defined is null.

validation.jsonl: scores of the dev split, a row per validation
    step, epoch, samples    the last step, whole epochs trained, and samples scored; then the numbers of the task
transfer.jsonl: what sharded weights were sent in, a row per epoch
    step, epoch     the last step of the epoch, and its index, from 0
    steps           steps of the epoch whose change of norm is known
    norm_rate       mean relative change of the norm of a layer's weights in a step, over layers and steps
    sent_bytes      bytes of gradients and weights that all ranks together send in a step, with the bits of the row
    bits            bits of a weight of each layer after the epoch, by the path of its variable
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from namsa.errors import InputError
from namsa.files import read_text
from namsa.json_files import parse_json
from namsa.text import shorten

from .results import LARGEST_METRICS_BYTES

VALIDATIONS, TRANSFERS = "validation.jsonl", "transfer.jsonl"
PLACE = ("step", "epoch", "samples")  # of a validation; the others are numbers of the task

Row = Mapping[str, Any]
T = TypeVar("T")


def append(path: Path, row: Row) -> None:
    """Writes a row to the disk, so that no checkpoint exists before the rows up to its step."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, allow_nan=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


def parsed(path: Path, convert: Callable[[dict[str, Any]], T | None], kind: str) -> list[T]:
    """Returns what `convert` makes of each row of a file; `None` is for what is no row.

    A killed job may have left an incomplete last line, which is ignored.

    Raises:
        InputError: If the file cannot be read, or any other line is no row of this kind.
    """
    lines = read_text(path, largest_bytes=LARGEST_METRICS_BYTES, errors="replace").splitlines()
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            row = parse_json(line, "the line")
        except InputError:
            row = None
        converted = convert(row) if isinstance(row, dict) else None
        if converted is not None:
            found.append(converted)
        elif number < len(lines):
            raise InputError(f"{path}: line {number} is no {kind}: {shorten(line, 60)}")
    return found


def read(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of validation.jsonl or transfer.jsonl; see `parsed`."""
    kind, is_row = ("validation", _is_validation) if path.name == VALIDATIONS else ("row of transfers", _is_transfer)
    return parsed(path, lambda row: row if is_row(row) else None, kind)


def _is_validation(row: Row) -> bool:
    numbers = all(value is None or isinstance(value, int | float) for value in row.values())
    return numbers and all(type(row.get(name)) is int for name in PLACE)


def _is_transfer(row: Row) -> bool:
    counts = all(type(row.get(name)) is int for name in ("step", "epoch", "steps"))
    return counts and isinstance(row.get("norm_rate"), float | int | None)
