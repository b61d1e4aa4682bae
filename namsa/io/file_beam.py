"""The beam as a file describes it."""

import math
from typing import NamedTuple


class FileBeam(NamedTuple):
    """The beam, and the specimen's thickness, as a file describes them."""

    energy_ev: float | None = None  # energy, eV; `None` if the file does not say
    # convergence semiangle, mrad; `None` if the file does not say
    semiangle_mrad: float | None = None
    # band limit of patterns that namsa simulated, mrad; infinite otherwise
    limit_mrad: float = math.inf
    thickness_angstrom: float | None = None  # thickness of the specimen that namsa simulated, Å
    note: str = ""  # what the file says that is not used, and why
    # What falls linearly over the aperture's edge of patterns that namsa simulated; "" otherwise.
    aperture_edge: str = ""
