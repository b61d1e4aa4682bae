"""Counts, durations and values as text for people, and objects as HTML for notebooks."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from namsa.base.markup import Element, element, to_html


def plural(count: int, noun: str) -> str:
    """Returns the count with its noun, whose plural ends in s: "1 sample", "12 samples"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def plain_minus(text: str) -> str:
    """Returns a text whose minus signs (U+2212) and en dashes are hyphens, as numbers have them."""
    return text.replace("\u2212", "-").replace("\u2013", "-")


def duration(seconds: float) -> str:
    """Returns a time in the largest unit that it fills at least twice: "1.5 s", "2.5 min", "20
    h".
    """
    for unit, name in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.2g} s" if seconds < 100 else f"{seconds:.0f} s"


def described(
    kind: str, text: str, rows: Iterable[tuple[str, str]], images: Sequence[Element] = ()
) -> str:
    """Returns the HTML of an object: what it is, images, and a table of names and values.

    It loads nothing and inherits the notebook's font and colours.
    """
    left = {"style": "text-align:left"}
    table_rows = []
    for name, value in rows:
        table_rows.append(element("tr", {}, element("th", left, name), element("td", left, value)))
    table = element("table", {"style": "font-size:85%;margin:0"}, *table_rows)
    row_style = "display:flex;flex-wrap:wrap;gap:1.5em;align-items:flex-start"
    return to_html(
        element(
            "div",
            {},
            element("p", {"style": "margin:0 0 .5em"}, element("b", {}, kind), f" {text}"),
            element("div", {"style": row_style}, *images, table),
        )
    )


def shorten(value: object, limit: int = 80) -> str:
    """Returns a value as text in one line of at most `limit` characters, without its middle if it
    is longer.

    Characters that a terminal would act on, or could not encode, are escaped.
    """
    # Python refuses to write very long numbers
    if isinstance(value, int) and value.bit_length() > 4 * limit:
        return f"{'-' if value < 0 else ''}2^{value.bit_length() - 1}..."
    try:
        text = str(value)
    except (RecursionError, ValueError):  # nested too deeply, or with a very long number inside
        return f"(a {type(value).__name__} that cannot be printed)"
    if len(text) > 3 * limit:  # of a text of many megabytes, only the ends are looked at
        text = f"{text[:limit]}...{text[-limit:]}"
    text = " ".join(printable(text).split())
    if len(text) <= limit:
        return text
    return f"{text[: limit - limit // 3 - 3]}...{text[len(text) - limit // 3 :]}"


def without_folders(path: str | Path) -> str:
    """Returns a path as results and reports state it: an absolute one by its last part alone.

    The folders of an absolute path name the user and the machine.
    """
    path = Path(path)
    return path.name if path.is_absolute() else str(path)


def printable(text: str) -> str:
    """Returns a text in one line, with the characters escaped that a terminal would act on or could
    not encode.
    """
    return "".join(c if c.isprintable() else " " if c.isspace() else ascii(c)[1:-1] for c in text)


def energy_in_kev(energy: object) -> str:
    """Returns a question about an energy that is usual in keV and not in eV, or nothing."""
    if not isinstance(energy, str | int | float):
        return ""
    try:
        energy_kev = float(energy)
    except ValueError:
        return ""
    if not 10 <= energy_kev <= 1000:
        return ""
    return f". Is it in keV? Then give {energy_kev:g}e3"
