"""Values of a dataset's JSON files as typed objects.

The files lie beside the shards, where people and other programs may change them. Every fault is one InputError that
names the file, the place, the value and the remedy.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from namsa.errors import InputError
from namsa.json_files import read_json, read_json_lines
from namsa.names import ALPHABET, is_name
from namsa.text import shorten

T = TypeVar("T")


def _check_name(text: str) -> str:
    if not is_name(text):
        raise ValueError(f"a name has {ALPHABET}")
    return text


Name = Annotated[str, AfterValidator(_check_name)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Positive = Annotated[float, Field(gt=0, lt=1e9, allow_inf_nan=False)]


def read_typed(kind: type[T], path: Path, remedy: str) -> T:
    """Returns the value in a JSON file.

    Args:
        kind: The value's type. Nothing is converted to it.
        remedy: What to do if the file cannot be used, for the message.

    Raises:
        InputError: If the file cannot be read, or holds something else.
    """
    try:
        value = read_json(path)
    except InputError as error:
        raise InputError(f"{error}: {remedy}") from None
    return parse_typed(kind, json.dumps(value), str(path), remedy)


def read_typed_lines(kind: type[T], path: Path, remedy: str) -> Iterator[T]:
    """Yields the values of a JSON lines file without the lines that a crash cut off; arguments as `read_typed`.

    Raises:
        InputError: If the file cannot be read, or a line holds something else.
    """
    try:
        lines = list(read_json_lines(path, skip_damaged=True))
    except InputError as error:
        raise InputError(f"{error}: {remedy}") from None
    for number, value in lines:
        yield parse_typed(kind, json.dumps(value), f"{path}, line {number}", remedy)


def parse_typed(kind: type[T], text: str, source: str, remedy: str) -> T:
    """Returns the value of a JSON text; `source` says where it comes from, other arguments as `read_typed`.

    Raises:
        InputError: If it holds something else.
    """
    try:
        return _adapter(kind).validate_json(text, strict=True)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = " ".join(shorten(part, 40) for part in first["loc"]) or "the value"
        problem = first["msg"].removeprefix("Value error, ")
        raise InputError(f"{source}: {place} is {shorten(repr(first['input']))}: {problem}: {remedy}") from None


@cache
def _adapter(kind: type[T]) -> TypeAdapter[T]:
    return TypeAdapter(kind)
