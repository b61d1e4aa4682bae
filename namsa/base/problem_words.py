"""Plain words for what a value must be, in place of pydantic's."""

from collections.abc import Mapping

from pydantic_core import ErrorDetails

WORDS: Mapping[str, str] = {
    "missing": "a value is needed",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be finite",
    "multiple_of": "must be a multiple of {multiple_of}",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a whole number of at most 4,300 digits",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be text",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must have the form {pattern}",
    "literal_error": "must be {expected}",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "too_short": "must have {min_length} or more values, and has {actual_length}",
    "too_long": "must have {max_length} or fewer values, and has {actual_length}",
    "dict_type": "must be a section, as {{key: value}}",
    "model_type": "must be a section, as {{key: value}}",
    "model_attributes_type": "must be a section, as {{key: value}}",
    "mapping_type": "must be a section, as {{key: value}}",
    "none_required": "must be null",
    "union_tag_invalid": "{discriminator} must be one of {expected_tags} (given '{tag}')",
    "union_tag_not_found": "{discriminator} is needed",
    "extra_forbidden": "is no key that is known",
}
_VALUE_ERROR = "Value error, "  # pydantic's prefix of a message that a validator gives


def words_of(problem: ErrorDetails) -> str:
    """Returns what a value must be, or what a validator says of it.

    Args:
        problem: One of `ValidationError.errors()`.
    """
    words = WORDS.get(problem["type"])
    if words is None:
        return str(problem["msg"]).removeprefix(_VALUE_ERROR).replace("Input should be", "must be")
    limits = {}
    for name, limit in problem.get("ctx", {}).items():
        limits[name] = _number(limit) if isinstance(limit, float) else limit
    return words.format(**limits)


def _number(limit: float) -> str:
    """Returns a number as people write it: without an exponent unless it is long."""
    if not 1e-6 <= abs(limit) < 1e7:
        return f"{limit:g}"
    return f"{limit:.10f}".rstrip("0").rstrip(".")
