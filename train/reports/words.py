"""Numbers, counts and shapes as texts of reports and model cards."""

from collections.abc import Mapping, Sequence


def number(value: float | None, digits: str) -> str:
    """Returns a number with a typographic minus, or a dash for `None`.

    Args:
        digits: Its format specification, such as ".3f".
    """
    if value is None:
        return "–"
    return format(value, digits).replace("-", "−")


def fixed(value: float | None, decimals: int = 3) -> str:
    """Returns a number with so many decimals, or a dash for `None`, as model cards have it."""
    if value is None:
        return "–"
    return f"{value:.{decimals}f}"


def count(amount: int, noun: str) -> str:
    """Returns `amount`, with separators of thousands, of a noun whose plural ends in s."""
    return f"{amount:,} {noun}" + ("" if amount == 1 else "s")


def plain(value: object) -> str:
    """Returns a JSON value as text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


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
