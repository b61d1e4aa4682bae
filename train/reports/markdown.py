"""Pieces of Markdown: tables, numbers and texts that are neither Markdown nor HTML."""

import html
import re
from collections.abc import Iterable, Iterator, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yields the lines of a table, whose cells are Markdown."""
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def section(title: str, *blocks: str | Iterable[str]) -> Iterator[str]:
    """Yields the lines of a section: its heading, then paragraphs, tables and lists with an empty line before each."""
    yield f"## {title}"
    for block in blocks:
        yield ""
        yield from [block] if isinstance(block, str) else block


def plain(text: object) -> str:
    """Returns a text in which Markdown and HTML have no meaning, on one line."""
    words = html.escape(" ".join(str(text).split()), quote=False)
    return re.sub(r"([\\`*|\[\]])", r"\\\1", words)


def number(value: float | None, digits: int = 3) -> str:
    """Returns a number, or a dash for `None`."""
    return "–" if value is None else f"{value:.{digits}f}"


def zones(axes: Sequence[Sequence[int]]) -> str:
    """Returns zone axes as "[u v w]"."""
    return ", ".join(f"[{' '.join(map(str, axis))}]" for axis in axes)


def pair(values: Sequence[float]) -> str:
    """Returns (y, x) as text, or one number if they are equal."""
    y, x = values
    return f"{y:g}" if y == x else f"{y:g} and {x:g}"


def times(shape: Sequence[int]) -> str:
    """Returns a shape as text."""
    return "×".join(map(str, shape))
