"""One line for each value of a section that is not allowed, in place of pydantic's message."""

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic._internal._model_construction import ModelMetaclass
from pydantic_core import ErrorDetails

_WORDS: Mapping[str, str] = {
    "missing": "a value is needed",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be True or False",
    "bool_parsing": "must be True or False",
    "literal_error": "must be {expected}",
    "tuple_type": "must be a list",
    "too_long": "must have {max_length} or fewer values, and has {actual_length}",
}
_VALUE_ERROR = "Value error, "  # pydantic's prefix of a message that a validator gives
_LONGEST_VALUE = 60  # characters of a value that a message shows


class SectionType(ModelMetaclass):
    """The type of a section whose direct call raises ValueError with one line.

    `model_validate` raises pydantic's ValidationError, which has the place of each problem in a
    tree.
    """

    def __call__(cls, *args: object, **values: object) -> Any:
        try:
            return super().__call__(*args, **values)
        except ValidationError as error:
            raise ValueError(f"{cls.__name__}: {_message(cls, error)}") from None


def _message(section: Any, error: ValidationError) -> str:
    """Returns all problems in one line: place, limit, value, and what the key means."""
    return "; ".join(_problem(section, problem) for problem in error.errors(include_url=False))


def _problem(section: type[BaseModel], problem: ErrorDetails) -> str:
    place = ".".join(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        return f"unknown key {place}; {_suggestion(place, section)}"
    words = _WORDS.get(problem["type"])
    if words is None:
        text = problem["msg"].removeprefix(_VALUE_ERROR).replace("Input should be", "must be")
    else:
        text = words.format(**problem.get("ctx", {}))
    if not place:
        return str(text)
    if problem["type"] != "missing":
        text += f" (given {_shortened(problem['input'])})"
    key = str(problem["loc"][0])
    return f"{place}: {text}; {key} is: {section.model_fields[key].description}"


def _suggestion(key: str, section: type[BaseModel]) -> str:
    nearest = difflib.get_close_matches(key, section.model_fields, n=1)
    if nearest:
        return f"did you mean {nearest[0]}?"
    return f"known are {', '.join(section.model_fields)}"


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
