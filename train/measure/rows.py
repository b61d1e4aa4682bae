"""Files of one JSON object per line that a job adds to while it trains; in a row, what is not
defined is null.

validation.jsonl: scores of the dev split, a row per validation
    step, epoch, samples    the last step, whole epochs trained, and samples scored;
                            then the numbers of the task
transfer.jsonl: what sharded weights were sent in, a row per epoch
    step, epoch     the last step of the epoch, and its index, from 0
    steps           steps of the epoch whose change of norm is known
    norm_rate       mean relative change of the norm of a layer's weights in a step, over
                    layers and steps
    sent_bytes      bytes of gradients and weights that all ranks together send in a step,
                    with the bits of the row
    bits            bits of a weight of each layer after the epoch, by the path of its variable
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from namsa.base.errors import InputError
from namsa.base.files import append_line, read_text
from namsa.base.json_files import parse_json
from namsa.base.text import shorten

from .results import LARGEST_METRICS_BYTES

VALIDATIONS = "validation.jsonl"
TRANSFERS = "transfer.jsonl"
PLACE = ("step", "epoch", "samples")  # of a validation; the others are numbers of the task

Row = Mapping[str, Any]
T = TypeVar("T")


def append(path: Path, row: Row) -> None:
    """Writes a row to the disk, so that no checkpoint exists before the rows up to its step."""
    append_line(path, json.dumps(row, allow_nan=False))


def parsed(path: Path, convert: Callable[[Row], T | None], kind: str) -> list[T]:
    """Returns what `convert` makes of each row of a file; `None` is for what is no row.

    A killed job may have left an incomplete last line, which is ignored.

    Raises:
        InputError: If the file cannot be read, or any other line is no row of this kind.
    """
    lines = read_text(path, largest_bytes=LARGEST_METRICS_BYTES, errors="replace").splitlines()
    kept_rows = []
    for line_number, line in enumerate(lines, start=1):
        try:
            row = parse_json(line, "the line")
        except InputError:
            row = None
        converted = convert(row) if isinstance(row, dict) else None
        if converted is not None:
            kept_rows.append(converted)
        elif line_number < len(lines):
            raise InputError(f"{path}: line {line_number} is no {kind}: {shorten(line, 60)}")
    return kept_rows


def read(path: Path) -> list[Row]:
    """Returns the rows of validation.jsonl or transfer.jsonl; see `parsed`."""
    if path.name == VALIDATIONS:
        return parsed(path, lambda row: row if _is_validation(row) else None, "validation")
    return parsed(path, lambda row: row if _is_transfer(row) else None, "row of transfers")


def _is_validation(row: Row) -> bool:
    numbers = all(value is None or isinstance(value, int | float) for value in row.values())
    return numbers and all(type(row.get(name)) is int for name in PLACE)


def _is_transfer(row: Row) -> bool:
    counts = all(type(row.get(name)) is int for name in ("step", "epoch", "steps"))
    return counts and isinstance(row.get("norm_rate"), float | int | None)
