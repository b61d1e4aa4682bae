"""Counts and durations as text for people."""


def plural(count: int, noun: str) -> str:
    """Returns the count with its noun, whose plural ends in s: "1 sample", "12 samples"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def duration(seconds: float) -> str:
    """Returns a time in the largest unit that it fills at least twice: "1.5 s", "2.5 min", "20 h"."""
    for unit, name in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.2g} s"
