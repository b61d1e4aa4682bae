"""Messages of what is wrong with a configuration: the place, the value, the remedy."""

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from namsa.base.problem_words import words_of
from namsa.base.text import energy_in_kev, shorten
from namsa.config.suggestions import sections_of, suggestion

MOST_PROBLEMS = 10  # that one message names
LONGEST_MESSAGE = 1100  # characters; further problems are counted only


def validation_message(model: type[BaseModel], error: ValidationError) -> str:
    """Returns the first problems that pydantic found, and the number of the others."""
    messages: list[str] = []
    length = 0
    for problem in error.errors(include_url=False)[:MOST_PROBLEMS]:
        message = _one_problem(model, problem)
        length += len(message)
        if messages and length > LONGEST_MESSAGE:
            break
        messages.append(message)
    others = error.error_count() - len(messages)
    if others:
        messages.append(f"and {others} more")
    return "; ".join(messages)


def _one_problem(model: type[BaseModel], problem: ErrorDetails) -> str:
    """Returns one problem that pydantic found, with the value and the meaning of its key."""
    section, location = _section_at(model, [shorten(name, 60) for name in problem["loc"]])
    given = problem["input"]
    if problem["type"] == "extra_forbidden":
        return _unknown_key_message(section, location, given, model)
    place = ".".join(location) or "configuration"
    message = shorten(words_of(problem), 400)
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


def _section_at(model: type[BaseModel], location: list[str]) -> tuple[type[BaseModel], list[str]]:
    """Returns the class of the section that has the last key of a location, and the location
    without kinds of sections.
    """
    kinds: dict[str, type[BaseModel]] = {}  # the classes that the last section may be, by kind
    section = model
    keys = []
    for name in location:
        field = model.model_fields.get(name)
        if field is None and name in kinds:
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
