"""Atomic form factors of free neutral atoms, for electrons and, by the Mott–Bethe formula, for
X-rays.

q = 1/d is the length of the scattering vector in 1/Å; f_e is in Å, f_x in electrons. The tables in
`tables/` are the parameters of Lobato & Van Dyck, Acta Cryst. A70 (2014) 636, and of Kirkland,
Advanced Computing in Electron Microscopy, 2nd ed. (2010), appendix C; each file's first line gives
its formula.
"""

import math
from functools import lru_cache
from importlib.resources import files
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import constants, special

from namsa.base.errors import InputError
from namsa.physics.grid import Array

Table = Literal["lobato", "kirkland"]
BOHR_RADIUS = constants.physical_constants["Bohr radius"][0] * 1e10  # Å


@lru_cache  # constants, read once per table
def _parameters(table: Table) -> dict[int, npt.NDArray[np.float64]]:
    """Returns the parameters of each element by atomic number."""
    if table not in ("lobato", "kirkland"):
        raise InputError(f"form_factors is {table!r}; it must be 'lobato' or 'kirkland'")
    text = files("namsa.physics").joinpath(f"tables/{table}.csv").read_text(encoding="utf-8")
    parameters = {}
    for line in text.splitlines()[2:]:  # after a comment and the columns' names
        atomic_number, _, *values = line.split(",")
        parameters[int(atomic_number)] = np.array(values, dtype=np.float64)
    return parameters


def electron(atomic_number: int, squared_q: Array, table: Table = "lobato") -> Array:
    """Returns the electron form factor f_e of an element, Å, at q², 1/Å². Raises InputError if the
    table lacks it.
    """
    parameters = _parameters(table)
    if atomic_number not in parameters:
        raise InputError(
            f"no {table} form factor for atomic number {atomic_number}; the table has 1 to "
            f"{max(parameters)}"
        )
    p = parameters[atomic_number].tolist()
    total = 0.0
    if table == "lobato":
        for a, b in zip(p[:5], p[5:], strict=True):
            total = total + a * (2 + b * squared_q) / (1 + b * squared_q) ** 2
        return total
    for a, b in zip(p[:3], p[3:6], strict=True):
        total = total + a / (squared_q + b)
    for c, d in zip(p[6:9], p[9:], strict=True):
        # NumPy dispatches to CuPy: this line works on the host and on the device.
        total = total + c * np.exp(-d * squared_q)
    return total


def xray(atomic_number: int, squared_q: Array, table: Table = "lobato") -> Array:
    """Returns the X-ray form factor f_x = Z − 2π²a₀q²f_e(q) in electrons, the Fourier transform of
    the density.

    It is Z at q = 0. Arguments and errors as `electron`.
    """
    return atomic_number - 2 * np.pi**2 * BOHR_RADIUS * squared_q * electron(
        atomic_number, squared_q, table
    )


def electron_beyond(
    atomic_number: int, squared_k: Array, z_angstrom: Array, table: Table = "lobato"
) -> Array:
    """Returns the part of f_e(k) that lies beyond a height z >= 0 along the beam.

    At the nucleus it is half of f_e; far from it, it vanishes. It is

        ∫_z^∞ dz' ∫ dk_z f_e(√(k² + k_z²)) exp(2πi k_z z')

    in closed form, because the tables are sums of Lorentzians, their squares and Gaussians in q:
    with κ² = k² + b the transform of 1/(κ² + k_z²) is (π/κ) exp(−2πκ|z|), that of its square
    (π/2κ³)(1 + 2πκ|z|) exp(−2πκ|z|).

    Args:
        squared_k: k² across the beam, 1/Å², on the host or the device.
        z_angstrom: Height, Å: a number, or an array on the host that broadcasts with `squared_k`.

    Returns:
        The part of f_e in Å, of the common shape of `squared_k` and `z_angstrom`.

    Raises:
        InputError: If the table does not have the element.
    """
    electron(atomic_number, 0.0, table)
    p = _parameters(table)[atomic_number].tolist()
    total = 0.0
    if table == "lobato":
        for a, b in zip(p[:5], p[5:], strict=True):
            squared = squared_k + 1 / b
            path = 2 * np.pi * z_angstrom * np.sqrt(squared)
            total = total + a / b * np.exp(-path) / (2 * squared) * (
                1 + (1 + path / 2) / (b * squared)
            )
    else:
        for a, b in zip(p[:3], p[3:6], strict=True):
            squared = squared_k + b
            total = total + a * np.exp(-2 * np.pi * z_angstrom * np.sqrt(squared)) / (2 * squared)
        for c, d in zip(p[6:9], p[9:], strict=True):
            total = (
                total
                + c * np.exp(-d * squared_k) * special.erfc(np.pi * z_angstrom / math.sqrt(d)) / 2
            )
    return total
