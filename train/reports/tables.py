"""Tables that reports of several tasks have."""

from collections.abc import Sequence

from namsa.figures.document import Table

from .words import number


def confusion_table(
    caption: str, unit: str, names: Sequence[str], counts: Sequence[Sequence[int]], digits: str
) -> Table:
    """Returns the fractions of each true class (rows) that are given to each class (columns).

    Args:
        unit: What is counted, as "Patterns": the heading of the totals.
        names: Names of the classes.
        counts: Numbers by true class and class given.
        digits: Format specification of a fraction.
    """
    rows = []
    for name, row in zip(names, counts, strict=True):
        total = sum(row)
        cells = [name, f"{total:,}"]
        for value in row:
            cells.append(number(value / total, digits) if total else number(None, digits))
        rows.append(cells)
    return Table(("", unit, *names), rows, text_columns=1, caption=caption)
