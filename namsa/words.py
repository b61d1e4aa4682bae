"""Counts as a person says them."""


def counted(n: int, noun: str) -> str:
    """`n` of a noun whose plural ends in s: "1 sample", "12 samples"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
