"""Messages of what is wrong with a configuration: the place, the value, the remedy."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from namsa.base.problem_words import words_of
from namsa.base.text import energy_in_kev, shorten
from namsa.config.suggestions import sections_of, suggestion

MOST_PROBLEMS = 10  # that one message names
LONGEST_MESSAGE = 1100  # characters; further problems are counted only
# How pydantic names, in a place, one of the types that a value may have.
_TYPE = re.compile(r"constrained-\w+|(literal|dict|list|tuple)\[.*\]|float|int|str|bool|\[key\]")


def validation_message(model: type[BaseModel], error: ValidationError) -> str:
    """Returns the first problems that pydantic found, and the number of the others."""
    messages: list[str] = []
    length = 0
    problems = _told_once(error.errors(include_url=False))
    for problem in problems[:MOST_PROBLEMS]:
        message = _one_problem(model, problem)
        length += len(message)
        if messages and length > LONGEST_MESSAGE:
            break
        messages.append(message)
    others = len(problems) - len(messages)
    if others:
        messages.append(f"and {others} more")
    return "; ".join(messages)


class _Problem(NamedTuple):
    """What is wrong at one place.

    Attributes:
        place: Keys and indices that lead there.
        found: What pydantic found; several where the value may be of several types.
    """

    place: tuple[int | str, ...]
    found: list[ErrorDetails]


def _told_once(found: Sequence[ErrorDetails]) -> list[_Problem]:
    """Returns what pydantic found, by place.

    Of a value that may be of several types, pydantic has a problem for each, and the place ends in
    the type. Such problems, and that of a list that is too short, are left out where a value inside
    has a problem of its own.
    """
    problems: dict[tuple[int | str, ...], _Problem] = {}
    for one in found:
        place = tuple(name for name in one["loc"] if not _TYPE.fullmatch(str(name)))
        problems.setdefault(place, _Problem(place, [])).found.append(one)
    kept = []
    for place, problem in problems.items():
        first = problem.found[0]
        follows = first["type"] == "too_short" or first["loc"] != place
        if not (follows and _has_inside(problems, place)):
            kept.append(problem)
    return kept


def _has_inside(places: Iterable[tuple[int | str, ...]], place: tuple[int | str, ...]) -> bool:
    """Returns whether one of the places is inside of another place."""
    return any(len(other) > len(place) and other[: len(place)] == place for other in places)


def _one_problem(model: type[BaseModel], problem_at: _Problem) -> str:
    """Returns one problem that pydantic found, with the value and the meaning of its key."""
    problem = problem_at.found[0]
    names = [shorten(name, 60) for name in problem_at.place]
    is_unknown = problem["type"] == "extra_forbidden"
    section, location = _section_at(model, names, ends_in_key=is_unknown)
    given = problem["input"]
    if is_unknown:
        return _unknown_key_message(section, location, given, model)
    place = ".".join(location) or "configuration"
    words = [words_of(one) for one in problem_at.found]
    message = shorten(" or ".join(dict.fromkeys(words)).replace(" or must be ", " or "), 400)
    if not isinstance(given, dict):
        message += f" (given {_quoted(given)})"
    if location and location[-1] == "energy_ev":
        message += energy_in_kev(given)
    if location:
        field = section.model_fields.get(location[-1])
        if field and field.description:
            message += f"; {location[-1]} is: {field.description}"
    return f"{place}: {message}"


def _quoted(value: object) -> str:
    """A value, shortened, with quotes about text."""
    if isinstance(value, str):
        return f"'{shorten(value)}'"
    return shorten(value)


def _unknown_key_message(
    section: type[BaseModel], location: list[str], value: object, root: type[BaseModel]
) -> str:
    """Returns what to write in place of a key that a section does not have.

    Args:
        location: The key, and the sections that it is in.
        value: What was given for it.
        root: The whole configuration.
    """
    moved = getattr(section, "moved_keys", {})
    key = location[-1]
    place = ".".join(location)
    if key in moved:
        inside = value if isinstance(value, dict) else {}
        remedies = [moved[f"{key}.{name}"] for name in inside if f"{key}.{name}" in moved]
        return f"{place} has moved: {'; '.join(remedies) or moved[key]}"
    for word, hint in getattr(section, "key_hints", {}).items():
        if word in key.lower():
            return f"unknown key {place}; {hint}"
    return f"unknown key {place}; {suggestion(key, section, location[:-1], root)}"


def _section_at(
    model: type[BaseModel], location: list[str], *, ends_in_key: bool = False
) -> tuple[type[BaseModel], list[str]]:
    """Returns the class of the section that has the last key of a location, and the location
    without kinds of sections.

    Args:
        ends_in_key: Whether the last name is a key even where a kind has that name.
    """
    kinds: dict[str, type[BaseModel]] = {}  # the classes that the last section may be, by kind
    section = model
    keys = []
    for index, name in enumerate(location):
        field = model.model_fields.get(name)
        may_be_kind = not (ends_in_key and index == len(location) - 1)
        if field is None and may_be_kind and name in kinds:
            model = kinds[name]
            kinds = {}
            continue
        section = model
        keys.append(name)
        if field is None:  # an index
            continue
        sections = sections_of(field.annotation)
        kinds = {}
        for candidate in sections:
            if "kind" in candidate.model_fields:
                kinds[str(candidate.model_fields["kind"].default)] = candidate
        if sections:
            kinds |= getattr(sections[0], "variants", {})
            model = sections[0]
    return section, keys
