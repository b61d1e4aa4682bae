"""Results of every task that are written to and read from a run directory or a model folder."""

import json
from pathlib import Path

from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from namsa.base.files import write_text_atomic
from namsa.base.json_files import parse_typed

from ..measure.results import Evaluation, RunFacts
from ..program import PROGRAM

EVALUATE_AGAIN = f"run {PROGRAM} evaluate again"


class WeightsFile(TypedDict):
    """Facts about the weights file of a packed model."""

    dtype: str  # type in which kernels are stored
    bytes: int  # size of the file
    sha256: str  # SHA-256 of the file
    digest: str  # digest of the arrays, which reconstructions record


def write_json(path: Path, value: object) -> None:
    """Writes `value` as JSON; replaces a file that exists.

    Raises:
        ValueError: If `value` holds a number that JSON has no notation for, such as NaN.
        WorkError: If the file cannot be written.
    """
    write_text_atomic(path, json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False))


def check_facts(path: Path, evaluation: Evaluation) -> RunFacts:
    """Returns the facts of a run. Raises InputError if one is missing or has another type."""
    run: RunFacts = evaluation["run"]
    parse_typed(RunFacts, json.dumps(run), f"{path}: run", EVALUATE_AGAIN)
    return run
