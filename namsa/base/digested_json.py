"""JSON objects with a digest of their own values, so that a bit that flips is an error.

The digest stands under the key "digest"; whoever changes a number by hand removes it. Files of
earlier versions have none, and are read unchecked.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from namsa.base.errors import InputError
from namsa.base.identity import digest_of
from namsa.base.json_files import parse_typed, read_typed

DIGEST = "digest"
T = TypeVar("T")


def with_digest(values: Mapping[str, object]) -> dict[str, object]:
    """Returns the values of a JSON object, and the digest of all of them."""
    undigested = {key: value for key, value in values.items() if key != DIGEST}
    return {**undigested, DIGEST: digest_of(undigested)}


def has_digest(value: object) -> bool:
    """Returns whether a JSON value is an object with a digest."""
    return isinstance(value, dict) and DIGEST in value


def check_digest(values: Mapping[str, object], source: str, remedy: str) -> None:
    """Compares the values of a JSON object with their digest, if they have one.

    Args:
        values: The object, as it was parsed.
        source: Where it is from, for the message.
        remedy: What the user can do, for the message.

    Raises:
        InputError: If they are not those that were written.
    """
    if DIGEST in values and with_digest(values)[DIGEST] != values[DIGEST]:
        raise InputError(
            f'{source} is not as it was written: {remedy}; or remove its "{DIGEST}" if it was '
            "changed on purpose"
        )


def read_digested(kind: type[T], path: Path, remedy: str) -> T:
    """Returns the value of type `kind` in a JSON file without its digest, as
    `namsa.base.json_files.read_typed` does.

    Raises:
        InputError: If the file holds something else, or is not as it was written.
    """
    values = read_typed(dict[str, object], path, remedy)
    value = parse_typed(kind, json.dumps(values), str(path), remedy)
    check_digest(values, str(path), remedy)
    return value
