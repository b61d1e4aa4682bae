"""Reading of configurations: safe YAML, `--set` overrides, one frozen tree, errors that name the nearest known key."""

import difflib
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from namsa.config.yaml_text import parse_yaml
from namsa.errors import InputError
from namsa.files import read_text
from namsa.text import shorten

LARGEST_FILE_BYTES = 2**20
MOST_FAULTS = 10  # that one message names
LONGEST_MESSAGE = 1100  # characters; further faults are counted only
DEEPEST_KEY = 16  # sections in the key of an override


class Section(BaseModel):
    """Base class of the sections of a configuration. Sections are frozen and refuse unknown keys."""

    # For words that users may expect in the section's keys, what to write instead.
    key_hints: ClassVar[dict[str, str]] = {}
    # For former keys, and for the keys that they had as sections, what to write instead.
    moved_keys: ClassVar[dict[str, str]] = {}
    variants: ClassVar[dict[str, Any]] = {}  # the sections that may stand in for this one, by their key `kind`
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)


Model = TypeVar("Model", bound=BaseModel)


def read_yaml(path: Path | str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Reads a mapping from a YAML file and applies overrides; returns the mapping, not yet validated.

    A file may have `stages`: settings of the second stage, of the third and so on, each by keys `section.key`. A stage
    keeps what those before it have set. The key `stage` chooses one; without it, it is the first: the file's own
    settings.

    Args:
        overrides: Settings as `section.key=value`, whose values are YAML too. They go before those of a stage.

    Raises:
        InputError: If the file cannot be read or holds no mapping, an override is malformed, or there is no such stage.
    """
    tree = parse_yaml(read_text(Path(path), largest_bytes=LARGEST_FILE_BYTES, kind="the configuration"), str(path))
    if not isinstance(tree, dict):
        held = "nothing" if tree is None else shorten(tree)
        raise InputError(f"{path} must hold named sections, and holds {held}")
    given = [_override(override) for override in overrides]
    chosen = {"stage": tree.pop("stage", 1)} | {key: value for key, value, _ in given if key == "stage"}
    of_stages = [(str(key), value, f"{path}: {key}") for key, value in _stage_settings(tree, chosen["stage"], path)]
    for key, value, name in [*of_stages, *(each for each in given if each[0] != "stage")]:
        _set_value(tree, key, value, name)
    return tree


def _stage_settings(tree: dict[str, Any], stage: Any, path: Path | str) -> list[tuple[Any, Any]]:
    """Returns keys and values of a stage of a configuration and of those before it, the file's own left out."""
    stages = tree.get("stages") or []
    if not isinstance(stages, list) or not all(isinstance(each, dict) for each in stages):
        raise InputError(f"{path}: stages must be a list, for each stage a mapping of section.key to a value")
    if isinstance(stage, bool) or not isinstance(stage, int) or not 1 <= stage <= 1 + len(stages):
        raise InputError(f"{path}: stage is {shorten(stage)}, and it has stages 1 to {1 + len(stages)}")
    return [setting for each in stages[: stage - 1] for setting in each.items()]


def _override(override: str) -> tuple[str, Any, str]:
    """Returns the key and the value of an override, and how a message names it."""
    path, equals, text = override.partition("=")
    name = f"--set {shorten(override)}"
    if not equals:
        raise InputError(f"{name}: write it as --set section.key=value")
    try:
        return path.strip(), parse_yaml(text, "the value"), name
    except InputError as error:
        raise InputError(f"{name}: {shorten(text)!r} is not a YAML value: {error}") from None


def _set_value(tree: dict[str, Any], path: str, value: Any, name: str) -> None:
    """Sets the value of a key in a tree, and makes the sections that are missing.

    Args:
        name: How a message names the setting.
    """
    keys, node = path.split("."), tree
    if not all(keys) or len(keys) > DEEPEST_KEY:
        raise InputError(f"{name}: write it as --set section.key=value")
    for depth, key in enumerate(keys[:-1]):
        node = node.setdefault(key, {})
        if not isinstance(node, dict):
            raise InputError(f"{name}: {'.'.join(keys[: depth + 1])} is a value, not a section")
    node[keys[-1]] = value


def validate(model: type[Model], tree: dict[str, Any], source: str) -> Model:
    """Validates a mapping as a configuration.

    Args:
        model: The section that the whole mapping must be.
        source: Where the mapping comes from, for the error message.

    Raises:
        InputError: If the mapping has faults. It names the first ten of them, with the nearest known key for each
            unknown one.
    """
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise InputError(f"{source}: {_faults_message(model, error)}") from None


def _faults_message(model: type[BaseModel], error: ValidationError) -> str:
    """The first faults that pydantic found, and the number of the others."""
    faults: list[str] = []
    for fault in error.errors(include_url=False)[:MOST_FAULTS]:
        message = _fault_message(model, fault)
        if faults and sum(map(len, [*faults, message])) > LONGEST_MESSAGE:
            break
        faults.append(message)
    others = error.error_count() - len(faults)
    return "; ".join(faults) + (f"; and {others} more" if others else "")


def _fault_message(model: type[BaseModel], fault: Any) -> str:
    """One fault that pydantic found, with the value and the meaning of its key."""
    section, location = _section_at(model, [shorten(part, 60) for part in fault["loc"]])
    if fault["type"] == "extra_forbidden":
        return _unknown_key_message(section, location, fault["input"])
    message = shorten(fault["msg"].removeprefix("Value error, "), 400)
    value = "" if isinstance(fault["input"], dict) else f" (given {_quoted(fault['input'])})"
    field = section.model_fields.get(location[-1]) if location else None
    meaning = f"; {location[-1]} is: {field.description}" if field and field.description else ""
    return f"{'.'.join(location) or 'configuration'}: {message}{value}{meaning}"


def _quoted(value: Any) -> str:
    """A value, shortened, with quotes about text."""
    return f"'{shorten(value)}'" if isinstance(value, str) else shorten(value)


def _unknown_key_message(section: type[BaseModel], location: list[str], value: Any) -> str:
    moved, key = getattr(section, "moved_keys", {}), location[-1]
    if key in moved:
        former = [f"{key}.{part}" for part in value] if isinstance(value, dict) else []
        told = [moved[name] for name in former if name in moved]
        return f"{'.'.join(location)} has moved: {'; '.join(told) or moved[key]}"
    for word, hint in getattr(section, "key_hints", {}).items():
        if word in location[-1].lower():
            return f"unknown key {'.'.join(location)}; {hint}"
    nearest = difflib.get_close_matches(location[-1], list(section.model_fields), n=1, cutoff=0.0)
    suggestion = f"; did you mean {nearest[0]}?" if nearest else ""
    return f"unknown key {'.'.join(location)}{suggestion}"


def _section_at(model: type[BaseModel], location: list[str]) -> tuple[type[BaseModel], list[str]]:
    """The class of the section that has the last key of a location, and the location without kinds of sections."""
    union: dict[str, type[BaseModel]] = {}  # the classes of the last section by the tags of a union
    section, shown = model, []
    for part in location:
        field = model.model_fields.get(part)
        if field is None and part in union:
            model, union = union[part], {}
            continue
        section = model
        shown.append(part)
        if field is None:  # an index
            continue
        members = (field.annotation, *getattr(field.annotation, "__args__", ()))
        classes = [getattr(member, "__origin__", member) for member in members]
        sections = [each for each in classes if isinstance(each, type) and issubclass(each, BaseModel)]
        union = {str(each.model_fields["kind"].default): each for each in sections if "kind" in each.model_fields}
        union |= getattr(sections[0], "variants", {}) if sections else {}
        model = sections[0] if sections else model
    return section, shown


def dump_yaml(model: BaseModel) -> str:
    """Returns a resolved configuration as YAML, as it is written next to every result."""
    return yaml.safe_dump(model.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def config_hash(*values: BaseModel | int) -> str:
    """Returns 16 hexadecimal digits that depend on the values that differ from their defaults.

    Defaults do not count, so a key that a later version adds does not change the hashes of existing datasets. A
    released default must therefore never change.
    """
    plain = [v.model_dump(mode="json", exclude_defaults=True) if isinstance(v, BaseModel) else v for v in values]
    text = json.dumps(plain, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
