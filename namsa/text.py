"""Counts and times as a person says them."""


def counted(n: int, noun: str) -> str:
    """`n` of a noun whose plural ends in s: "1 sample", "12 samples"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def duration(seconds: float) -> str:
    """In the largest unit of which it is two or more: "1.5 s", "2.5 min", "20 h"."""
    for unit, name in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.2g} s"
