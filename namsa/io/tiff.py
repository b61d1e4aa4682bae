"""Images as TIFF files that ImageJ, Fiji and HyperSpy open with the size of their pixels."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from namsa.base.arrays import Array
from namsa.base.errors import WorkError
from namsa.base.files import open_atomic

_DESCRIPTION = 270  # tags of TIFF 6.0
_PIXELS_PER_UNIT_X = 282
_PIXELS_PER_UNIT_Y = 283
_RESOLUTION_UNIT = 296
_NO_INCH_OR_CENTIMETRE = 1


def write_images(path: Path, stack: Array, sampling: Sequence[float], units: str) -> None:
    """Writes images as the pages of a file, 32-bit floating point.

    Args:
        path: The file, replaced if it exists.
        stack: `(images, y, x)`.
        sampling: Distance between neighbouring pixels (y, x).
        units: Their units; ImageJ's description has them, since TIFF knows inches and centimetres
            only.

    Raises:
        WorkError: If the file cannot be written.
    """
    from PIL import Image  # which Matplotlib needs, too

    escaped = units.encode("unicode_escape").decode().replace("\\x", "\\u00")
    lines = ["ImageJ=1.54f", f"images={len(stack)}", f"slices={len(stack)}", f"unit={escaped}"]
    tags = {
        _DESCRIPTION: "\n".join(lines) + "\n",
        _PIXELS_PER_UNIT_X: 1 / sampling[1],
        _PIXELS_PER_UNIT_Y: 1 / sampling[0],
        _RESOLUTION_UNIT: _NO_INCH_OR_CENTIMETRE,
    }
    pages = [Image.fromarray(np.ascontiguousarray(image, np.float32)) for image in stack]
    try:
        with open_atomic(path) as file:
            pages[0].save(
                file, format="TIFF", tiffinfo=tags, save_all=True, append_images=pages[1:]
            )
    except OSError as error:
        raise WorkError(f"cannot write {path}: {error.strerror or error}") from None
