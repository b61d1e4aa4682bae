"""A density as the first object of a ptychographic reconstruction: density, potential, phase σV.

The density becomes a potential by the ratio of its elements' form factors
(`namsa.inverse.mott_bethe.from_elements`), which is exact for one element. Beyond the image, where
a probe reaches, the phase is that of its mirror image: a guess without an edge.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ase.formula import Formula
from scipy.ndimage import map_coordinates

from namsa.base.arrays import Floats
from namsa.base.errors import InputError
from namsa.base.pixels import PixelGrid
from namsa.base.text import shorten
from namsa.inverse.mott_bethe import DensityToPotential, from_elements
from namsa.io.hdf5_items import Hdf5Dataset, Hdf5Group
from namsa.io.safe_hdf5 import open_hdf5
from namsa.physics.grid import Grid
from namsa.physics.optics import interaction_constant

LARGEST_PIXELS = 2**26  # of an image
# of the finest period of the density: splines between such pixels are wrong by less than 1e-3
FINE_PIXEL = 0.25


@dataclass(frozen=True)
class PhaseImage:
    """The phase of a specimen."""

    phase: Floats  # phase (2 ny, 2 nx) of the mirrored image, periodic, rad
    pixels: PixelGrid  # its pixels in the frame of the scan, Å

    def at(self, scan_yx: Floats) -> Floats:
        """Returns the phase at positions (..., 2) as (y, x) in the frame of the scan, Å."""
        indices = (scan_yx - np.asarray(self.pixels.origin)) / np.asarray(self.pixels.step)
        return map_coordinates(self.phase, np.moveaxis(indices, -1, 0), order=3, mode="grid-wrap")


def read_density(path: Path) -> tuple[Floats, PixelGrid]:
    """Reads the density in a file of `reconstruct` or `namsa simulate`.

    Returns:
        Density (ny, nx), e/Å², and its pixels, Å.

    Raises:
        InputError: If the file holds no such density.
    """
    with open_hdf5(path) as file:
        root = Hdf5Group(file, "/")
        for name in root.children():
            data, *along = (
                root.get(f"{name}/density/{dataset}") for dataset in ("data", "dim0", "dim1")
            )
            axes = [
                axis for axis in along if isinstance(axis, Hdf5Dataset) and len(axis.shape) == 1
            ]
            if isinstance(data, Hdf5Dataset) and len(data.shape) == 2 and len(axes) == 2:
                return _image(data, axes, path)
    raise InputError(f"{path} holds no density: give a file of `reconstruct` or `namsa simulate`")


def _image(data: Hdf5Dataset, axes: list[Hdf5Dataset], path: Path) -> tuple[Floats, PixelGrid]:
    """Returns the image with its pixels."""
    shape = data.shape
    if (
        min(shape) < 2
        or shape[0] * shape[1] > LARGEST_PIXELS
        or [axis.shape[0] for axis in axes] != list(shape)
    ):
        raise InputError(
            f"{path} holds a density of {shape[0]} × {shape[1]} pixels with other axes, or too many"
        )
    density = data[:].astype(np.float64)
    first_two = np.array([axis[:2] for axis in axes], np.float64)
    origin = first_two[:, 0]
    steps = first_two[:, 1] - origin
    if not (np.isfinite(density).all() and np.isfinite(steps).all() and steps.min() > 0):
        raise InputError(f"{path} holds a density with numbers or steps that are not finite")
    return density, PixelGrid(steps.tolist(), origin.tolist())


def conversion(formula: str, max_q_per_angstrom: float) -> DensityToPotential:
    """Returns the conversion from density to potential of a formula as SrTiO3. Raises InputError if
    it is none.
    """
    try:
        counts = {symbol: float(count) for symbol, count in Formula(formula).count().items()}
    except (ValueError, KeyError, RecursionError):
        raise InputError(
            f"--formula {shorten(formula)} is no formula: give one as SrTiO3"
        ) from None
    return from_elements(counts, max_q_per_angstrom)


def phase_image(
    density: Floats, pixels: PixelGrid, transfer: DensityToPotential, energy_ev: float
) -> PhaseImage:
    """Converts a density (ny, nx), e/Å², in the frame of the scan to the phase that a wave gets,
    without its mean.
    """
    mirrored = np.block([[density, density[:, ::-1]], [density[::-1], density[::-1, ::-1]]])
    ny, nx = mirrored.shape
    grid = Grid((ny, nx), (ny * pixels.step[0], nx * pixels.step[1]))
    phase = interaction_constant(energy_ev) * transfer.potential(mirrored, grid)
    return _refined(phase - phase.mean(), pixels, FINE_PIXEL / transfer.max_q_per_angstrom)


def _refined(phase: Floats, pixels: PixelGrid, largest_step: float) -> PhaseImage:
    """Returns a periodic image on pixels of `largest_step` or smaller, by its Fourier sum."""
    factors = [max(1, int(np.ceil(step / largest_step))) for step in pixels.step]
    spectrum = np.fft.fftshift(np.fft.fft2(phase))
    # n is even
    pads = [((factor - 1) * n // 2,) * 2 for factor, n in zip(factors, phase.shape, strict=True)]
    fine = np.fft.ifft2(np.fft.ifftshift(np.pad(spectrum, pads))).real * (factors[0] * factors[1])
    steps = [step / factor for step, factor in zip(pixels.step, factors, strict=True)]
    return PhaseImage(fine, PixelGrid(steps, pixels.origin))
