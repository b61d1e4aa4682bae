"""Reading of the `network` section of an experiment's YAML, within bounds. Every fault is a ValueError of one line."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import yaml
from pydantic import ValidationError

from fcdensenet.config import NetworkConfig

LARGEST_FILE_BYTES = 2**20
MOST_VALUES = 20_000  # keys and values; what an alias names counts again
DEEPEST = 32  # levels of mappings and lists
MOST_FAULTS = 10  # that one message names
# PyYAML's constructors raise these for tags that do not fit their values, and for numbers that are out of range.
_CONSTRUCTOR_ERRORS = (ValueError, LookupError, AttributeError, TypeError, OverflowError)


def read_network(path: Path, overrides: Sequence[str] = ()) -> NetworkConfig:
    """Reads the `network` section of a YAML file.

    Args:
        path: The experiment's YAML file.
        overrides: Settings as `network.key=value`, whose values are YAML too.

    Raises:
        ValueError: If the file cannot be read or has faults. It names the first ten of them in one line.
    """
    if path.exists() and not path.is_file():  # a named pipe would wait for its other end
        raise ValueError(f"cannot read the configuration {path}: it is no file")
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE_BYTES + 1)
        if len(data) > LARGEST_FILE_BYTES:
            raise ValueError(f"the configuration {path} has more than {LARGEST_FILE_BYTES >> 20} MiB")
        tree = _parse(data.decode())
    except OSError as error:
        raise ValueError(f"cannot read the configuration {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid YAML: {_shorten(error, 300)}") from None
    if not isinstance(tree, dict) or not isinstance(tree.get("network"), dict):
        raise ValueError(f"{path} has no section 'network': add one with at least input_shape: [channels, y, x]")
    section = tree["network"] | dict(_key_and_value(override) for override in overrides)
    try:
        return NetworkConfig.model_validate(section)
    except ValidationError as error:
        faults = [_fault_message(fault) for fault in error.errors()[:MOST_FAULTS]]
        if error.error_count() > MOST_FAULTS:
            faults.append(f"and {error.error_count() - MOST_FAULTS} more")
        raise ValueError(f"{path}: {'; '.join(faults)}") from None


def _key_and_value(override: str) -> tuple[str, Any]:
    path, equals, value = override.partition("=")
    section, _, key = path.strip().partition(".")
    if section != "network" or not key or not equals:
        raise ValueError(f"--set {_shorten(override)}: write it as --set network.key=value")
    try:
        return key, _parse(value)
    except yaml.YAMLError:
        raise ValueError(f"--set {_shorten(override)}: {_shorten(value)!r} is not a YAML value") from None


class _Loader(yaml.SafeLoader):
    """Measures each node while it is composed."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._level = 0
        self._count = 0
        self._sizes: dict[yaml.Node, tuple[int, int]] = {}  # values and levels of each node that is complete

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Returns the next node, after its size was compared with the bounds."""
        mark, is_alias = self.peek_event().start_mark, self.check_event(yaml.AliasEvent)
        self._level, self._count = self._level + 1, self._count + 1
        if self._level > DEEPEST or self._count > MOST_VALUES:
            _refuse(mark)
        node = super().compose_node(parent, index)
        self._level -= 1
        if node is None:
            return None
        if not is_alias:
            children = node.value if isinstance(node, yaml.CollectionNode) else []
            if isinstance(node, yaml.MappingNode):
                children = [child for pair in children for child in pair]
            sizes = [self._sizes[child] for child in children]
            self._sizes[node] = 1 + sum(n for n, _ in sizes), 1 + max((level for _, level in sizes), default=0)
        values, levels = self._sizes.get(node, (MOST_VALUES + 1, 0))  # a node without a size contains itself
        if values > MOST_VALUES or levels > DEEPEST:
            _refuse(mark)
        return node


def _refuse(mark: yaml.Mark) -> NoReturn:
    raise yaml.MarkedYAMLError(problem=f"more than {MOST_VALUES} values or {DEEPEST} levels", problem_mark=mark)


def _parse(text: str) -> Any:
    """The value of a YAML text. Raises yaml.YAMLError for every fault."""
    loader = None
    try:
        loader = _Loader(text)
        return loader.get_single_data()
    except _CONSTRUCTOR_ERRORS as error:
        raise yaml.YAMLError(f"a value cannot be read: {error}") from None
    finally:
        if loader:
            loader.dispose()


def _fault_message(fault: Any) -> str:
    """One fault that pydantic found, with the value or the nearest known key."""
    location = ".".join(["network", *(_shorten(part, 60) for part in fault["loc"])])
    if fault["type"] == "extra_forbidden":
        nearest = difflib.get_close_matches(str(fault["loc"][-1])[:60], NetworkConfig.model_fields, n=1, cutoff=0.0)
        return f"unknown key {location}; did you mean {nearest[0]}?"
    value = "" if isinstance(fault["input"], dict) else f" (given {_quoted(fault['input'])})"
    return f"{location}: {_shorten(fault['msg'].removeprefix('Value error, '), 300)}{value}"


def _quoted(value: Any) -> str:
    """A value, shortened, with quotes about text."""
    return f"'{_shorten(value)}'" if isinstance(value, str) else _shorten(value)


def _shorten(value: Any, limit: int = 80) -> str:
    """A value as text in one line, cut off after `limit` characters; what a terminal would act on is escaped."""
    try:
        text = " ".join(str(value).split())
    except ValueError:  # an integer of more than 4300 digits
        return f"(a {type(value).__name__} that is too long)"
    printable = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:limit])
    return f"{printable}..." if len(text) > limit else printable
