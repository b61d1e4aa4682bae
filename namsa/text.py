"""Counts, durations and values as text for people, and objects as HTML for notebooks."""

import html
from collections.abc import Iterable


def plural(count: int, noun: str) -> str:
    """Returns the count with its noun, whose plural ends in s: "1 sample", "12 samples"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def duration(seconds: float) -> str:
    """Returns a time in the largest unit that it fills at least twice: "1.5 s", "2.5 min", "20 h"."""
    for unit, name in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.2g} s" if seconds < 100 else f"{seconds:.0f} s"


def described(kind: str, text: str, rows: Iterable[tuple[str, str]], images: str = "") -> str:
    """Returns the HTML of an object: what it is, a table of names and values, and HTML of images before the table.

    It loads nothing and inherits the notebook's font and colours.
    """
    table = "".join(
        f'<tr><th style="text-align:left">{html.escape(name)}</th>'
        f'<td style="text-align:left">{html.escape(value)}</td></tr>'
        for name, value in rows
    )
    return (
        f'<div><p style="margin:0 0 .5em"><b>{html.escape(kind)}</b> {html.escape(text)}</p>'
        f'<div style="display:flex;flex-wrap:wrap;gap:1.5em;align-items:flex-start">{images}'
        f'<table style="font-size:85%;margin:0">{table}</table></div></div>'
    )


def shorten(value: object, limit: int = 80) -> str:
    """Returns a value as text in one line of at most `limit` characters, without its middle if it is longer.

    Characters that a terminal would act on, or could not encode, are escaped.
    """
    if isinstance(value, int) and value.bit_length() > 4 * limit:  # Python refuses to write very long numbers
        return f"{'-' if value < 0 else ''}2^{value.bit_length() - 1}..."
    try:
        text = str(value)
    except (RecursionError, ValueError):  # nested too deeply, or with a very long number inside
        return f"(a {type(value).__name__} that cannot be printed)"
    if len(text) > 3 * limit:  # of a text of many megabytes, only the ends are looked at
        text = f"{text[:limit]}...{text[-limit:]}"
    text = " ".join(printable(text).split())
    return text if len(text) <= limit else f"{text[: limit - limit // 3 - 3]}...{text[len(text) - limit // 3 :]}"


def printable(text: str) -> str:
    """Returns a text in one line, with the characters escaped that a terminal would act on or could not encode."""
    return "".join(c if c.isprintable() else " " if c.isspace() else ascii(c)[1:-1] for c in text)
