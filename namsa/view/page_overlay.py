"""Images of a reconstruction, which a page shows over its maps.

The file is what `namsa-train reconstruct` writes: a tree with one group for each image, with
its axes in Å.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.ndimage import map_coordinates

from namsa.base.errors import InputError
from namsa.base.pixels import PixelGrid
from namsa.figures.density_figure import MAPS
from namsa.figures.page_images import PageImage
from namsa.figures.sample_figure import Signal
from namsa.io.hdf5_items import Hdf5Dataset, Hdf5Group
from namsa.io.safe_hdf5 import open_hdf5

NAMES = ("density", "uncertainty", "familiarity", "trust", "estimate")
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
        path: File of `namsa-train reconstruct`.
        positions_angstrom: The positions that the page shows, `(m, 2)`, Å.

    Raises:
        InputError: If the file holds no such images, or if they lie beside the positions.
    """
    images = read_images(path)
    overlays = []
    for image in images:
        values = values_at(image, positions_angstrom)
        overlays.append(Overlay(image, Signal(image.title, image.units, values)))
    if not any(np.isfinite(overlay.signal.values).any() for overlay in overlays):
        left, right, bottom, top = images[0].grid.extent(images[0].image.shape)
        y, x = positions_angstrom.T
        raise InputError(
            f"{path} covers y {top:.4g} to {bottom:.4g} Å and x {left:.4g} to {right:.4g} Å, the "
            f"scan y {y.min():.4g} to {y.max():.4g} Å and x {x.min():.4g} to {x.max():.4g} Å: it "
            "is of another scan, or the scan's step is wrong"
        )
    return overlays


def read_images(path: Path) -> list[PageImage]:
    """Reads density, uncertainty, familiarity, trust and estimate, as far as there.

    Raises:
        InputError: If none is.
    """
    images = []
    with open_hdf5(path) as file:
        for tree in Hdf5Group(file, "/").groups_with("provenance"):
            for name in NAMES:
                group = file.find(f"/{tree}/{name}")
                if isinstance(group, Hdf5Group):
                    images.append(_read_image(group, name, path))
    if not images:
        raise InputError(
            f"{path} holds no density: give a file that `namsa-train reconstruct` wrote"
        )
    return images


def _read_image(group: Hdf5Group, name: str, path: Path) -> PageImage:
    """Reads one image and its axes."""
    data = group.get("data")
    if not isinstance(data, Hdf5Dataset) or not data.is_numeric:
        raise InputError(f"{path}: {name} is no image")
    if len(data.shape) != 2 or 0 in data.shape:
        raise InputError(f"{path}: {name} is no image")
    if math.prod(data.shape) > MAX_PIXELS:
        raise InputError(f"{path}: {name} has {data.shape} pixels, and a page takes {MAX_PIXELS}")
    origin_y, step_y = _read_axis(group.get("dim0"), data.shape[0], path, name)
    origin_x, step_x = _read_axis(group.get("dim1"), data.shape[1], path, name)
    units = str(data.attribute("units") or "")
    colours, smooth = MAPS[name]
    return PageImage(
        title=name.capitalize(),
        units=units,
        image=np.asarray(data[:], np.float64),
        grid=PixelGrid((step_y, step_x), (origin_y, origin_x)),
        colours=colours,
        low=None if units else 0.0,
        high=None if units else 1.0,
        smooth=smooth,
    )


def _read_axis(axis: object, length: int, path: Path, name: str) -> tuple[float, float]:
    """Returns origin and step of an axis, Å.

    Args:
        axis: What the file has in the place of the axis.
        length: Number of pixels along it.
        path: The file, for messages.
        name: The image, for messages.

    Raises:
        InputError: If it is no axis of the image, or not even.
    """
    no_axes = InputError(
        f"{path}: {name} has no axes in Å: give a file that `namsa-train reconstruct` wrote"
    )
    if not isinstance(axis, Hdf5Dataset) or not axis.is_numeric:
        raise no_axes
    if axis.shape not in ((length,), (2,)):
        raise no_axes
    values = np.asarray(axis[:], np.float64)  # EMD allows two coordinates for all
    step = float((values[-1] - values[0]) / (len(values) - 1))
    even = values[0] + step * np.arange(len(values))
    if not step > 0 or not np.abs(values - even).max() <= SAME_STEP * step:
        raise InputError(f"{path}: an axis of {name} does not have even, rising steps")
    return float(values[0]), step


def values_at(image: PageImage, positions: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns the values of an image at positions `(m, 2)`, interpolated linearly.

    They are NaN outside of its pixels.
    """
    grid = image.grid
    shape = image.image.shape
    index = (positions - grid.origin) / grid.step
    inside = ((index >= -0.5) & (index <= np.array(shape) - 0.5)).all(axis=1)
    values = map_coordinates(image.image, index.T, order=1, mode="nearest")
    return np.where(inside, values, np.nan)
