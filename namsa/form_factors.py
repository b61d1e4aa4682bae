"""Atomic form factors of free neutral atoms, for electrons and, by Mott–Bethe, for X-rays.

q = 1/d is the scattering vector's length in 1/Å; f_e is in Å, f_x in electrons. The tables in `data/` are the
parameters of Lobato & Van Dyck, Acta Cryst. A70 (2014) 636, and of Kirkland, Advanced Computing in Electron
Microscopy, 2nd ed. (2010), appendix C; each file's first line gives its formula.
"""

from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import constants

from namsa.errors import InputError

Table = Literal["lobato", "kirkland"]
BOHR_RADIUS = constants.physical_constants["Bohr radius"][0] * 1e10  # Å


@lru_cache  # a file of constants, read once
def _parameters(table: Table) -> dict[int, npt.NDArray[np.float64]]:
    if table not in ("lobato", "kirkland"):
        raise InputError(f"form_factors is {table!r}; it must be 'lobato' or 'kirkland'")
    lines = files("namsa").joinpath(f"data/{table}.csv").read_text(encoding="utf-8").splitlines()
    rows = [line.split(",") for line in lines[2:]]  # a comment, then the columns' names
    return {int(row[0]): np.array(row[2:], dtype=np.float64) for row in rows}


def electron(number: int, squared_q: Any, table: Table = "lobato") -> Any:
    """f_e at `squared_q` (1/Å², any shape, on host or device) of the element with atomic number `number`, Å.

    Raises InputError for an element outside the table.
    """
    parameters = _parameters(table)
    if number not in parameters:
        raise InputError(f"no {table} form factor for atomic number {number}; the table has 1 to {max(parameters)}")
    p = [float(value) for value in parameters[number]]
    if table == "lobato":
        terms = [a * (2 + b * squared_q) / (1 + b * squared_q) ** 2 for a, b in zip(p[:5], p[5:], strict=True)]
    else:
        lorentzians = [a / (squared_q + b) for a, b in zip(p[:3], p[3:6], strict=True)]
        # NumPy's dispatch lets one line serve arrays of the host and of the device.
        terms = lorentzians + [c * np.exp(-d * squared_q) for c, d in zip(p[6:9], p[9:], strict=True)]
    return sum(terms[1:], terms[0])


def xray(number: int, squared_q: Any, table: Table = "lobato") -> Any:
    """f_x = Z − 2π²a₀q²f_e(q), electrons: the density's transform, which is Z at q = 0."""
    return number - 2 * np.pi**2 * BOHR_RADIUS * squared_q * electron(number, squared_q, table)
