"""Tables, numbers and words of the report, as HTML."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int) -> str:
    """Returns a table.

    Args:
        caption: Caption, as text; none if empty.
        head: Headings of the columns; none if empty.
        rows: Cells of each row, as HTML.
        text_columns: Number of leading columns that hold text; the others hold numbers.
    """

    def line(tag: str, cells: Sequence[str]) -> str:
        classes = ("" if column < text_columns else ' class="number"' for column in range(len(cells)))
        row = "".join(f"<{tag}{css}>{cell}</{tag}>" for css, cell in zip(classes, cells, strict=True))
        return f"<tr>{row}</tr>"

    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    top = f"<thead>{line('th', head)}</thead>" if head else ""
    body = "\n".join(line("td", row) for row in rows)
    return f'<div class="scroll"><table>{title}{top}<tbody>\n{body}\n</tbody></table></div>'


def confusion_table(caption: str, unit: str, names: Sequence[str], counts: Sequence[Sequence[int]], digits: str) -> str:
    """Returns a table of the fractions of each class (rows) that are given to each class (columns)."""
    titles = [escape(name) for name in names]
    rows = [
        (title, f"{sum(row):,}", *(number(value / sum(row), digits) if sum(row) else "–" for value in row))
        for title, row in zip(titles, counts, strict=True)
    ]
    return table(caption, ("", unit, *titles), rows, text_columns=1)


def missing(text: str) -> str:
    """Returns a paragraph that stands for a missing part of the report."""
    return f'<p class="missing">{text}</p>'


def number(value: float | None, digits: str) -> str:
    """Returns a number with a typographic minus, or a dash for `None`."""
    return "–" if value is None else format(value, digits).replace("-", "−")


def count(amount: int, noun: str) -> str:
    """Returns `amount`, with separators of thousands, of a noun whose plural ends in s."""
    return f"{amount:,} {noun}" + ("" if amount == 1 else "s")


def plain(value: Any) -> str:
    """Returns a JSON value as text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)
