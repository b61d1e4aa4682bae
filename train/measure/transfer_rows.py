"""transfer.jsonl: what sharded weights were sent in, one row per epoch.

step, epoch     the last step of the epoch, and its index, from 0
steps           steps of the epoch whose change of norm is known
norm_rate       mean relative change of the norm of a layer's weights in a step, over layers and steps
sent_bytes      bytes of gradients and weights that all ranks together send in a step, with the bits of the row
bits            bits of a weight of each layer after the epoch, by the path of its variable
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

FILE_NAME = "transfer.jsonl"


def append(run_dir: Path, row: Mapping[str, Any]) -> None:
    """Writes a row to the disk, so that no checkpoint exists before the rows up to its step."""
    with (run_dir / FILE_NAME).open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, allow_nan=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of a transfer.jsonl. Raises InputError if the file cannot be read, or a line is no row."""
    lines = read_text(path, largest_bytes=LARGEST_METRICS_BYTES).splitlines()
    rows = [parse_json(line, f"line {number} of {path}") for number, line in enumerate(lines, start=1)]
    for number, row in enumerate(rows, start=1):
        counts = isinstance(row, dict) and all(type(row.get(name)) is int for name in ("step", "epoch", "steps"))
        if not counts or not isinstance(row.get("norm_rate"), float | int | None):
            raise InputError(f"{path}: line {number} is no row of transfers: {shorten(lines[number - 1], 60)}")
    return rows
