"""Reading of YAML that people wrote: what JSON can hold, within bounds, and every fault with its
line and column.

PyYAML's safe loader makes no foreign objects. But it accepts values that no configuration can hold
(dates, sets, bytes), lets a later key replace an earlier one, expands aliases without limit, and
raises errors of many classes.
"""

from typing import NamedTuple, NoReturn

import yaml
from yaml.reader import ReaderError

from namsa.base.errors import InputError
from namsa.base.json_files import LARGEST_INTEGER
from namsa.base.text import shorten

DEEPEST = 32  # levels of mappings and lists
MOST_VALUES = 20_000  # keys and values; what an alias names counts again
LONGEST_TEXT = 4096  # characters of one value, as of a path
_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"  # the key <<
_REMEDIES = {
    f"{_TAG}timestamp": "is read as a date: write it in quotes",
    f"{_TAG}value": "is read as a default value: write it in quotes",
    f"{_TAG}bool": "is read as true or false: write it in quotes",
    f"{_TAG}null": "is read as null: write it in quotes",
}


def parse_yaml(text: str, source: str) -> object:
    """Returns a YAML text's value. Raises InputError, with line and column, if it is wrong or
    exceeds a bound.
    """
    try:
        loader = _Loader(text)
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise InputError(
            f"{source} is not valid YAML: {shorten(text[error.position])}, character "
            f"{error.position + 1} (line {line}), is not allowed"
        ) from None
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        return loader.value(node)
    except yaml.MarkedYAMLError as error:
        texts = [text for text in (error.context, error.problem) if text]
        problem = ", ".join(shorten(text, 200) for text in texts)
        mark = error.problem_mark or error.context_mark or loader.get_mark()
    except (ValueError, OverflowError):  # "\U99999999", or a %YAML version of 5000 digits
        problem = "a number is out of range"
        mark = loader.get_mark()
    finally:
        loader.dispose()
    raise InputError(
        f"{source} is not valid YAML: {problem} (line {mark.line + 1}, column {mark.column + 1})"
    )


class _Loader(yaml.SafeLoader):
    """Composes nodes within the bounds and makes values of them."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._level = 0
        self._count = 0
        self._sizes: dict[yaml.Node, _Size] = {}  # of each node that is complete

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Returns the next node, after its size was compared with the bounds."""
        mark = self.peek_event().start_mark
        self._level += 1
        self._count += 1
        if self._level > DEEPEST or self._count > MOST_VALUES:
            _refuse_size(mark)
        is_alias = self.check_event(yaml.AliasEvent)
        node = super().compose_node(parent, index)
        self._level -= 1
        if node is None:
            return None
        if not is_alias:
            self._sizes[node] = self._size(node)
        elif node not in self._sizes:
            _refuse("a value contains itself", mark)
        size = self._sizes[node]
        if size.values > MOST_VALUES or size.levels > DEEPEST:
            _refuse_size(mark)
        return node

    def _size(self, node: yaml.Node) -> "_Size":
        """Returns the size of a node, aliases expanded. Refuses keys that are no text or occur
        twice.
        """
        children: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            children = node.value
        elif isinstance(node, yaml.MappingNode):
            _check_keys(node)
            for key, value in node.value:
                children += [key, value]
        values = 1
        deepest = 0
        for child in children:
            size = self._sizes[child]
            values += size.values
            deepest = max(deepest, size.levels)
        return _Size(values, 1 + deepest)

    def value(self, node: yaml.Node) -> object:
        """Returns the value of a node whose size is within the bounds."""
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            self.flatten_mapping(node)
            return {self.value(key): self.value(value) for key, value in node.value}
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self.value(item) for item in node.value]
        if not isinstance(node, yaml.ScalarNode):
            _refuse(_problem_of_tag("a value", node), node.start_mark)
        if len(node.value) > LONGEST_TEXT:
            _refuse(
                f"{shorten(node.value)} has more than {LONGEST_TEXT} characters", node.start_mark
            )
        return self._scalar(node)

    def _scalar(self, node: yaml.ScalarNode) -> object:
        """Returns the value of a number or a word."""
        try:
            match node.tag.removeprefix(_TAG):
                case "str":
                    node.value.encode()
                    if "\0" in node.value:
                        _refuse(f"{shorten(node.value)} has a null character", node.start_mark)
                    return node.value
                case "int":
                    # Compared by length first: many digits are slow to convert, or refused by
                    # Python.
                    too_long = f"integer {shorten(node.value)} has more than 64 bits"
                    if len(node.value) > 80:
                        _refuse(too_long, node.start_mark)
                    value = self.construct_yaml_int(node)
                    if abs(value) >= LARGEST_INTEGER:
                        _refuse(too_long, node.start_mark)
                    return value
                case "float":
                    return self.construct_yaml_float(node)
                case "bool":
                    return self.construct_yaml_bool(node)
                case "null":
                    return None
        except UnicodeEncodeError:
            _refuse(f"{shorten(node.value)} holds half of a character", node.start_mark)
        except (ValueError, LookupError):
            pass  # an explicit tag that does not fit, or 08, which is no octal number
        _refuse(_problem_of_tag("", node), node.start_mark)


class _Size(NamedTuple):
    """Size of a node, aliases expanded."""

    values: int
    levels: int


def _check_keys(node: yaml.MappingNode) -> None:
    """Refuses keys that are no text or occur twice."""
    names = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag not in (f"{_TAG}str", _MERGE):
            _refuse(_problem_of_tag("key", key), key.start_mark)
        if key.value in names:
            _refuse(f"key {shorten(key.value)} occurs twice: remove one of them", key.start_mark)
        names.add(key.value)


def _problem_of_tag(kind: str, node: yaml.Node) -> str:
    """Returns what is wrong with a node of a tag that is not allowed where it stands."""
    content = shorten(node.value) if isinstance(node, yaml.ScalarNode) else ""
    remedy = _REMEDIES.get(
        node.tag,
        f"is tagged {shorten(node.tag.replace(_TAG, '!!'))}: write text, a number or a list",
    )
    if kind == "key" and node.tag not in _REMEDIES:
        remedy = "is not text: write it in quotes"
    return " ".join(word for word in (kind, content, remedy) if word)


def _refuse_size(mark: yaml.Mark) -> NoReturn:
    _refuse(
        f"values are nested more than {DEEPEST} levels deep, or are more than {MOST_VALUES}", mark
    )


def _refuse(problem: str, mark: yaml.Mark) -> NoReturn:
    raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
