"""What a caller may say of a file that does not say it itself."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from namsa.errors import InputError
from namsa.text import shorten

MAX_SIDE = 10**6  # positions or pixels along an axis
MAX_OFFSET = 2**48


@dataclass(frozen=True)
class ReadOptions:
    """How the patterns lie in a file. Pairs are (y, x).

    Attributes:
        dataset: Name of the dataset, in a file that holds several.
        scan_shape: Rows and columns of the scan.
        dtype: Type of the stored numbers with its byte order, such as ">u2", for a file without a format.
        detector_shape: Rows and columns of the detector, for a file without a format.
        offset_bytes: Where the first pattern begins, in a file without a format.
        flyback: Patterns at the end of each row of the scan that were recorded while the beam flew back.
        growing: Whether the file is being written; then the scan is as many complete rows as it holds.
    """

    dataset: str | None = None
    scan_shape: tuple[int, int] | None = None
    dtype: np.dtype[Any] | None = None
    detector_shape: tuple[int, int] | None = None
    offset_bytes: int = 0
    flyback: int = 0
    growing: bool = False

    @property
    def is_raw(self) -> bool:
        """Whether they describe a file without a format."""
        return self.dtype is not None or self.detector_shape is not None or self.offset_bytes > 0


def read_options(
    *,
    dataset: str | None,
    scan_shape: Any,
    dtype: Any,
    detector_shape: Any,
    offset_bytes: Any,
    flyback: Any,
    growing: bool = False,
) -> ReadOptions:
    """Returns checked options; a shape may be a pair or a text such as "81x81".

    Raises:
        InputError: If one is not what it should be.
    """
    return ReadOptions(
        dataset=dataset,
        scan_shape=_shape(scan_shape, "--scan-shape"),
        dtype=_dtype(dtype),
        detector_shape=_shape(detector_shape, "--detector-shape"),
        offset_bytes=_count(offset_bytes, "--offset-bytes", MAX_OFFSET),
        flyback=_count(flyback, "--flyback", MAX_SIDE),
        growing=growing,
    )


def _shape(value: Any, option: str) -> tuple[int, int] | None:
    if value is None:
        return None
    sides: list[Any] = re.split("[x×,]", value) if isinstance(value, str) else list(np.ravel(value))
    try:
        shape = tuple(int(side) for side in sides)
    except (ValueError, TypeError, OverflowError):
        shape = ()
    if len(shape) != 2 or not all(0 < side <= MAX_SIDE for side in shape):
        raise InputError(f"{option} is {shorten(value)}: give rows x columns, such as 64x96, each at most {MAX_SIDE}")
    return shape


def _dtype(value: Any) -> np.dtype[Any] | None:
    if value is None:
        return None
    try:
        dtype = np.dtype(value)
    except (TypeError, ValueError, SyntaxError):
        dtype = np.dtype("V")
    if dtype.kind not in "uif" or dtype.itemsize > 8:
        raise InputError(f"--dtype is {shorten(value)}: give a type of integers or real numbers, such as u2, >u2 or f4")
    return dtype


def _count(value: Any, option: str, largest: int) -> int:
    if not isinstance(value, int | np.integer) or not 0 <= value <= largest:
        raise InputError(f"{option} is {shorten(value)}: give an integer from 0 to {largest}")
    return int(value)
