"""HTML as a tree of elements: text is escaped where it is written, so no caller escapes it.

element("b", {"class": "name"}, "<Cu>")     is <b class="name">&lt;Cu&gt;</b>
"""

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

VOID = frozenset({"br", "img", "input", "meta"})  # elements that have no end tag
EMPTY_SVG = frozenset({"circle", "path"})  # elements of an SVG that end themselves

NO_ATTRIBUTES: Mapping[str, str] = {}


@dataclass(frozen=True)
class Element:
    """An HTML element."""

    tag: str
    attributes: Mapping[str, str]  # values as text
    children: tuple["Node", ...]  # in order


@dataclass(frozen=True)
class Verbatim:
    """Markup that is written as it is, as a script or a style sheet of the package.

    Text from files or users must not enter it.
    """

    text: str


Node = str | Element | Verbatim  # a `str` is text, and is escaped


def element(tag: str, attributes: Mapping[str, str] = NO_ATTRIBUTES, *children: Node) -> Element:
    """Returns an element with its attributes and its children."""
    return Element(tag, attributes, children)


def to_html(*nodes: Node, separator: str = "") -> str:
    """Returns the HTML of nodes, one after the other with a separator between them."""
    return separator.join(_node_html(node) for node in nodes)


def _node_html(node: Node) -> str:
    if isinstance(node, str):
        return html.escape(node)
    if isinstance(node, Verbatim):
        return node.text
    attributes = "".join(
        f' {name}="{html.escape(value)}"' for name, value in node.attributes.items()
    )
    if node.tag in VOID:
        return f"<{node.tag}{attributes}>"
    if node.tag in EMPTY_SVG:
        return f"<{node.tag}{attributes}/>"
    return f"<{node.tag}{attributes}>{to_html(*node.children)}</{node.tag}>"


def fill(template: str, values: Mapping[str, Node | Sequence[Node]]) -> str:
    """Returns a template in which each `{{name}}` is replaced by the HTML of its value.

    Args:
        template: HTML with `{{name}}` in text, or in an attribute that is quoted.
        values: Text, which is escaped; an element; or a sequence of them, one a line.

    Raises:
        KeyError: If the template has a name without a value.
    """

    def value_html(name: re.Match[str]) -> str:
        value = values[name[1]]
        if isinstance(value, Node):
            return to_html(value)
        return to_html(*value, separator="\n")

    return re.sub(r"{{(\w+)}}", value_html, template)
