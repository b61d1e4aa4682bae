"""The response between specimen and recorded counts: plasmons, modulation transfer, counting losses
and saturation; pixels and point spread are in `namsa.physics.detector`.

Plasmons and the modulation transfer are convolutions of each pattern, done as one product in
Fourier space over twice the detector: what they move over its edge is lost, and nothing comes in
from outside. Counting losses and saturation follow from the expected electrons in each pixel.

A plasmon of energy ΔE scatters by angles with the density L(θ) = 1/(π ln(1 + θ_c²/θ_E²)) · 1/(θ² +
θ_E²) up to the critical angle θ_c, with θ_E = ΔE/(γmv²) (Egerton, Electron Energy-Loss Spectroscopy
in the Electron Microscope, 3rd ed. (2011), chapter 3). The number of plasmons is Poisson
distributed with the mean t/λ, of thickness and mean free path. Elastic scattering and plasmons are
taken as independent, so that a pattern is convolved with Σ_n P_n L*L*...*L, whose transform is
exp(t/λ (L̂ − 1)). Measurements of low-angle patterns are described so (Beyer et al., Sci. Rep. 10
(2020) 17890; Robert et al., Appl. Phys. Lett. 121 (2022) 213502).
"""

from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import numpy as np
from scipy import constants, fft

from namsa.base.arrays import Array, Floats
from namsa.base.errors import InputError
from namsa.base.files import read_text
from namsa.base.text import shorten
from namsa.config.response import Plasmons, Response

LARGEST_MTF_BYTES = 2**20
# of a single frequency; a threshold that cuts shared charge off can raise it above the pixel's own
_LARGEST_MTF = 1.5
# cycles per pixel; the pixel transfers nothing at 1
_LARGEST_FREQUENCY = 0.95
_ALIASES = 2
_AT_ONCE = 64  # patterns


@dataclass(frozen=True)
class PatternFilter:
    """A convolution of patterns."""

    transfer: Floats  # its transform, (py, px // 2 + 1), for patterns that are padded to (py, px)
    shape: tuple[int, int]  # (py, px)

    def apply(self, patterns: Array) -> None:
        """Convolves patterns (n, dy, dx) in place. Rounding below 0 is set to 0."""
        rows, columns = patterns.shape[1:]
        transfer = self.transfer.astype(patterns.dtype)
        for start in range(0, len(patterns), _AT_ONCE):
            batch = patterns[start : start + _AT_ONCE]
            blurred = fft.irfft2(fft.rfft2(batch, s=self.shape) * transfer, s=self.shape)
            np.maximum(blurred[:, :rows, :columns], 0, out=batch)


def pattern_filter(
    shape: tuple[int, int],  # pixels (dy, dx) of a pattern
    pixel_mrad: tuple[float, float],  # their size (y, x), mrad
    energy_ev: float,  # electron energy, eV
    thickness_angstrom: float,  # thickness of the specimen, Å
    plasmons: Plasmons | None,
    response: Response | None,
) -> PatternFilter | None:
    """Returns what plasmons and modulation transfer do to patterns, if anything. Raises InputError
    for a wrong file.
    """
    orders = thickness_angstrom / plasmons.mean_free_path_angstrom if plasmons else 0.0
    mtf_file = response.mtf_file if response else None
    if not orders and mtf_file is None:
        return None
    padded = fft.next_fast_len(2 * shape[0], True), fft.next_fast_len(2 * shape[1], True)
    transfer = np.ones((padded[0], padded[1] // 2 + 1))
    if plasmons and orders:
        reach = shape[0] - 1, shape[1] - 1
        single = single_scattering(plasmons, energy_ev, pixel_mrad, reach)
        kernel = np.zeros(padded)
        kernel[: single.shape[0], : single.shape[1]] = single
        kernel = np.roll(kernel, (-reach[0], -reach[1]), axis=(0, 1))
        transfer = np.exp(orders * (fft.rfft2(kernel).real - 1))
    if mtf_file is not None:
        transfer = transfer * _pixel_transfer(padded, *read_mtf(mtf_file))
    return PatternFilter(transfer, padded)


def _pixel_transfer(shape: tuple[int, int], frequency: Floats, mtf: Floats) -> Floats:
    """Returns the transform of the fraction that a pixel passes to the pixel n farther on, (py, px
    // 2 + 1).

    A measured MTF is sinc(f) g(f), of the pixel and of the sensor. An electron that enters a pixel
    anywhere is counted n pixels farther on with the probability (box * box * sensor)(n), whose
    transform is Σ_m sinc²(f + m) g(f + m). That is 1 for g = 1. Beyond the frequencies that are
    measured, or where the pixel transfers nothing, g is constant.
    """
    used = (frequency < _LARGEST_FREQUENCY) | (frequency <= 0.5)
    g = mtf[used] / np.sinc(frequency[used])
    total = np.full((shape[0], shape[1] // 2 + 1), g[-1])
    for m in range(-_ALIASES, _ALIASES + 1):
        for n in range(-_ALIASES, _ALIASES + 1):
            y = fft.fftfreq(shape[0])[:, None] + m
            x = fft.rfftfreq(shape[1]) + n
            share = np.sinc(y) ** 2 * np.sinc(x) ** 2
            total += share * (np.interp(np.hypot(y, x), frequency[used], g) - g[-1])
    return total


def read_mtf(path: Path) -> tuple[Floats, Floats]:
    """Reads a modulation transfer function: two columns, cycles per pixel and MTF; # begins a
    comment.

    Returns:
        Frequencies, increasing, and values, each (n,).

    Raises:
        InputError: If the file cannot be read, or the function does not begin with 1 at 0 and reach
            to 0.5.
    """
    text = read_text(path, largest_bytes=LARGEST_MTF_BYTES, kind="the detector's MTF")
    try:
        columns = np.loadtxt(StringIO(text.replace(",", " ")), ndmin=2, dtype=np.float64)
    except ValueError as error:
        raise InputError(f"{path} is no table of two columns: {shorten(error, 200)}") from None
    if (
        columns.ndim != 2
        or columns.shape[1] != 2
        or len(columns) < 2
        or not np.isfinite(columns).all()
    ):
        raise InputError(
            f"{path} must have two columns of finite numbers: cycles per pixel, and MTF"
        )
    frequency, mtf = columns.T
    if np.any(np.diff(frequency) <= 0) or frequency[0] != 0 or frequency[-1] < 0.5:
        raise InputError(
            f"{path}: frequencies must increase from 0 to 0.5 cycles per pixel or more"
        )
    if abs(mtf[0] - 1) > 1e-3 or mtf.min() < 0 or mtf.max() > _LARGEST_MTF:
        raise InputError(
            f"{path}: the MTF must be 1 at 0, and within 0 to {_LARGEST_MTF:g} (now from "
            f"{mtf[0]:g})"
        )
    return frequency, mtf / mtf[0]


def counted(patterns: Array, electrons: float, response: Response) -> Array:
    """Returns expected patterns, fractions of the beam of any shape, after losses within the
    detector's dead time.

    A pixel that n electrons hit in the dwell time T counts n/(1 + nτ/T) of them with the dead time
    τ, or n exp(−nτ/T) if electrons within the dead time extend it (Knoll, Radiation Detection and
    Measurement, 4th ed. (2010), chapter 4).
    """
    if not response.dead_time_ns or not response.dwell_time_us:
        return patterns
    load = patterns * (electrons * response.dead_time_ns * 1e-3 / response.dwell_time_us)
    if response.dead_time_model == "paralyzable":
        return patterns * np.exp(-load)
    return patterns / (1 + load)


_REST_ENERGY_EV = constants.m_e * constants.c**2 / constants.e
# per pixel and axis; the pixel in the centre, where L is steep, is integrated in polar coordinates
_SAMPLES = 16
_DIRECTIONS = 4096


def characteristic_angle(energy_ev: float, energy_loss_ev: float) -> float:
    """Returns θ_E = ΔE/(γmv²) = ΔE (E + mc²)/(E (E + 2mc²)), rad; 0.0486 mrad for 16.7 eV at 200
    kV.
    """
    return (
        energy_loss_ev
        * (energy_ev + _REST_ENERGY_EV)
        / (energy_ev * (energy_ev + 2 * _REST_ENERGY_EV))
    )


def critical_angle(plasmons: Plasmons, energy_ev: float) -> float:
    """Returns θ_c as given, or √(2θ_E), the angle of the Bethe ridge, rad."""
    if plasmons.critical_angle_mrad is not None:
        return plasmons.critical_angle_mrad * 1e-3
    return float(np.sqrt(2 * characteristic_angle(energy_ev, plasmons.energy_loss_ev)))


def single_scattering(
    plasmons: Plasmons, energy_ev: float, pixel_mrad: tuple[float, float], reach: tuple[int, int]
) -> Floats:
    """Returns the fraction that one plasmon scatters from the centre of a pixel into each pixel
    around it.

    Args:
        pixel_mrad: Size (y, x) of a pixel, mrad.
        reach: Pixels (y, x) to each side; what is scattered farther is left out.

    Returns:
        Fractions (2·reach + 1), the pixel itself in the centre. Their sum is 1 if they reach to the
        critical angle.
    """
    inner = characteristic_angle(energy_ev, plasmons.energy_loss_ev)
    outer = critical_angle(plasmons, energy_ev)
    size_y = pixel_mrad[0] * 1e-3
    size_x = pixel_mrad[1] * 1e-3
    log = np.log1p((outer / inner) ** 2)

    direction = 2 * np.pi * (np.arange(_DIRECTIONS) + 0.5) / _DIRECTIONS
    edge = np.minimum(
        size_y / 2 / np.abs(np.sin(direction)), size_x / 2 / np.abs(np.cos(direction))
    )
    centre = float(np.mean(np.log1p((np.minimum(edge, outer) / inner) ** 2)) / log)

    # Pixels to the critical angle, from which those beyond `reach` are cut, so that the fractions
    # stay right.
    far_y = int(np.ceil(outer / size_y + 0.5))
    far_x = int(np.ceil(outer / size_x + 0.5))
    y = _angles_within_pixels(far_y, size_y)
    x = _angles_within_pixels(far_x, size_x)
    squared = y[:, None] ** 2 + x**2
    density = np.where(squared < outer**2, 1 / (squared + inner**2), 0.0)
    by_pixel = density.reshape(2 * far_y + 1, _SAMPLES, 2 * far_x + 1, _SAMPLES)
    kernel: Floats = by_pixel.sum(axis=(1, 3))
    kernel[far_y, far_x] = 0
    total = kernel.sum()
    if total:
        kernel *= (1 - centre) / total
        kernel[far_y, far_x] = centre
    else:
        kernel[far_y, far_x] = 1.0
    return _cut_or_padded(kernel, reach)


def _angles_within_pixels(pixels: int, size: float) -> Floats:
    """Returns angles within pixels to each side of the centre, `_SAMPLES` in each, rad."""
    within = (np.arange(_SAMPLES) + 0.5) / _SAMPLES - 0.5
    return (np.arange(-pixels, pixels + 1)[:, None] + within).ravel() * size


def _cut_or_padded(kernel: Floats, reach: tuple[int, int]) -> Floats:
    """Returns a kernel with this number of pixels (y, x) to each side of its centre."""
    out = np.zeros((2 * reach[0] + 1, 2 * reach[1] + 1))
    centre_y, centre_x = (n // 2 for n in kernel.shape)
    kept_y = min(centre_y, reach[0])
    kept_x = min(centre_x, reach[1])
    out[
        reach[0] - kept_y : reach[0] + kept_y + 1,
        reach[1] - kept_x : reach[1] + kept_x + 1,
    ] = kernel[
        centre_y - kept_y : centre_y + kept_y + 1,
        centre_x - kept_x : centre_x + kept_x + 1,
    ]
    return out
