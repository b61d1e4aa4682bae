"""Virtual detectors: images computed from the patterns of a scan.

Patterns are (n, dy, dx) fractions of the beam. `angles` holds the positions of their pixels in mrad (`namsa.pixels`).
An image is a list (n,) or (n, 2) over probe positions; reshape it to the scan.

The mean angle of a pattern is the probe's mean deflection. For a thin specimen with transmission exp(iφ) it is
(λ/2π) ∇(φ ⋆ |probe|²): φ = σv is high at an atom, and a probe beside an atom is deflected towards it. The integral of
the deflection is therefore the phase convolved with the probe; Lazić, Bosch & Lazar, Ultramicroscopy 160, 265 (2016).
"""

import warnings

import numpy as np

from namsa.arrays import Array, Floats
from namsa.errors import InputError, SimulationWarning
from namsa.pixels import PixelGrid


def annular(patterns: Array, angles: PixelGrid, inner_mrad: float, outer_mrad: float) -> Floats:
    """Returns the fraction of the beam scattered into a ring: a dark field, or with `inner_mrad` 0 a bright field.

    A pixel belongs to the ring if its centre does.

    Args:
        patterns: Patterns (n, dy, dx).
        angles: The positions of the pixels, mrad, with the band limit of simulated patterns (`pattern_grid`).
        inner_mrad: Inner angle of the ring, mrad.
        outer_mrad: Outer angle of the ring, mrad; infinity is all that there is.

    Returns:
        Fractions of the beam, (n,).

    Raises:
        InputError: If no pixel lies in the ring, or the ring lies beyond the band limit.

    Warns:
        SimulationWarning: If the band limit cuts the ring, whose outer part then is empty.
    """
    if inner_mrad >= angles.limit:
        raise InputError(
            f"the ring of {inner_mrad:g} to {outer_mrad:g} mrad lies beyond the simulation's band limit of "
            f"{angles.limit:.1f} mrad, where patterns are empty: simulate with pixels "
            f"{1.5 * min(outer_mrad, 1.2 * inner_mrad) / angles.limit:.2f} times as fine, or give a detector that "
            "reaches the ring and let the pixels be chosen"
        )
    if angles.limit < outer_mrad < np.inf:
        warnings.warn(
            f"the ring of {inner_mrad:g} to {outer_mrad:g} mrad is cut at the simulation's band limit of "
            f"{angles.limit:.1f} mrad: use pixels {1.5 * outer_mrad / angles.limit:.2f} times as fine",
            SimulationWarning,
            stacklevel=2,
        )
    angle = angles.distance(patterns.shape[1:])
    ring = (angle >= inner_mrad) & (angle < outer_mrad)
    if not ring.any():
        raise InputError(
            f"no detector pixel lies in {inner_mrad:g} to {outer_mrad:g} mrad: "
            f"its centres reach from {angle.min():.2f} to {angle.max():.2f} mrad"
        )
    return np.array(
        [pattern[ring].sum(dtype=np.float64) for pattern in patterns]
    )  # one pattern at a time: no copy of the stack


def bright_field(patterns: Array, angles: PixelGrid, semiangle_mrad: float) -> Floats:
    """Returns the fraction of the beam in the aperture's disk, (n,); arguments as `annular`.

    The disk of parallel illumination is the pixel of the direct beam.
    """
    return annular(patterns, angles, 0, max(semiangle_mrad, 0.71 * max(np.abs(angles.step))))


def centre_of_mass(patterns: Array, angles: PixelGrid) -> Floats:
    """Returns the mean angle (y, x) of the electrons on the detector.

    Args:
        patterns: Patterns (n, dy, dx).
        angles: The positions of the pixels, mrad.

    Returns:
        Mean angles (n, 2), mrad; (0, 0) for a pattern without electrons.
    """
    y, x = angles.coordinates(patterns.shape[1:])
    along_y, along_x = (patterns.sum(axis=axis, dtype=np.float64) for axis in (2, 1))
    total = along_y.sum(axis=1)
    moments = np.stack([along_y @ y, along_x @ x], axis=1)
    return moments / np.where(total > 0, total, 1)[:, None]


def integrated_centre_of_mass(
    deflection_mrad: Floats, step_angstrom: tuple[float, float], wavelength: float, periodic: bool = True
) -> Floats:
    """Returns the phase whose gradient fits the deflection best (integrated centre of mass, iCoM).

    Divided by the interaction constant it is a projected potential in V·Å.

    Args:
        deflection_mrad: Mean deflection (sy, sx, 2) as (y, x), mrad.
        step_angstrom: Steps (y, x) of the scan, Å.
        wavelength: Electron wavelength, Å.
        periodic: Whether the scan fills the periodic cell. A scan that does not is continued by its mirror images.

    Returns:
        The phase (sy, sx), rad, with mean 0.
    """
    gradient = 2e-3 * np.pi / wavelength * deflection_mrad
    (sy, sx), (gy, gx) = gradient.shape[:2], np.moveaxis(gradient, -1, 0)
    if not periodic:  # the mirrored phase's gradient is odd across the mirror, and even along it
        gy, gx = (np.concatenate([g, sign * g[::-1]], axis=0) for g, sign in ((gy, -1), (gx, 1)))
        gy, gx = (np.concatenate([g, sign * g[:, ::-1]], axis=1) for g, sign in ((gy, 1), (gx, -1)))
    ky, kx = np.fft.fftfreq(gy.shape[0], step_angstrom[0])[:, None], np.fft.fftfreq(gy.shape[1], step_angstrom[1])
    squared = ky**2 + kx**2
    squared[0, 0] = 1  # avoids 0/0; the mean is subtracted below
    phase = np.fft.ifft2((ky * np.fft.fft2(gy) + kx * np.fft.fft2(gx)) / (2j * np.pi * squared)).real[:sy, :sx]
    return np.asarray(phase - phase.mean())
