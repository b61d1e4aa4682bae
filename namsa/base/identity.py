"""The identity of what can be continued: a digest of all that made it, compared before it goes on.

A run, a stage, a dataset, an export, a calibration or a live reconstruction that is continued was
made of something: keys of a configuration, files, versions. What made it is a mapping of JSON
values, in which files stand by the digest of their contents and never by their path, size or time.
It is written beside the result, and compared before anything is added.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import xxhash

from namsa.base.errors import DifferentError
from namsa.base.text import shorten

ABSENT = "(none)"  # in messages, for a key that one side lacks
_CHUNK_BYTES = 2**20
_LONGEST_VALUE = 80  # characters of a value in a message


@dataclass(frozen=True)
class Difference:
    """One value that was another when the thing that is continued was made.

    Attributes:
        key: The key, dotted, as "training.inputs.normalisation".
        before: The value then, or `ABSENT`.
        now: The value now, or `ABSENT`.
    """

    key: str
    before: object
    now: object

    def __str__(self) -> str:
        return f"{self.key}: was {_shown(self.before)}, is {_shown(self.now)}"


def digest_of(value: object) -> str:
    """Returns the digest of a JSON value; the order of keys does not matter."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return xxhash.xxh3_128_hexdigest(text.encode())


def digest_of_file(path: str | Path) -> str:
    """Returns the digest of a file's contents. Raises OSError if it cannot be read."""
    state = xxhash.xxh3_128()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            state.update(chunk)
    return state.hexdigest()


def compare(before: Mapping[str, object], now: Mapping[str, object]) -> list[Difference]:
    """Returns the differences of two nested mappings, in the order of `now`, then of `before`.

    Lists are values: they are equal or they are not.
    """
    old = dict(_flat(before))
    new = dict(_flat(now))
    differences = []
    for key, value in new.items():
        if key not in old:
            differences.append(Difference(key, ABSENT, value))
        elif old[key] != value:
            differences.append(Difference(key, old[key], value))
    for key, value in old.items():
        if key not in new:
            differences.append(Difference(key, value, ABSENT))
    return differences


def check_same(
    thing: str,
    before: Mapping[str, object],
    now: Mapping[str, object],
    *,
    changes_nothing: Callable[[str], bool],
    remedy: str,
) -> list[Difference]:
    """Compares what made a thing with what would continue it.

    Args:
        thing: The thing for the message, as "the run in runs/quickstart".
        before: What made it.
        now: What would continue it.
        changes_nothing: Whether a key, dotted, may change without changing what is continued.
        remedy: What the user can do, the end of the message.

    Returns:
        The differences that change nothing, for the caller to report.

    Raises:
        DifferentError: If anything else differs. The message has a line for each difference.
    """
    harmless = []
    harmful = []
    for difference in compare(before, now):
        if changes_nothing(difference.key):
            harmless.append(difference)
        else:
            harmful.append(difference)
    if harmful:
        raise refusal(thing, harmful, remedy)
    return harmless


def refusal(thing: str, differences: Sequence[Difference], remedy: str) -> DifferentError:
    """Returns the error that differences refuse what would continue a thing. See `check_same`."""
    lines = "".join(f"\n  {difference}" for difference in differences)
    return DifferentError(f"{thing} was made differently:{lines}\n{remedy}")


def _flat(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yields the values of nested mappings by dotted keys."""
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{key}.")
        else:
            yield key, value


def _shown(value: object) -> str:
    if value == ABSENT:
        return ABSENT
    return shorten(json.dumps(value, ensure_ascii=False, default=str), _LONGEST_VALUE)
