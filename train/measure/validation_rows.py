"""validation.jsonl: scores of the dev split while a network is trained, one row per validation.

A row has step, epoch (whole epochs trained), samples, and the numbers of the task. A number that is not defined is
null.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from namsa.errors import InputError
from namsa.files import read_text
from namsa.json_files import parse_json
from namsa.text import shorten

from .results import LARGEST_METRICS_BYTES

FILE_NAME = "validation.jsonl"
PLACE = ("step", "epoch", "samples")  # of a row; the others are numbers of the task

ValidationRow = Mapping[str, Any]


def append(run_dir: Path, row: ValidationRow) -> None:
    """Writes a row to the disk, so that no checkpoint exists before the rows up to its step."""
    with (run_dir / FILE_NAME).open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, allow_nan=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of a validation.jsonl. A killed job may have left an incomplete last line, which is ignored.

    Raises:
        InputError: If the file cannot be read, or any other line is no row.
    """
    lines = read_text(path, largest_bytes=LARGEST_METRICS_BYTES, errors="replace").splitlines()
    rows = []
    for index, line in enumerate(lines, start=1):
        row = _row(line)
        if row is not None:
            rows.append(row)
        elif index < len(lines):
            raise InputError(f"{path}: line {index} is no validation: {shorten(line, 60)}")
    return rows


def _row(line: str) -> dict[str, Any] | None:
    try:
        row = parse_json(line, "the line")
    except InputError:
        return None
    if not isinstance(row, dict) or not all(type(row.get(name)) is int for name in PLACE):
        return None
    numbers = all(value is None or isinstance(value, int | float) for value in row.values())
    return row if numbers else None
