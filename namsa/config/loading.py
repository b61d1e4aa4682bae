"""Reading of configurations: safe YAML, `--set` overrides, one frozen tree, errors that name the
nearest known key.
"""

import functools
import hashlib
import json
import typing
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic._internal._model_construction import ModelMetaclass

from namsa.base.errors import InputError, SimulationWarning
from namsa.base.text import shorten
from namsa.config.configuration_text import configuration_text
from namsa.config.suggestions import sections_of
from namsa.config.validation_messages import validation_message
from namsa.config.yaml_text import parse_yaml

LARGEST_FILE_BYTES = 2**20
DEEPEST_KEY = 16  # sections in the key of an override


class SectionType(ModelMetaclass):
    """The type of section classes: a section that Python code builds is refused as a configuration
    is, in one line.

    pydantic does not call classes for the sections within a tree, so that their problems keep
    their keys.
    """

    def __call__(cls, *args: object, **values: object) -> Any:
        """Returns the section of `values`. Raises InputError if they have problems."""
        try:
            return super().__call__(*args, **values)
        except ValidationError as error:
            section = cast(type[BaseModel], cls)
            message = validation_message(section, error).removeprefix("configuration: ")
            raise InputError(f"{cls.__name__}: {message}") from None


class Section(BaseModel, metaclass=SectionType):
    """Base class of the sections of a configuration. Sections are frozen and refuse unknown
    keys.

    Raises:
        InputError: If a value of a section that is built directly is not allowed. It names the
            value and what the key means.
    """

    # For words that users may expect in the section's keys, what to write instead.
    key_hints: ClassVar[dict[str, str]] = {}
    # For former keys, and for the keys that they had as sections, what to write instead.
    moved_keys: ClassVar[dict[str, str]] = {}
    # The sections that may stand in for this one, by their key `kind`.
    variants: ClassVar[Mapping[str, type["Section"]]] = {}
    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True
    )

    @model_validator(mode="before")
    @classmethod
    def _true_is_no_number(cls, values: object) -> object:
        """Refuses true and false where a number is meant, which pydantic takes for 1 and 0."""
        if not isinstance(values, dict):
            return values
        for name, value in values.items():
            if name not in cls.model_fields or not _has_boolean(value):
                continue
            types = _types(cls, name)
            if types & {int, float} and not types & {bool, Any}:
                given = shorten(str(value).lower())
                raise ValueError(f"{name} must be a number, and is {given}")
        return values


Model = TypeVar("Model", bound=BaseModel)


def _has_boolean(value: object) -> bool:
    """Returns whether a value is true or false, or a list with one of them."""
    if isinstance(value, list | tuple):
        return any(_has_boolean(member) for member in value)
    return isinstance(value, bool)


@functools.cache
def _types(section: type[BaseModel], name: str) -> frozenset[object]:
    """Returns the types that a key's value may be, or be made of."""
    return frozenset(_members(section.model_fields[name].annotation))


def _members(annotation: object) -> list[object]:
    """Returns the types that an annotation is made of."""
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Literal:
        return [type(value) for value in arguments if isinstance(value, bool)]
    if not arguments:
        return [annotation]
    members = []
    for argument in arguments:
        members += _members(argument)
    return members


def read_yaml(
    path: Path | str,
    overrides: Sequence[str] = (),
    default_kinds: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Reads a mapping from a YAML file and applies overrides; returns the mapping, not yet
    validated.

    A file may have `stages`: settings of the second stage, of the third and so on, each by keys
    `section.key`. A stage keeps what those before it have set. The key `stage` chooses one; without
    it, it is the first: the file's own settings.

    Args:
        overrides: Settings as `section.key=value`, whose values are YAML too. They go before those
            of a stage. Null takes a key away, unless it is one of its values.
        default_kinds: Sections whose keys depend on their key `kind`, by their dotted keys, with
            the kind that they have without it. Another kind replaces such a section.

    Raises:
        InputError: If the file cannot be read or holds no mapping, an override is malformed, or
            there is no such stage.

    Warns:
        SimulationWarning: If another kind of a section leaves out keys of the file.
    """
    text = configuration_text(Path(path), LARGEST_FILE_BYTES)
    tree = parse_yaml(text, str(path))
    if not isinstance(tree, dict):
        contents = "nothing" if tree is None else shorten(tree)
        raise InputError(f"{path} must hold named sections, and holds {contents}")
    stage = tree.pop("stage", 1)
    settings = []
    for override in overrides:
        setting = _override(override)
        if setting.key == "stage":
            stage = setting.value
        else:
            settings.append(setting)
    kinds = default_kinds or {}
    for chosen in (_stage_settings(tree, stage, path), settings):
        # the kind first: it replaces the section that the other settings are of
        for setting in sorted(chosen, key=lambda setting: not setting.key.endswith(".kind")):
            _set_value(tree, setting, kinds)
    return tree


class _TakenAway:
    """A value that an override has taken away, until it is known which values the key has."""

    def __repr__(self) -> str:
        return "null"


_TAKEN_AWAY = _TakenAway()


class _Setting(NamedTuple):
    """A value that a stage or an override gives to a key."""

    key: str  # dotted, as "data.directory"
    value: object
    name: str  # how a message names the setting


def _stage_settings(tree: dict[str, object], stage: object, path: Path | str) -> list[_Setting]:
    """Returns the settings of a stage of a configuration and of those before it.

    Those of the first stage are the file's own, which are left out.
    """
    stages = tree.get("stages") or []
    if not isinstance(stages, list) or not all(isinstance(values, dict) for values in stages):
        raise InputError(
            f"{path}: stages must be a list, for each stage a mapping of section.key to a value"
        )
    if isinstance(stage, bool) or not isinstance(stage, int) or not 1 <= stage <= 1 + len(stages):
        raise InputError(
            f"{path}: stage is {shorten(stage)}, and it has stages 1 to {1 + len(stages)}"
        )
    settings = []
    for values in stages[: stage - 1]:
        for key, value in values.items():
            settings.append(_Setting(str(key), value, f"{path}: {key}"))
    return settings


def _override(override: str) -> _Setting:
    """Returns the setting of an override."""
    path, equals, text = override.partition("=")
    name = f"--set {shorten(override)}"
    if not equals:
        raise InputError(f"{name}: write it as --set section.key=value")
    try:
        return _Setting(path.strip(), parse_yaml(text, "the value"), name)
    except InputError as error:
        raise InputError(f"{name}: {shorten(text)!r} is not a YAML value: {error}") from None


def _set_value(
    tree: dict[str, object], setting: _Setting, default_kinds: Mapping[str, str]
) -> None:
    """Sets the value of a key in a tree, and makes the sections that are missing.

    See `read_yaml` for kinds.
    """
    keys = setting.key.split(".")
    node = tree
    if not all(keys) or len(keys) > DEEPEST_KEY:
        raise InputError(f"{setting.name}: write it as --set section.key=value")
    for depth, key in enumerate(keys[:-1]):
        child = node.setdefault(key, {})
        if not isinstance(child, dict):
            parent = ".".join(keys[: depth + 1])
            raise InputError(f"{setting.name}: {parent} is a value, not a section")
        node = child
    section = ".".join(keys[:-1])
    is_chosen = keys[-1] == "kind" and section in default_kinds
    if is_chosen and node.get("kind", default_kinds[section]) != setting.value:
        _leave_out(node, setting, section)
    node[keys[-1]] = _TAKEN_AWAY if setting.value is None else setting.value


def _leave_out(section: dict[str, object], setting: _Setting, place: str) -> None:
    """Empties a section that gets another kind; warns of its keys."""
    others = [key for key in section if key != "kind"]
    section.clear()
    if others:
        warnings.warn(
            f"{setting.name} replaces the section {place}: {', '.join(others)} of the file "
            f"{'is' if len(others) == 1 else 'are'} left out",
            SimulationWarning,
            stacklevel=4,
        )


def validate(model: type[Model], tree: dict[str, object], source: str) -> Model:
    """Validates a mapping as a configuration.

    Args:
        model: The section that the whole mapping must be.
        source: Where the mapping comes from, for the error message.

    Raises:
        InputError: If the mapping has problems. It names the first ten of them, with the nearest
            known key for each unknown one.
    """
    _take_away(model, tree)
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise InputError(f"{source}: {validation_message(model, error)}") from None


def _take_away(model: type[BaseModel], tree: dict[str, object]) -> None:
    """Removes the keys of a tree that overrides have taken away; null stays where it is a value."""
    for name, value in [*tree.items()]:
        if value is _TAKEN_AWAY:
            field = model.model_fields.get(name)
            # that of a section whose class the kind decides
            is_kind = name == "kind" and field is None
            if is_kind or (field and not _types(model, name) & {type(None), Any}):
                del tree[name]
            else:
                tree[name] = None
        elif isinstance(value, dict) and name in model.model_fields:
            section = _chosen_section(model, name, value)
            if section is not None:
                _take_away(section, value)


def _chosen_section(
    model: type[BaseModel], name: str, values: dict[str, object]
) -> type[BaseModel] | None:
    """Returns the class of a section, by its kind if there are several; `None` for other values."""
    sections = sections_of(model.model_fields[name].annotation)
    if not sections:
        return None
    for section in [*sections, *getattr(sections[0], "variants", {}).values()]:
        kind = section.model_fields.get("kind")
        if kind is not None and kind.default == values.get("kind"):
            return section
    return sections[0]


def dump_yaml(model: BaseModel) -> str:
    """Returns a resolved configuration as YAML, as it is written next to every result."""
    return yaml.safe_dump(model.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def config_hash(*values: BaseModel | int) -> str:
    """Returns 16 hexadecimal digits that depend on the values that differ from their defaults.

    Defaults do not count, so a key that a later version adds does not change the hashes of existing
    datasets. A released default must therefore never change.
    """
    plain: list[object] = []
    for value in values:
        if isinstance(value, BaseModel):
            plain.append(value.model_dump(mode="json", exclude_defaults=True))
        else:
            plain.append(value)
    text = json.dumps(plain, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
