"""Virtual detectors: images computed from the patterns of a scan.

Patterns are (n, dy, dx) fractions of the beam. `angles` holds the positions of their pixels in mrad
(`namsa.base.pixels`). An image is a list (n,) or (n, 2) over probe positions; reshape it to the
scan.

The mean angle of a pattern is the probe's mean deflection. For a thin specimen with transmission
exp(iφ) it is (λ/2π) ∇(φ ⋆ |probe|²): φ = σv is high at an atom, and a probe beside an atom is
deflected towards it. The integral of the deflection is therefore the phase convolved with the
probe; Lazić, Bosch & Lazar, Ultramicroscopy 160, 265 (2016).
"""

import warnings
from collections.abc import Iterator, Sequence

import numpy as np

from namsa.base.arrays import Array, Booleans, Floats
from namsa.base.errors import InputError, SimulationWarning
from namsa.base.pixels import PixelGrid


def annular(
    patterns: Array,
    angles: PixelGrid,
    inner_mrad: float,
    outer_mrad: float = np.inf,
    *,
    accurate_mrad: float = np.inf,
) -> Floats:
    """Returns the fraction of the beam scattered into a ring: a dark field, or with `inner_mrad` 0
    a bright field.

    A pixel belongs to the ring if its centre does.

    Args:
        patterns: Patterns (n, dy, dx).
        angles: The positions of the pixels, mrad, with the band limit of simulated patterns
            (`pattern_grid`).
        inner_mrad: Inner angle of the ring, mrad.
        outer_mrad: Outer angle of the ring, mrad; infinity is all that there is.
        accurate_mrad: Largest angle along y and x that the pixels of the simulation were chosen
            for, mrad.

    Returns:
        Fractions of the beam, (n,).

    Raises:
        InputError: If the angles are no ring, no pixel lies in it, or it lies beyond the band
            limit.

    Warns:
        SimulationWarning: If the detector or the band limit cuts the ring, or it reaches beyond
            `accurate_mrad`.

    Example:
        >>> namsa.annular(sample.cbed, sample.angles, 25, 40).shape
        (20,)
    """
    ring = ring_pixels(angles, patterns.shape[1:], inner_mrad, outer_mrad)
    for text in _doubts(angles, patterns.shape[1:], inner_mrad, outer_mrad, accurate_mrad):
        warnings.warn(text, SimulationWarning, stacklevel=2)
    return pixel_sums(patterns, ring)


def bright_field(patterns: Array, angles: PixelGrid, semiangle_mrad: float) -> Floats:
    """Returns the fraction of the beam in the aperture's disk, (n,); arguments as `annular`.

    The disk of parallel illumination is the pixel of the direct beam.

    Example:
        >>> bool(namsa.bright_field(sample.cbed, sample.angles, 20).min() > 0.8)
        True
    """
    radius = max(semiangle_mrad, 0.71 * max(np.abs(angles.step)))
    return pixel_sums(patterns, ring_pixels(angles, patterns.shape[1:], 0, radius))


def ring_pixels(
    angles: PixelGrid, shape: Sequence[int], inner_mrad: float, outer_mrad: float
) -> Booleans:
    """Returns the pixels whose centres lie in a ring about the optic axis.

    Args:
        angles: The positions of the pixels, mrad.
        shape: Pixels (dy, dx) of a pattern.
        inner_mrad: Inner angle, mrad, which belongs to the ring.
        outer_mrad: Outer angle, mrad, which does not.

    Returns:
        Mask (dy, dx).

    Raises:
        InputError: If the angles are no ring, no pixel lies in it, or it lies beyond the band
            limit.
    """
    name = f"the ring of {inner_mrad:g} to {outer_mrad:g} mrad"
    if not 0 <= inner_mrad < outer_mrad:
        raise InputError(
            f"{name} is none: its inner angle must be 0 or more and below its outer angle"
        )
    if inner_mrad >= angles.limit:
        raise InputError(
            f"{name} lies beyond the simulation's band "
            f"limit of {angles.limit:.1f} mrad, where patterns are empty: simulate with pixels "
            f"{1.5 * min(outer_mrad, 1.2 * inner_mrad) / angles.limit:.2f} times as fine, or give "
            "a detector that reaches the ring and let the pixels be chosen"
        )
    angle = angles.distance(shape)
    ring = (angle >= inner_mrad) & (angle < outer_mrad)
    if not ring.any():
        raise InputError(
            f"no detector pixel lies in {inner_mrad:g} to {outer_mrad:g} mrad: "
            f"its centres reach from {angle.min():.2f} to {angle.max():.2f} mrad"
        )
    return ring


def pixel_sums(patterns: Array, mask: Booleans) -> Floats:
    """Returns the sums of the pixels of a mask (dy, dx) of patterns (n, dy, dx), shape (n,)."""
    # One pattern at a time: no copy of the stack.
    return np.array([pattern[mask].sum(dtype=np.float64) for pattern in patterns])


def _doubts(
    angles: PixelGrid,
    shape: Sequence[int],
    inner_mrad: float,
    outer_mrad: float,
    accurate_mrad: float,
) -> Iterator[str]:
    """Yields why the sum over a ring may be less than what is scattered into it."""
    name = f"the ring of {inner_mrad:g} to {outer_mrad:g} mrad"
    left, right, bottom, top = angles.extent(shape)
    whole_mrad = min(abs(left), abs(right), abs(bottom), abs(top))
    rounding = 0.5 * max(np.abs(angles.step))
    reaches_limit = whole_mrad + rounding >= angles.limit
    if outer_mrad < np.inf and outer_mrad > angles.limit:
        yield (
            f"{name} is cut at the simulation's band limit of {angles.limit:.1f} mrad: use pixels "
            f"{1.5 * outer_mrad / angles.limit:.2f} times as fine"
        )
    elif not reaches_limit and (
        inner_mrad >= whole_mrad or whole_mrad + rounding < outer_mrad < np.inf
    ):
        yield (
            f"{name} is cut by the edges of the detector, which has whole rings up to "
            f"{whole_mrad:.1f} mrad: the sum is that of the pixels in its corners alone beyond; "
            "use a detector with a larger max_angle_mrad or shape, or a smaller ring"
        )
    farthest_mrad = min(outer_mrad, angles.limit)
    if farthest_mrad > accurate_mrad and outer_mrad < np.inf:
        yield (
            f"{name} reaches beyond the {accurate_mrad:g} mrad that the pixels of the simulation "
            "were chosen for, and outer rings may lose a third of their intensity: simulate with "
            f"reach_mrad={outer_mrad:g}, or with a detector that reaches it"
        )


def centre_of_mass(patterns: Array, angles: PixelGrid) -> Floats:
    """Returns the mean angle (y, x) of the electrons on the detector.

    Args:
        patterns: Patterns (n, dy, dx).
        angles: The positions of the pixels, mrad.

    Returns:
        Mean angles (n, 2), mrad; (0, 0) for a pattern without electrons.

    Example:
        >>> namsa.centre_of_mass(sample.cbed, sample.angles).shape
        (20, 2)
    """
    y, x = angles.coordinates(patterns.shape[1:])
    along_y = patterns.sum(axis=2, dtype=np.float64)
    along_x = patterns.sum(axis=1, dtype=np.float64)
    total = along_y.sum(axis=1)
    moments = np.stack([along_y @ y, along_x @ x], axis=1)
    return moments / np.where(total > 0, total, 1)[:, None]


def integrated_centre_of_mass(
    deflection_mrad: Floats,
    step_angstrom: tuple[float, float],
    wavelength: float,
    periodic: bool = True,
) -> Floats:
    """Returns the phase whose gradient fits the deflection best (integrated centre of mass, iCoM).

    Divided by the interaction constant it is a projected potential in V·Å.

    Args:
        deflection_mrad: Mean deflection (sy, sx, 2) as (y, x), mrad.
        step_angstrom: Steps (y, x) of the scan, Å.
        wavelength: Electron wavelength, Å.
        periodic: Whether the scan fills the periodic cell. A scan that does not is continued by its
            mirror images.

    Returns:
        The phase (sy, sx), rad, with mean 0.

    Example:
        >>> from namsa.physics.optics import wavelength_angstrom
        >>> phase = namsa.integrated_centre_of_mass(
        ...     sample.centre_of_mass(), (2.7, 2.2), wavelength_angstrom(200e3)
        ... )
        >>> phase.shape
        (4, 5)
    """
    gradient = 2e-3 * np.pi / wavelength * deflection_mrad
    sy, sx = gradient.shape[:2]
    gy = gradient[..., 0]
    gx = gradient[..., 1]
    if not periodic:  # the mirrored phase's gradient is odd across the mirror, and even along it
        gy = _mirrored(gy, odd_axis=0)
        gx = _mirrored(gx, odd_axis=1)
    ky = np.fft.fftfreq(gy.shape[0], step_angstrom[0])[:, None]
    kx = np.fft.fftfreq(gy.shape[1], step_angstrom[1])
    squared = ky**2 + kx**2
    squared[0, 0] = 1  # avoids 0/0; the mean is subtracted below
    phase = np.fft.ifft2(
        (ky * np.fft.fft2(gy) + kx * np.fft.fft2(gx)) / (2j * np.pi * squared)
    ).real[:sy, :sx]
    return np.asarray(phase - phase.mean())


def _mirrored(component: Floats, odd_axis: int) -> Floats:
    """Returns a component of a gradient (sy, sx) continued by its mirror images, (2 sy, 2 sx)."""
    for axis in (0, 1):
        sign = -1 if axis == odd_axis else 1
        component = np.concatenate([component, sign * np.flip(component, axis)], axis=axis)
    return component
