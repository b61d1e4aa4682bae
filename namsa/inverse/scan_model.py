"""The patterns of a scan as a function of a projected potential and of the microscope, with its gradient.

A probe propagates in a square box that its intensity hardly reaches out of, through equal slices of the potential; the
box is a whole number of times the length λ/h that belongs to a detector pixel of h rad. Pixels are integrated, not
sampled: where the autocorrelation of the exit wave fits the box, its product with sinc(hx/λ) is exact. The source is a
Gaussian blur of the patterns along the scan. The conventions are those of `namsa.engines.multislice`; the gradient is
written out, and costs two and a half times the patterns.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import fft

from namsa.arrays import Array, Floats
from namsa.physics import optics
from namsa.physics.grid import Grid, fast_shape
from namsa.pixels import PixelGrid

BAND = 0.9  # band limit of the box's waves, in units of the Nyquist frequency
FINER = 1.25  # pixels of the box are finer than the detector's reach needs by this factor
TAILS = 1.6  # of a probe, in units of λ/α
SPARE = 6  # pixels of the object beyond the boxes, into which the fit may move positions
LARGEST_BYTES = 2**30  # of waves that are kept for the gradient; more are computed twice
BATCH = 64  # positions at a time
DARK = 1e-6  # fraction of the beam that is added to each pixel: what no elastic model explains
# The numbers of the microscope, in the order of arrays `(13,)`: the lens, Å, with C12 and C21 along x and at 45° or
# along y; thickness, Å; the specimen's tilt, rad; the affine change of the scan, 1; the variance of the source, Å².
NAMES = (
    *("C10", "C12_x", "C12_y", "C21_x", "C21_y"),
    *("thickness", "tilt_y", "tilt_x", "scan_yy", "scan_yx", "scan_xy", "scan_xx", "source"),
)
LENS, THICKNESS, TILT_Y, TILT_X, SCAN, VARIANCE = slice(0, 5), 5, 6, 7, slice(8, 12), 12  # their places


class Misfit(NamedTuple):
    """How far the patterns are from the measured ones, with the gradient of it."""

    used: float  # Kullback–Leibler divergence at the positions that are used, of their whole intensity
    kept_out: float  # the same at the others
    residual: float  # R of `namsa.inverse.consistency` at the others
    potential: Floats  # gradient of `used` by the potential, `(ny, nx)`, 1/(V·Å)
    microscope: Floats  # gradient of `used` by the numbers of the microscope, `(13,)`


class _Between(Grid):
    """A grid whose waves are moved by half their distance: they change sign from one period to the next."""

    def frequencies(self) -> tuple[Floats, Floats]:
        """Returns the frequencies (ky, kx), shapes (ny, 1) and (1, nx), 1/Å, the least positive one first."""
        ky, kx = super().frequencies()
        return ky + 0.5 / self.extent_angstrom[0], kx + 0.5 / self.extent_angstrom[1]


def divergences(simulated: Array, measured: Array, used: Array, known: Array) -> tuple[float, float, float]:
    """Returns the first three numbers of `Misfit`, of patterns `(n, dy, dx)`; see `ScanModel.misfit`."""
    model, data = np.maximum(simulated, 0) + DARK, measured + DARK
    terms = (model - data + data * np.log(data / model)).sum(axis=(1, 2), dtype=np.float64)
    whole, out = measured.sum(axis=(1, 2), dtype=np.float64), known & ~used
    roots = np.sqrt(measured[out])
    residual = abs(np.sqrt(model[out] - DARK) - roots).sum(dtype=np.float64) / max(float(roots.sum()), 1e-30)
    of_used, of_out = (float(terms[each].sum() / max(whole[each].sum(), 1e-30)) for each in (used & known, out))
    return of_used, of_out, float(residual)


@dataclass(frozen=True)
class ScanModel:
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
        rows, columns = (
            self.first + step * np.arange(n) for step, n in zip(self.step_angstrom, self.scan, strict=True)
        )
        return np.stack(np.meshgrid(rows, columns, indexing="ij"), axis=-1).reshape(-1, 2)

    @cached_property
    def phases(self) -> Floats:
        """Phase of the lens per Å of each of its coefficients in `NAMES`, `(5, ny, nx)`, rad/Å."""
        ky, kx = self.box.frequencies()
        alpha, phi = self.beam.wavelength * np.hypot(ky, kx), np.arctan2(ky, kx)
        first, second = 2 * np.pi / self.beam.wavelength * np.stack([alpha**2 / 2, alpha**3 / 3])
        turned = (first, first * np.cos(2 * phi), first * np.sin(2 * phi), second * np.cos(phi), second * np.sin(phi))
        return np.stack(turned)

    @cached_property
    def recorded(self) -> tuple[Array, Array]:
        """Matrices (Wy, Wx) with Wy @ |ψ|² @ Wx = the pattern, for |ψ|² with zero frequency first."""
        side, n = self.box.extent_angstrom[0], self.box.shape[0]
        m, wave = np.arange(-(n // 2), n // 2 + 1), self.box.frequencies()[1][0] * side
        ends = np.where(abs(m) == n // 2, 0.5, 1.0)  # both are the Nyquist frequency
        matrices = []
        for angles, pixel in zip(self.detector.coordinates(self.detector_shape), self.detector.step, strict=True):
            k, width, x = angles * 1e-3 / self.beam.wavelength, pixel * 1e-3 / self.beam.wavelength, m * side / n
            integrated = np.exp(-2j * np.pi * np.outer(k, x)) * np.sinc(width * x) * ends
            matrices.append((width * side / n) * (integrated @ np.exp(2j * np.pi * np.outer(m, wave) / n)).real)
        return matrices[0].astype(np.float32), np.ascontiguousarray(matrices[1].T, np.float32)

    def moved(self, positions: Floats, microscope: Floats) -> Floats:
        """Returns positions, `(n, 2)` as (y, x), Å, after the affine change of the scan about its middle."""
        return positions + (positions - self.nominal.mean(axis=0)) @ microscope[SCAN].reshape(2, 2).T

    def patterns(self, potential: Floats, microscope: Floats, at: Array) -> Array:
        """Returns the patterns of a point source at some positions, by their indices `(n,)`: `(n, dy, dx)`."""
        waves, simulated = _Waves(self, potential, microscope), np.empty((len(at), *self.detector_shape), np.float32)
        for i in range(0, len(at), BATCH):
            simulated[i : i + BATCH] = waves.forward(at[i : i + BATCH])[0]
        return simulated

    def misfit(
        self,
        potential: Floats,  # of the whole thickness, `(ny, nx)`, V·Å
        microscope: Floats,  # its numbers, `(13,)`; see `NAMES`
        measured: Array,  # `(n, dy, dx)`, fractions of the beam
        used: Array,  # whether a position counts for the gradient, `(n,)`
        known: Array,  # whether a position's pattern was recorded, `(n,)`
        added: Array | float = 0.0,  # to the patterns of a point source, in the shape of `measured`
    ) -> Misfit:
        """Compares the patterns with measured ones."""
        waves, positions = _Waves(self, potential, microscope), np.arange(len(measured))
        parts = [positions[i : i + BATCH] for i in range(0, len(measured), BATCH)]
        held = 16 * len(measured) * self.slices * self.box.shape[0] ** 2 <= LARGEST_BYTES
        point, kept = np.empty_like(measured), list[_Passed | None]()
        for part in parts:
            point[part], passed = waves.forward(part)
            kept.append(passed if held else None)
        point += added
        simulated = self.blurred(point, microscope[VARIANCE])
        ratio, counts = (measured + DARK) / (np.maximum(simulated, 0) + DARK), used & known
        whole = measured.sum(axis=(1, 2), dtype=np.float64)[counts].sum()
        slope = np.where(counts[:, None, None] & (simulated > 0), 1 - ratio, 0) / whole
        slope = slope.astype(np.float32)
        by_source = float(np.vdot(slope, self.by_variance(point, microscope[VARIANCE])))
        along_y, along_x = self._blur(microscope[VARIANCE])
        slope = self._along(along_y.T, along_x.T, slope)
        for part, keep in zip(reversed(parts), reversed(kept), strict=True):
            waves.backward(part, keep or waves.forward(part)[1], slope[part])
        by_potential, by_microscope = waves.gradient()
        by_microscope[VARIANCE] = by_source
        return Misfit(*divergences(simulated, measured, used, known), by_potential, by_microscope)

    def blurred(self, patterns: Array, variance: float) -> Array:
        """Returns the patterns of a source of some variance, Å², from those of a point, `(n, dy, dx)`.

        Along each axis, patterns are continued beyond the scan as its ends and what is odd about them: a straight line
        stays one. (If they were mirrored, positions near the edges would seem to lie further out.)
        """
        return self._along(*self._blur(variance), patterns)

    def by_variance(self, patterns: Array, variance: float) -> Array:
        """Returns the derivative of what `blurred` returns by the variance."""
        (y, x), (of_y, of_x) = self._blur(variance), self._blur(variance, 1)
        return self._along(of_y, x, patterns) + self._along(y, of_x, patterns)

    def _along(self, y: Array, x: Array, patterns: Array) -> Array:
        """Returns patterns after matrices along the rows and columns of the scan."""
        rows = (y @ patterns.reshape(self.scan[0], -1)).reshape(*self.scan, -1)
        return (x @ rows).reshape(patterns.shape)

    def _blur(self, variance: float, power: int = 0) -> tuple[Array, Array]:
        """Returns the matrices of the blur along both axes, or those of its derivative by the variance."""
        matrices = []
        for n, step in zip(self.scan, self.step_angstrom, strict=True):
            k, place = np.arange(1, n - 1), np.linspace(0, 1, n)
            line = np.zeros((n, n))
            line[:, 0] += 1 - place
            line[:, -1] += place
            sines = np.sqrt(2 / max(n - 1, 1)) * np.sin(np.pi * (n - 1) * np.outer(place, k) / max(n - 1, 1))
            decay = -2 * np.pi**2 * (k / (2 * max(n - 1, 1) * step)) ** 2
            damped = (sines * decay**power * np.exp(decay * variance)) @ sines.T @ (np.eye(n) - line)
            matrices.append((damped if power else damped + line).astype(np.float32))
        return matrices[0], matrices[1]


class _Passed(NamedTuple):
    """Waves of some positions, by slice: entering it in space, leaving it in reciprocal space."""

    entering: list[Array]
    leaving: list[Array]


class _Waves:
    """Waves of a model for one potential and microscope, forwards and backwards."""

    def __init__(self, model: ScanModel, potential: Floats, microscope: Floats) -> None:
        self.model, self.box, n = model, model.box, model.box.shape[0]
        self.ky, self.kx = self.box.frequencies()
        self.distance = microscope[THICKNESS] / model.slices
        self.sigma = optics.interaction_constant(model.beam.energy_ev) / model.slices
        fresnel = -np.pi * model.beam.wavelength * self.box.squared_frequency()
        self.path = fresnel + 2 * np.pi * (self.ky * microscope[TILT_Y] + self.kx * microscope[TILT_X])  # phase per Å
        # A slice's potential acts in its middle: the probe comes by half a slice before the first.
        self.propagator = (self.box.antialias() * np.exp(1j * self.distance * self.path)).astype(np.complex64)
        phase = self.distance / 2 * self.path - np.tensordot(microscope[LENS], model.phases, 1)
        lens = optics.lens(self.box, model.beam) * np.exp(1j * phase)
        self.lens = lens.astype(np.complex64)
        self.transmission = np.exp(1j * self.sigma * potential).astype(np.complex64)
        pixel = self.box.sampling_angstrom[0]
        positions = model.moved(model.nominal, microscope)
        self.corners = np.round(positions / pixel).astype(int) - n // 2
        self.offsets = positions - self.corners * pixel
        self.patches = sliding_window_view(self.transmission, (n, n))
        self.by_transmission, self.by_lens = np.zeros_like(self.transmission), np.zeros((n, n), np.complex128)
        self.by_path, self.by_position = np.zeros((n, n)), np.zeros_like(positions)

    def forward(self, part: Array) -> tuple[Array, _Passed]:
        """Returns the patterns of some positions, by their indices, and the waves on the way."""
        wave, patches, passed = self.lens * self._ramp(part), self.patches[tuple(self.corners[part].T)], _Passed([], [])
        for _ in range(self.model.slices):
            passed.entering.append(fft.ifft2(wave))
            wave = fft.fft2(passed.entering[-1] * patches, overwrite_x=True)
            wave *= self.propagator
            passed.leaving.append(wave)
        rows, columns = self.model.recorded
        return rows @ (wave.real**2 + wave.imag**2) @ columns, passed

    def backward(self, part: Array, passed: _Passed, slope: Array) -> None:
        """Adds the gradients of some positions, by the slope of their patterns."""
        n, conjugate = self.box.shape[0], self.propagator.conj()
        rows, columns = self.model.recorded
        back = 2 * passed.leaving[-1] * (rows.T @ slope @ columns.T)
        patches = self.patches[tuple(self.corners[part].T)].conj()
        added = np.zeros_like(patches)
        for entering, leaving in zip(reversed(passed.entering), reversed(passed.leaving), strict=True):
            self.by_path += (back.imag * leaving.real - back.real * leaving.imag).sum(axis=0)
            back *= conjugate
            back = fft.ifft2(back, overwrite_x=True, norm="forward")
            added += back * entering.conj()
            back *= patches
            back = fft.fft2(back, overwrite_x=True, norm="forward")
        for (y, x), values in zip(self.corners[part], added, strict=True):
            self.by_transmission[y : y + n, x : x + n] += values
        at_lens = back * self._ramp(part).conj()
        self.by_lens += at_lens.sum(axis=0)
        turned = 2 * np.pi * (at_lens.conj() * self.lens).imag
        self.by_position[part] = np.stack([(turned * k).sum(axis=(1, 2)) for k in (self.ky, self.kx)], axis=1)

    def gradient(self) -> tuple[Floats, Floats]:
        """Returns the sums: by the potential, and by the microscope but for the source."""
        model = self.model
        off = model.nominal - model.nominal.mean(axis=0)
        at_lens = (self.by_lens.conj() * self.lens).imag
        of_lens = np.tensordot(model.phases, at_lens, 2)
        by_path = self.by_path - at_lens / 2
        turned = 2 * np.pi * self.distance * by_path
        propagation = (
            (by_path * self.path).sum() / model.slices,
            (turned * self.ky).sum(),
            (turned * self.kx).sum(),
        )
        microscope = np.concatenate([of_lens, propagation, (self.by_position.T @ off).ravel(), [0.0]])
        return -self.sigma * (self.by_transmission.conj() * self.transmission).imag, microscope

    def _ramp(self, part: Array) -> Array:
        """Returns the phases that move a probe from the corner of its box, `(n, ny, nx)`."""
        y, x = self.offsets[part].T[:, :, None, None]
        rows, columns = np.exp(-2j * np.pi * y * self.ky), np.exp(-2j * np.pi * x * self.kx)
        return rows.astype(np.complex64) * columns.astype(np.complex64)


def scan_model(
    beam: optics.BeamSettings,  # with the aberrations that are known
    detector: PixelGrid,  # its pixels, mrad
    detector_shape: tuple[int, int],  # its number of pixels (y, x)
    scan: tuple[int, int],  # positions (y, x)
    step_angstrom: tuple[float, float],  # between positions, (y, x)
    slices: int,  # of equal thickness
    reach_angstrom: float,  # how far a probe's intensity reaches from its middle, at any depth
    wider: int = 0,  # by how many times λ/h the box is wider than needed, for a detector pixel of h rad
) -> ScanModel:
    """Returns the model of a scan, with a box that holds the probes and the tails of the aperture.

    The box has waves at the middles of the detector's pixels, for the disk's sharp edge would ring between them: if the
    optic axis is between pixels, the waves are moved by half their distance.
    """
    pixel, between = max(detector.step) * 1e-3, bool(np.rint(2 * detector.origin[0] / detector.step[0]) % 2)
    held = (2 * reach_angstrom + TAILS * beam.wavelength / (1e-3 * beam.semiangle_mrad)) * pixel / beam.wavelength
    multiple = max(1, round(held)) + wider
    between = between and multiple % 2 == 1
    side = beam.wavelength / pixel * multiple
    reach = max(float(abs(each).max()) for each in detector.coordinates(detector_shape)) * 1e-3 + pixel / 2
    angle = max(reach, 1.25e-3 * beam.semiangle_mrad)  # 1.25: the aperture's soft edge
    kind = _Between if between else Grid
    box = kind(fast_shape((side, side), BAND * beam.wavelength / (2 * angle * FINER)), (side, side), BAND)
    sampling, n = box.sampling_angstrom[0], box.shape[0]
    sizes = [
        fft.next_fast_len(math.ceil((k - 1) * d / sampling) + n + 2 * SPARE)
        for k, d in zip(scan, step_angstrom, strict=True)
    ]
    grid = Grid((sizes[0], sizes[1]), (sizes[0] * sampling, sizes[1] * sampling), BAND)
    return ScanModel(beam, detector, detector_shape, scan, step_angstrom, slices, box, grid)
