"""Reading of JSON that people and other programs may have changed: every fault is one InputError.

The size of a file, the depth of its values and its numbers are bounded, so that no file can exhaust
the memory, overflow the stack of what handles its values later, or bring an infinite number into a
calculation.

Values of known types are read as typed objects; the message of a fault names the file, the place,
the value and the remedy.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from namsa.base.errors import InputError
from namsa.base.files import read_text
from namsa.base.names import ALPHABET, is_name
from namsa.base.problem_words import words_of
from namsa.base.text import shorten

LARGEST_FILE_BYTES = 2**28
DEEPEST = 64  # levels of objects and lists
LARGEST_INTEGER = 2**64  # beyond it, numbers of NumPy and of record headers overflow


def read_json(path: Path, *, largest_bytes: int = LARGEST_FILE_BYTES) -> object:
    """Returns the value in a JSON file. Raises InputError if it is none that `parse_json`
    accepts.
    """
    return parse_json(read_text(path, largest_bytes=largest_bytes), str(path))


def read_json_lines(
    path: Path, *, largest_bytes: int = LARGEST_FILE_BYTES, skip_damaged: bool = False
) -> Iterator[tuple[int, object]]:
    """Yields the number and the value of each line of a JSON lines file that is not empty. The
    first line is line 1.

    Args:
        skip_damaged: Leave out lines that are not JSON, as the one that a crash cut off, perhaps
            within a character.

    Raises:
        InputError: If the file cannot be read or is too large, or, unless `skip_damaged`, a line is
            not JSON.
    """
    text = read_text(
        path, largest_bytes=largest_bytes, errors="replace" if skip_damaged else "strict"
    )
    for line_number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                value = parse_json(line, f"{path}, line {line_number}")
            except InputError:
                if not skip_damaged:
                    raise
            else:
                yield line_number, value


def parse_json(text: str, source: str) -> object:
    """Returns the value of a JSON text.

    Raises:
        InputError: If the text is not JSON, is nested more than 64 levels deep, or holds a number
            that is not finite or an integer beyond 64 bits, or text that is not Unicode.
    """
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite, parse_int=_bounded)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InputError(
            f"{source} is not JSON: {error.msg} at {place}: {shorten(text[error.pos :], 40)}"
        ) from None
    except RecursionError:
        raise InputError(f"{source}: values are nested more than {DEEPEST} levels deep") from None
    except ValueError as error:  # from the three functions below
        raise InputError(f"{source}: {error}") from None
    if text.count("[") + text.count("{") > DEEPEST and _depth(value) > DEEPEST:
        raise InputError(f"{source}: values are nested more than {DEEPEST} levels deep")
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            surrogate = error.object[error.start]
            raise InputError(f"{source} holds {shorten(surrogate)}, half of a character") from None
    return value


def _depth(value: object) -> int:
    """Levels of objects and lists, counted without recursion, and no further than the limit."""
    level = [value]
    depth = 0
    while depth <= DEEPEST:
        containers = [child for child in level if isinstance(child, dict | list)]
        if not containers:
            break
        level = [
            item
            for child in containers
            for item in (child.values() if isinstance(child, dict) else child)
        ]
        depth += 1
    return depth


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a finite number")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{shorten(text)} is not a finite number")
    return value


def _bounded(text: str) -> int:
    # Compared by length first: the conversion of many digits takes quadratic time, or fails.
    if len(text) > 21 or abs(int(text)) >= LARGEST_INTEGER:
        raise ValueError(f"integer {shorten(text)} has more than 64 bits")
    return int(text)


T = TypeVar("T")


def _check_name(text: str) -> str:
    if not is_name(text):
        raise ValueError(f"a name has {ALPHABET}")
    return text


Name = Annotated[str, AfterValidator(_check_name)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Positive = Annotated[float, Field(gt=0, lt=1e9, allow_inf_nan=False)]


def read_typed(kind: type[T], path: Path, remedy: str) -> T:
    """Returns the value of type `kind` in a JSON file, unconverted. Raises InputError if it holds
    something else.
    """
    try:
        value = read_json(path)
    except InputError as error:
        raise InputError(f"{error}: {remedy}") from None
    return parse_typed(kind, json.dumps(value), str(path), remedy)


def read_typed_lines(kind: type[T], path: Path, remedy: str) -> Iterator[T]:
    """Yields the values of a JSON lines file without the lines that a crash cut off; arguments as
    `read_typed`.

    Raises:
        InputError: If the file cannot be read, or a line holds something else.
    """
    try:
        lines = list(read_json_lines(path, skip_damaged=True))
    except InputError as error:
        raise InputError(f"{error}: {remedy}") from None
    for line_number, value in lines:
        yield parse_typed(kind, json.dumps(value), f"{path}, line {line_number}", remedy)


def parse_typed(kind: type[T], text: str, source: str, remedy: str) -> T:
    """Returns the value of a JSON text from a `source`, as `read_typed`. Raises InputError for
    another.
    """
    try:
        return _adapter(kind).validate_json(text, strict=True)  # type: ignore[arg-type]
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
        place = " ".join(shorten(key, 40) for key in details["loc"]) or "the value"
        problem = words_of(details)
        raise InputError(
            f"{source}: {place} is {shorten(repr(details['input']))}: {problem}: {remedy}"
        ) from None


@cache
def _adapter(kind: type[T]) -> TypeAdapter[T]:
    return TypeAdapter(kind)
