"""The statistical error of patterns that are averaged over random thermal displacements, and the
configurations needed.

One configuration differs from the mean by diffuse scattering that interferes with the mean wave. In
first order an atom that scatters the phase v(q) (the transform of σV) and is displaced by u along
each axis scatters |v|² (1 − exp(−4π²q²u²)) diffusely, independently of the other atoms. Where this
falls onto the disk of the probe as the part d of the intensity, the variance of the intensity is
1 − (1 − d)² of its square. With d = 1 − exp(−x) the relative rms deviation r of one configuration
is

    r² = 1 − exp(−2x),   x = C Σ_atoms/area ∫ |v(q)|² (1 − exp(−4π²q²u²)) O(q) d²q,

where O is the overlap of two disks of radius α/λ + k₀ at a distance q. The mean of N configurations
has the error r/√N. Stronger diffraction and Bragg disks make r larger for small α and for columns
that channel: k₀ = 0.2/Å is fitted to 7 crystals from Si to W, 15 to 150 Å, 80 to 300 kV, 5 to 30
mrad and u = 0.04 to 0.12 Å. For 32 probes over the cell and 14 cases, some with other crystals, r
is 0.6 to 1.3 times the formula with C = 1, and 1.8 times for GaAs at 5 mrad. Few probes differ
more, as they happen to lie on columns or between them. `_SAFETY` is C.
"""

import math

import numpy as np
import numpy.typing as npt

from namsa.base.errors import InputError
from namsa.config.bounds import MOST_THERMAL_CONFIGURATIONS
from namsa.physics.form_factors import electron
from namsa.physics.optics import interaction_constant, wavelength_angstrom
from namsa.physics.potential import POTENTIAL_CONSTANT, AtomList
from namsa.sampling.resolution import density_of_region

_SAFETY = 1.6  # of x, 1.26 of r where r is small
_WIDER = 0.2  # k₀, 1/Å
_POINTS = 64  # of the integral


def relative_deviation(
    atoms: AtomList,
    rms_angstrom: npt.NDArray[np.float64],
    extent_angstrom: tuple[float, float],
    energy_ev: float,
    semiangle_mrad: float,
) -> float:
    """Returns the relative rms deviation that patterns of one configuration are expected to have
    from their mean.

    Args:
        rms_angstrom: Root mean square displacement of each atom along one axis, (n,), Å.
        extent_angstrom: Sides (Ly, Lx) of the periodic cell, Å.
    """
    if not len(atoms.numbers):
        return 0.0
    kinds, kind = np.unique(np.stack([atoms.numbers, rms_angstrom]), axis=1, return_inverse=True)
    diffuse = []
    for atomic_number, rms in kinds.T.tolist():
        diffuse.append(_diffuse(int(atomic_number), rms, energy_ev, semiangle_mrad))
    # By occupancies, not their squares: atoms of a mixed site move together.
    weights = atoms.occupancies * np.array(diffuse)[kind.ravel()]
    exponent = _SAFETY * density_of_region(atoms, weights, extent_angstrom)
    return math.sqrt(-math.expm1(-2 * exponent))


def configurations_for(deviation: float, accuracy: float) -> int:
    """Returns the configurations whose mean has this relative L2 accuracy. Raises InputError if
    there are too many.
    """
    count = max(1, math.ceil((deviation / accuracy) ** 2))
    if count > MOST_THERMAL_CONFIGURATIONS:
        raise InputError(
            f"an accuracy of {accuracy:.2%} needs {count} thermal configurations, and "
            f"{MOST_THERMAL_CONFIGURATIONS} are the most: ask for an accuracy of "
            f"{deviation / MOST_THERMAL_CONFIGURATIONS**0.5:.2%} or more, or give "
            "frozen_phonons.configurations"
        )
    return count


def _diffuse(
    atomic_number: int, rms_angstrom: float, energy_ev: float, semiangle_mrad: float
) -> float:
    """Returns the cross-section of an atom for diffuse scattering from disk to disk, Å²."""
    diameter = 2 * (1e-3 * semiangle_mrad / wavelength_angstrom(energy_ev) + _WIDER)
    fraction = (np.arange(_POINTS) + 0.5) / _POINTS
    q = diameter * fraction
    phase = interaction_constant(energy_ev) * POTENTIAL_CONSTANT * electron(atomic_number, q**2)
    overlap = 2 / np.pi * (np.arccos(fraction) - fraction * np.sqrt(1 - fraction**2))
    integrand = (
        2 * np.pi * q * phase**2 * -np.expm1(-((2 * np.pi * q * rms_angstrom) ** 2)) * overlap
    )
    return float(integrand.mean() * diameter)
