"""Masks: which pixels of a detector do not measure.

A mask is an array of the detector's shape, `(dy, dx)`. A pixel is excluded where it is not 0, as in
the pixel masks of NeXus and Dectris, of which only the lower 16 bits count: the upper ones mark
pixels that may be used.
"""

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.files import open_regular
from namsa.base.numpy_files import read_npy
from namsa.base.text import shorten
from namsa.io.hdf5_items import Hdf5Access, Hdf5Dataset
from namsa.io.safe_hdf5 import has_signature, open_hdf5

Pixels = tuple[tuple[int, int], ...]

MOST_MASKED = 0.5  # of the pixels; more are the good ones of a mask the other way round
MASK_BITS = 0xFFFF
MASK_BYTES = 2**29
IMAGES = {".png": "PNG", ".tif": "TIFF", ".tiff": "TIFF"}


def read_mask(mask: str | Path | npt.ArrayLike, detector: tuple[int, ...]) -> Pixels:
    """Returns the excluded pixels (row, column) of a mask.

    Args:
        mask: An array, or a file of one: .npy, PNG, TIFF, or HDF5 with one dataset of the
            detector's shape, or with one that is named `mask` or `pixel_mask`.

    Raises:
        InputError: If it cannot be read, is of another shape, or excludes more than half of the
            pixels.
    """
    name = f"the mask {shorten(str(mask), 200)}" if isinstance(mask, str | Path) else "the mask"
    values = _read(Path(mask), detector) if isinstance(mask, str | Path) else np.asarray(mask)
    if values.shape != tuple(detector) or values.dtype.kind not in "uifb":
        size = "x".join(map(str, detector))
        raise InputError(
            f"{name} holds {values.dtype} of shape {values.shape}: give numbers of the detector's "
            f"{size}"
        )
    masked = pixels(values)
    if len(masked) > MOST_MASKED * values.size:
        raise InputError(
            f"{name} excludes {len(masked):,} of {values.size:,} pixels: it is not 0 where a pixel "
            "does not measure; if it marks the good pixels, invert it"
        )
    return masked


def stored_mask(
    file: Hdf5Access, names: tuple[str, ...], detector: tuple[int, ...]
) -> tuple[Pixels, tuple[str, ...]]:
    """Returns the pixels that a detector's own mask excludes, and a line about a mask that does not
    fit.

    Args:
        names: Where the mask may be; the first that is found counts.
        detector: Shape (dy, dx) of the patterns.
    """
    for name in names:
        mask = file.find(name)
        if not isinstance(mask, Hdf5Dataset) or not mask.is_numeric or len(mask.shape) != 2:
            continue
        if mask.shape != tuple(detector):
            sizes = ["x".join(map(str, shape)) for shape in (mask.shape, detector)]
            return (), (
                f"{name} is of {sizes[0]} pixels and is not applied to patterns of {sizes[1]}: "
                "give --mask",
            )
        return pixels(mask[:, :]), ()
    return (), ()


def pixels(mask: Array) -> Pixels:
    """Returns the pixels (row, column) that an array excludes."""
    if mask.dtype.kind in "ui" and mask.itemsize > 2:
        excluded = mask & np.array(MASK_BITS).astype(mask.dtype)
    else:
        excluded = mask
    return tuple((row, column) for row, column in np.argwhere(excluded != 0).tolist())


def _read(path: Path, detector: tuple[int, ...]) -> Array:
    """Returns the array in a file."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return read_npy(path, largest_bytes=MASK_BYTES, kind="the mask")
    if suffix in IMAGES:
        return _read_image(path, IMAGES[suffix], detector)
    open_regular(path, "the mask").close()
    if not has_signature(path):
        known = ", ".join((".npy", *IMAGES, "HDF5"))
        raise InputError(f"cannot read the mask {shorten(str(path), 300)}: give one of {known}")
    with open_hdf5(path) as file:
        names = [name for name in file.scans(axes=2)[0] if _shape(file, name) == tuple(detector)]
        named = [name for name in names if name.rpartition("/")[2] in ("mask", "pixel_mask")]
        chosen = named or names
        if len(chosen) != 1:
            listed = f": {shorten(', '.join(chosen), 200)}" if chosen else ""
            raise InputError(
                f"the mask {path} holds {len(chosen)} arrays of the detector's shape, not "
                f"one{listed}"
            )
        mask = file.find(chosen[0])
        assert isinstance(mask, Hdf5Dataset)
        return mask[:, :]


def _shape(file: Hdf5Access, name: str) -> tuple[int, ...]:
    item = file.find(name)
    return item.shape if isinstance(item, Hdf5Dataset) else ()


def _read_image(path: Path, kind: str, detector: tuple[int, ...]) -> Array:
    """Returns a picture of one channel; its size is compared before it is unpacked."""
    from PIL import Image, UnidentifiedImageError

    with open_regular(path, "the mask") as file:
        try:
            with Image.open(file, formats=[kind]) as image:
                if image.size[::-1] != tuple(detector) or math.prod(image.size) > MASK_BYTES:
                    raise InputError(
                        f"the mask {path} has {image.height}x{image.width} pixels, not the "
                        f"detector's {'x'.join(map(str, detector))}"
                    )
                values = np.asarray(image)
        except (
            UnidentifiedImageError,
            OSError,
            ValueError,
            SyntaxError,
            TypeError,
            Image.DecompressionBombError,
        ) as error:
            raise InputError(f"cannot read the mask {path}: {shorten(error, 200)}") from None
    if values.ndim == 2:
        return values
    return (values[..., :3] != 0).any(axis=-1)
