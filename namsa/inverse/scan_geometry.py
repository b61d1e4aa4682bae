"""The geometry of a scan over an object: positions, the box of a probe, and the detector's pixels.

A probe propagates in a square box that its intensity hardly reaches out of. The box is a whole
number of times the length λ/h that belongs to a detector pixel of h rad. Pixels are integrated, not
sampled: where the autocorrelation of the exit wave fits the box, its product with sinc(hx/λ) is
exact.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import fft

from namsa.base.arrays import Array, Floats
from namsa.base.pixels import PixelGrid
from namsa.inverse.microscope import MicroscopeValues
from namsa.physics import optics
from namsa.physics.grid import Grid, fast_shape

BAND = 0.9  # band limit of the box's waves, in units of the Nyquist frequency
FINER = 1.25  # pixels of the box are finer than the detector's reach needs by this factor
TAILS = 1.6  # of a probe, in units of λ/α
SOFT_EDGE = 1.25  # where the aperture's soft edge ends, in units of the semiangle
SPARE = 6  # pixels of the object beyond the boxes, into which the fit may move positions


class HalfShiftedGrid(Grid):
    """A grid whose waves are moved by half their distance in frequency.

    They change sign from one period to the next.
    """

    def frequencies(self) -> tuple[Floats, Floats]:
        """Returns the frequencies (ky, kx), the least positive one first.

        Returns:
            Shapes (ny, 1) and (1, nx), 1/Å.
        """
        ky, kx = super().frequencies()
        return ky + 0.5 / self.extent_angstrom[0], kx + 0.5 / self.extent_angstrom[1]


@dataclass(frozen=True)
class ScanGeometry:
    """A raster of positions over an object."""

    beam: optics.BeamSettings  # with the aberrations that are known
    detector: PixelGrid  # its pixels, mrad
    detector_shape: tuple[int, int]  # its number of pixels (y, x)
    scan: tuple[int, int]  # positions (y, x)
    step_angstrom: tuple[float, float]  # between positions, (y, x)
    slices: int  # of equal thickness
    box: Grid  # in which the probe propagates
    grid: Grid  # of the object

    @cached_property
    def first(self) -> float:
        """Place of the first position in the object, along both axes, Å."""
        return (self.box.shape[0] // 2 + SPARE) * self.box.sampling_angstrom[0]

    @cached_property
    def nominal(self) -> Floats:
        """Positions in the object as the scan states them, `(n, 2)` as (y, x), Å."""
        rows = self.first + self.step_angstrom[0] * np.arange(self.scan[0])
        columns = self.first + self.step_angstrom[1] * np.arange(self.scan[1])
        return np.stack(np.meshgrid(rows, columns, indexing="ij"), axis=-1).reshape(-1, 2)

    @cached_property
    def phases(self) -> Floats:
        """Phase of the lens per Å of each coefficient in `LENS`, `(5, ny, nx)`, rad/Å."""
        ky, kx = self.box.frequencies()
        alpha = self.beam.wavelength * np.hypot(ky, kx)
        phi = np.arctan2(ky, kx)
        wave_number = 2 * np.pi / self.beam.wavelength
        second_order = wave_number * (alpha**2 / 2)
        third_order = wave_number * (alpha**3 / 3)
        return np.stack(
            [
                second_order,
                second_order * np.cos(2 * phi),
                second_order * np.sin(2 * phi),
                third_order * np.cos(phi),
                third_order * np.sin(phi),
            ]
        )

    @cached_property
    def recorded(self) -> tuple[Array, Array]:
        """Matrices (Wy, Wx) that record an exit wave ψ on the detector's pixels.

        The pattern is Wy @ |ψ|² @ Wx, for |ψ|² with zero frequency first.
        """
        angles_y, angles_x = self.detector.coordinates(self.detector_shape)
        step_y, step_x = self.detector.step
        along_y = self._recording_matrix(angles_y, step_y)
        along_x = self._recording_matrix(angles_x, step_x)
        return along_y.astype(np.float32), np.ascontiguousarray(along_x.T, np.float32)

    def _recording_matrix(self, angles_mrad: Floats, pixel_mrad: float) -> Floats:
        """Returns the matrix of the detector's pixels along one axis, `(pixels, n)`."""
        side = self.box.extent_angstrom[0]
        n = self.box.shape[0]
        m = np.arange(-(n // 2), n // 2 + 1)
        wave = self.box.frequencies()[1][0] * side
        ends = np.where(abs(m) == n // 2, 0.5, 1.0)  # both are the Nyquist frequency
        k = angles_mrad * 1e-3 / self.beam.wavelength
        width = pixel_mrad * 1e-3 / self.beam.wavelength
        x = m * side / n
        integrated = np.exp(-2j * np.pi * np.outer(k, x)) * np.sinc(width * x) * ends
        transform = np.exp(2j * np.pi * np.outer(m, wave) / n)
        return np.asarray((width * side / n) * (integrated @ transform).real)

    def moved(self, positions: Floats, microscope: MicroscopeValues) -> Floats:
        """Returns positions after the affine change of the scan about its middle.

        Args:
            positions: `(n, 2)` as (y, x), Å.
        """
        off_middle = positions - self.nominal.mean(axis=0)
        return positions + off_middle @ microscope.scan_change.T


def probe_box(
    beam: optics.BeamSettings,
    detector: PixelGrid,
    detector_shape: tuple[int, int],
    reach_angstrom: float,
    wider: int,
) -> Grid:
    """Returns the box that holds a probe and the tails of the aperture; see `scan_model`.

    The box has waves at the middles of the detector's pixels, for the disk's sharp edge would ring
    between them: if the optic axis is between pixels, the waves are moved by half their distance.
    """
    pixel = max(detector.step) * 1e-3
    tails = TAILS * beam.wavelength / (1e-3 * beam.semiangle_mrad)
    needed = (2 * reach_angstrom + tails) * pixel / beam.wavelength  # in units of λ/h
    multiple = max(1, round(needed)) + wider
    side = beam.wavelength / pixel * multiple

    y, x = detector.coordinates(detector_shape)
    farthest_mrad = max(float(abs(y).max()), float(abs(x).max()))
    largest_angle = max(farthest_mrad * 1e-3 + pixel / 2, SOFT_EDGE * 1e-3 * beam.semiangle_mrad)
    shape = fast_shape((side, side), BAND * beam.wavelength / (2 * largest_angle * FINER))

    axis_between_pixels = bool(np.rint(2 * detector.origin[0] / detector.step[0]) % 2)
    if axis_between_pixels and multiple % 2 == 1:
        return HalfShiftedGrid(shape, (side, side), BAND)
    return Grid(shape, (side, side), BAND)


def object_grid(scan: tuple[int, int], step_angstrom: tuple[float, float], box: Grid) -> Grid:
    """Returns the grid of an object that holds the boxes of all positions, with pixels like theirs.

    It has room for positions that the fit moves.
    """
    sampling = box.sampling_angstrom[0]
    margin = box.shape[0] + 2 * SPARE
    rows = fft.next_fast_len(math.ceil((scan[0] - 1) * step_angstrom[0] / sampling) + margin)
    columns = fft.next_fast_len(math.ceil((scan[1] - 1) * step_angstrom[1] / sampling) + margin)
    return Grid((rows, columns), (rows * sampling, columns * sampling), BAND)
