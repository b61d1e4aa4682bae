"""Waves of the probes of a scan through a projected potential, forwards and backwards.

The conventions are those of `namsa.engines.multislice`, with slices of equal potential. The
gradient is written out, and costs two and a half times the patterns.
"""

from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import fft

from namsa.base.arrays import Array, Floats
from namsa.inverse.microscope import MicroscopeValues
from namsa.inverse.scan_geometry import ScanGeometry
from namsa.physics import optics


class SliceWaves(NamedTuple):
    """Waves of some positions at each slice, which the gradient needs."""

    entering: list[Array]  # in space
    leaving: list[Array]  # in reciprocal space


class ScanWaves:
    """Waves of a scan for one potential and one microscope.

    `forward` computes patterns; `backward` adds to the gradient, which `gradient` returns.
    """

    def __init__(
        self, model: ScanGeometry, potential: Floats, microscope: MicroscopeValues
    ) -> None:
        self.model = model
        self.box = model.box
        self.ky, self.kx = self.box.frequencies()
        self.distance = microscope.thickness / model.slices
        self.sigma = optics.interaction_constant(model.beam.energy_ev) / model.slices
        fresnel = -np.pi * model.beam.wavelength * self.box.squared_frequency()
        tilt_y, tilt_x = microscope.tilt
        self.path = fresnel + 2 * np.pi * (self.ky * tilt_y + self.kx * tilt_x)  # phase per Å
        propagator = self.box.antialias() * np.exp(1j * self.distance * self.path)
        self.propagator = propagator.astype(np.complex64)
        # A slice's potential acts in its middle: the probe comes by half a slice before the first.
        phase = self.distance / 2 * self.path - np.tensordot(microscope.lens, model.phases, 1)
        lens = optics.lens(self.box, model.beam) * np.exp(1j * phase)
        self.lens = lens.astype(np.complex64)
        self.transmission = np.exp(1j * self.sigma * potential).astype(np.complex64)

        pixel = self.box.sampling_angstrom[0]
        n = self.box.shape[0]
        positions = model.moved(model.nominal, microscope)
        self.corners = np.round(positions / pixel).astype(int) - n // 2
        self.offsets = positions - self.corners * pixel
        self.patches = sliding_window_view(self.transmission, (n, n))

        # Gradients
        self.by_transmission = np.zeros_like(self.transmission)
        self.by_lens = np.zeros((n, n), np.complex128)
        self.by_path = np.zeros((n, n))
        self.by_position = np.zeros_like(positions)

    def forward(self, indices: Array) -> tuple[Array, SliceWaves]:
        """Returns the patterns of some positions, by their indices, and the waves on the way."""
        wave = self.lens * self._ramp(indices)
        patches = self._patches(indices)
        waves = SliceWaves([], [])
        for _ in range(self.model.slices):
            entering = fft.ifft2(wave)
            waves.entering.append(entering)
            wave = fft.fft2(entering * patches, overwrite_x=True)
            wave *= self.propagator
            waves.leaving.append(wave)
        rows, columns = self.model.recorded
        return rows @ (wave.real**2 + wave.imag**2) @ columns, waves

    def backward(self, indices: Array, waves: SliceWaves, slope: Array) -> None:
        """Adds the gradients of some positions.

        Args:
            indices: The positions, `(n,)`.
            waves: What `forward` returned for them.
            slope: Gradient by their patterns, `(n, dy, dx)`.
        """
        conjugate = self.propagator.conj()
        rows, columns = self.model.recorded
        back = 2 * waves.leaving[-1] * (rows.T @ slope @ columns.T)
        patches = self._patches(indices).conj()
        by_patch = np.zeros_like(patches)
        for entering, leaving in zip(
            reversed(waves.entering), reversed(waves.leaving), strict=True
        ):
            self.by_path += (back.imag * leaving.real - back.real * leaving.imag).sum(axis=0)
            back *= conjugate
            back = fft.ifft2(back, overwrite_x=True, norm="forward")
            by_patch += back * entering.conj()
            back *= patches
            back = fft.fft2(back, overwrite_x=True, norm="forward")
        self._add_patches(indices, by_patch)
        at_lens = back * self._ramp(indices).conj()
        self.by_lens += at_lens.sum(axis=0)
        turned = 2 * np.pi * (at_lens.conj() * self.lens).imag
        self.by_position[indices, 0] = (turned * self.ky).sum(axis=(1, 2))
        self.by_position[indices, 1] = (turned * self.kx).sum(axis=(1, 2))

    def gradient(self) -> tuple[Floats, MicroscopeValues]:
        """Returns the sums of the gradients.

        Returns:
            By the potential, and by the microscope, whose source is 0: the waves do not know it.
        """
        model = self.model
        at_lens = (self.by_lens.conj() * self.lens).imag
        by_path = self.by_path - at_lens / 2
        turned = 2 * np.pi * self.distance * by_path
        off_middle = model.nominal - model.nominal.mean(axis=0)
        by_microscope = MicroscopeValues(
            lens=np.tensordot(model.phases, at_lens, 2),
            thickness=(by_path * self.path).sum() / model.slices,
            tilt=np.array([(turned * self.ky).sum(), (turned * self.kx).sum()]),
            scan_change=self.by_position.T @ off_middle,
            source=0.0,
        )
        by_phase = (self.by_transmission.conj() * self.transmission).imag
        return -self.sigma * by_phase, by_microscope

    def _patches(self, indices: Array) -> Array:
        """Returns the object's transmission in the boxes of some positions, `(n, ny, nx)`."""
        rows, columns = self.corners[indices].T
        return self.patches[rows, columns]

    def _add_patches(self, indices: Array, by_patch: Array) -> None:
        """Adds gradients in the boxes of some positions to those of the object."""
        n = self.box.shape[0]
        for (y, x), gradient in zip(self.corners[indices], by_patch, strict=True):
            self.by_transmission[y : y + n, x : x + n] += gradient

    def _ramp(self, indices: Array) -> Array:
        """Returns the phases that move a probe from the corner of its box, `(n, ny, nx)`."""
        y, x = self.offsets[indices].T[:, :, None, None]
        rows = np.exp(-2j * np.pi * y * self.ky)
        columns = np.exp(-2j * np.pi * x * self.kx)
        return rows.astype(np.complex64) * columns.astype(np.complex64)
