"""Virtual detectors: images that a scan's patterns hold.

Patterns are (n, dy, dx) fractions of the beam, `angles` says where their pixels are in mrad (`namsa.pixels`); an image
is a list (n,) or (n, 2) over probe positions, to be reshaped by the scan.

The mean angle of a pattern is the probe's mean deflection. For a thin specimen with transmission exp(iφ) it is
(λ/2π) ∇(φ ⋆ |probe|²), since electrons are drawn to where φ = σv is high: a probe beside an atom is deflected
towards it. Its integral is therefore the phase as the probe blurs it; Lazić, Bosch & Lazar, Ultramicroscopy 160, 265
(2016).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.errors import InputError
from namsa.pixels import PixelGrid

Image = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


def annular(patterns: Image, angles: PixelGrid, inner_mrad: float, outer_mrad: float) -> Floats:
    """The fraction of the beam scattered from one angle up to another, (n,): dark field, or with inner 0 bright field.

    A pixel counts whole where its centre is. Raises InputError where the ring holds no pixel.
    """
    angle = angles.distance(patterns.shape[1:])
    ring = (angle >= inner_mrad) & (angle < outer_mrad)
    if not ring.any():
        raise InputError(
            f"no detector pixel lies in {inner_mrad:g} to {outer_mrad:g} mrad: "
            f"its centres reach from {angle.min():.2f} to {angle.max():.2f} mrad"
        )
    return np.array([pattern[ring].sum(dtype=np.float64) for pattern in patterns])  # one by one: no copy of the stack


def bright_field(patterns: Image, angles: PixelGrid, semiangle_mrad: float) -> Floats:
    """The fraction of the beam in the aperture's disk, (n,)."""
    return annular(patterns, angles, 0, semiangle_mrad)


def centre_of_mass(patterns: Image, angles: PixelGrid) -> Floats:
    """Mean angle (y, x) of the electrons on the detector, (n, 2) in mrad; (0, 0) where there are none."""
    y, x = angles.coordinates(patterns.shape[1:])
    along_y, along_x = (patterns.sum(axis=axis, dtype=np.float64) for axis in (2, 1))
    total = along_y.sum(axis=1)
    moments = np.stack([along_y @ y, along_x @ x], axis=1)
    return moments / np.where(total > 0, total, 1)[:, None]


def integrated_centre_of_mass(
    deflection_mrad: Floats, step_angstrom: tuple[float, float], wavelength: float, periodic: bool = True
) -> Floats:
    """The phase (sy, sx), in rad and of mean 0, whose gradient fits the deflection (sy, sx, 2) best; iCoM.

    Over the interaction constant it is a projected potential in V·Å. wavelength: Å
    periodic: whether the scan fills the cell; one that does not is continued by its mirror images
    """
    gradient = 2e-3 * np.pi / wavelength * deflection_mrad
    (sy, sx), (gy, gx) = gradient.shape[:2], np.moveaxis(gradient, -1, 0)
    if not periodic:  # the mirrored phase's gradient is odd across the mirror, and even along it
        gy, gx = (np.concatenate([g, sign * g[::-1]], axis=0) for g, sign in ((gy, -1), (gx, 1)))
        gy, gx = (np.concatenate([g, sign * g[:, ::-1]], axis=1) for g, sign in ((gy, 1), (gx, -1)))
    ky, kx = np.fft.fftfreq(gy.shape[0], step_angstrom[0])[:, None], np.fft.fftfreq(gy.shape[1], step_angstrom[1])
    squared = ky**2 + kx**2
    squared[0, 0] = 1  # a constant has no gradient, and the mean is taken off
    phase = np.fft.ifft2((ky * np.fft.fft2(gy) + kx * np.fft.fft2(gx)) / (2j * np.pi * squared)).real[:sy, :sx]
    return np.asarray(phase - phase.mean())
