"""What a caller may say of a file that does not say it itself."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ReadOptions:
    """How the patterns lie in a file. Pairs are (y, x).

    Attributes:
        dataset: Name of the dataset in a file that holds several.
    """

    dataset: str | None = None
