"""Images to show over the maps of a page: the density, uncertainty and trust of a reconstruction file.

The file is what `python -m train reconstruct` writes: a tree with one group for each image, with its axes in Å.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.ndimage import map_coordinates

from namsa.errors import InputError
from namsa.figures.density_figure import MAPS
from namsa.figures.page_images import PageImage
from namsa.figures.sample_figure import Signal
from namsa.io.safe_hdf5 import Hdf5Dataset, Hdf5Group, open_hdf5
from namsa.pixels import PixelGrid

MAX_PIXELS = 2**24
SAME_STEP = 1e-3  # relative deviation of an axis from even steps


@dataclass(frozen=True, eq=False)
class Overlay:
    """An image to show over the maps."""

    image: PageImage  # the image, on its own pixels, Å; NaN where nothing is known
    signal: Signal  # its values at the positions that the page shows; NaN outside of it


def read_overlays(path: Path, positions_angstrom: npt.NDArray[np.float64]) -> list[Overlay]:
    """Reads the images of a reconstruction.

    Args:
        path: File of `python -m train reconstruct`.
        positions_angstrom: The positions that the page shows, `(m, 2)`, Å.

    Raises:
        InputError: If the file holds no such images, or if they lie beside the positions.
    """
    images = read_images(path)
    overlays = [
        Overlay(image, Signal(image.title, image.units, values_at(image, positions_angstrom))) for image in images
    ]
    if not any(np.isfinite(overlay.signal.values).any() for overlay in overlays):
        (left, right, bottom, top), ends = images[0].grid.extent(images[0].image.shape), positions_angstrom
        raise InputError(
            f"{path} covers y {top:.4g} to {bottom:.4g} Å and x {left:.4g} to {right:.4g} Å, the scan "
            f"y {ends[:, 0].min():.4g} to {ends[:, 0].max():.4g} Å and x {ends[:, 1].min():.4g} to "
            f"{ends[:, 1].max():.4g} Å: it is of another scan, or the scan's step is wrong"
        )
    return overlays


def read_images(path: Path) -> list[PageImage]:
    """Reads density, uncertainty, familiarity, trust and estimate, as far as there. Raises InputError if none is."""
    with open_hdf5(path) as file:
        images = [
            _read_image(group, name, path)
            for tree in Hdf5Group(file, "/").groups_with("provenance")
            for name in ("density", "uncertainty", "familiarity", "trust", "estimate")
            if isinstance(group := file.find(f"/{tree}/{name}"), Hdf5Group)
        ]
    if not images:
        raise InputError(f"{path} holds no density: give a file that `python -m train reconstruct` wrote")
    return images


def _read_image(group: Hdf5Group, name: str, path: Path) -> PageImage:
    """Reads one image and its axes."""
    data, *axes = (group.get(key) for key in ("data", "dim0", "dim1"))
    if not isinstance(data, Hdf5Dataset) or not data.is_numeric or len(data.shape) != 2 or 0 in data.shape:
        raise InputError(f"{path}: {name} is no image")
    if math.prod(data.shape) > MAX_PIXELS:
        raise InputError(f"{path}: {name} has {data.shape} pixels, and a page takes {MAX_PIXELS}")
    steps, origins = [], []
    for axis, size in zip(axes, data.shape, strict=True):
        if not isinstance(axis, Hdf5Dataset) or not axis.is_numeric or axis.shape not in ((size,), (2,)):
            raise InputError(f"{path}: {name} has no axes in Å: give a file that `python -m train reconstruct` wrote")
        values = np.asarray(axis[:], np.float64)  # EMD allows two coordinates for all
        step = (values[-1] - values[0]) / (len(values) - 1)
        if not (step > 0 and np.abs(values - values[0] - step * np.arange(len(values))).max() <= SAME_STEP * step):
            raise InputError(f"{path}: an axis of {name} does not have even, rising steps")
        steps.append(float(step))
        origins.append(float(values[0]))
    units = str(data.attribute("units") or "")
    low, high = (None, None) if units else (0.0, 1.0)
    image = np.asarray(data[:], np.float64)
    return PageImage(
        name.capitalize(), units, image, PixelGrid(steps, origins), MAPS[name][0], low, high, smooth=MAPS[name][1]
    )


def values_at(image: PageImage, positions: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns the values of an image at positions `(m, 2)`, interpolated linearly; NaN outside of its pixels."""
    grid, shape = image.grid, image.image.shape
    index = (positions - grid.origin) / grid.step
    inside = ((index >= -0.5) & (index <= np.array(shape) - 0.5)).all(axis=1)
    values = map_coordinates(image.image, index.T, order=1, mode="nearest")
    return np.where(inside, values, np.nan)
