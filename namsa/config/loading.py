"""Reading a configuration: safe YAML, `--set` overrides, one frozen tree, errors that name the nearest known key."""

import difflib
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from namsa.errors import InputError


class Section(BaseModel):
    """A frozen piece of the configuration tree; unknown keys are errors.

    elsewhere: words that people look for in it, and what to write instead
    """

    elsewhere: ClassVar[dict[str, str]] = {}
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)


Tree = TypeVar("Tree", bound=BaseModel)


def read_yaml(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The mapping in a YAML file after `a.b=value` overrides, whose values are YAML too.

    Raises InputError where the file cannot be read, is no mapping, or an override is malformed.
    """
    try:
        tree = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read the configuration {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(tree, dict):
        raise InputError(f"{path} must hold a mapping of sections, not {type(tree).__name__}")
    for override in overrides:
        _override(tree, override)
    return tree


def _override(tree: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise InputError(f"--set {override}: write it as --set section.key=value")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise InputError(f"--set {override}: {text!r} is not a YAML value") from None
    node = tree
    for depth, key in enumerate(keys[:-1]):
        node = node.setdefault(key, {})
        if not isinstance(node, dict):
            raise InputError(f"--set {override}: {'.'.join(keys[: depth + 1])} is a value, not a section")
    node[keys[-1]] = value


def validate(model: type[Tree], tree: dict[str, Any], source: str) -> Tree:
    """`tree` as a `model`; every fault in one InputError, unknown keys with the nearest known one."""
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        faults = "; ".join(_describe(model, fault) for fault in error.errors())
        raise InputError(f"{source}: {faults}") from None


def _describe(model: type[BaseModel], fault: Any) -> str:
    where = [str(part) for part in fault["loc"]]
    if fault["type"] == "extra_forbidden":
        section = _section_at(model, where[:-1])
        known = list(section.model_fields)
        for word, remedy in getattr(section, "elsewhere", {}).items():
            if word in where[-1].lower():
                return f"unknown key {'.'.join(where)}; {remedy}"
        near = difflib.get_close_matches(where[-1], known, n=1, cutoff=0.0)
        hint = f"; did you mean {near[0]}?" if near else ""
        return f"unknown key {'.'.join(where)}{hint}"
    message = fault["msg"].removeprefix("Value error, ")
    given = "" if isinstance(fault["input"], dict) else f" (given {fault['input']!r})"
    field = _section_at(model, where[:-1]).model_fields.get(where[-1]) if where else None
    meaning = f"; {where[-1]} is: {field.description}" if field and field.description else ""
    return f"{'.'.join(where) or 'configuration'}: {message}{given}{meaning}"


def _section_at(model: type[BaseModel], where: list[str]) -> type[BaseModel]:
    for part in where:
        field = model.model_fields.get(part)
        if field is None:  # an index or a union's tag: the model stays
            continue
        for candidate in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(candidate, type) and issubclass(candidate, BaseModel):
                model = candidate
                break
    return model


def dump_yaml(model: BaseModel) -> str:
    """The resolved tree as YAML, to be written next to every result."""
    return yaml.safe_dump(model.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def config_hash(*values: BaseModel | int) -> str:
    """16 hex digits that change with any of `values`, sections or plain numbers.

    What is left at its default does not count, so that a key that a later version adds leaves datasets what they are;
    a default, once released, therefore stays.
    """
    plain = [v.model_dump(mode="json", exclude_defaults=True) if isinstance(v, BaseModel) else v for v in values]
    text = json.dumps(plain, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
