"""Ranges of the quantities in a configuration: what microscopes, crystals and computers reach, with a wide margin.

A range refuses absurd values before they overflow, divide by zero, or fill the memory on the way to an error. Values
within the ranges whose product is too large for a machine are refused by its estimate of memory.
"""

from typing import Annotated

from pydantic import Field

SMALLEST_SEMIANGLE_MRAD = 1e-3  # of the convergence; the probe of a smaller one is wider than any cell
LARGEST_ANGLE_MRAD = 200.0  # of the convergence and of tilts: the paraxial optics ends before
LARGEST_LENGTH_ANGSTROM = 1e6  # of defocus and of positions
LARGEST_SEED = 2**63 - 1

LARGEST_EXTENT = 2**15
Extent = Annotated[int, Field(ge=1, le=LARGEST_EXTENT)]  # pixels or positions along one axis
Shape = tuple[Extent, Extent]
Lateral = Annotated[float, Field(ge=1e-3, le=1e4)]  # Å
Thickness = Annotated[float, Field(ge=1e-3, le=1e5)]  # Å
Step = Annotated[float, Field(ge=1e-4, le=1e4)]  # Å
Position = Annotated[float, Field(ge=-LARGEST_LENGTH_ANGSTROM, le=LARGEST_LENGTH_ANGSTROM)]  # Å
Tilt = Annotated[float, Field(ge=-LARGEST_ANGLE_MRAD, le=LARGEST_ANGLE_MRAD)]  # mrad
TiltMagnitude = Annotated[float, Field(ge=0, le=LARGEST_ANGLE_MRAD)]  # mrad
Dose = Annotated[float, Field(ge=1e-6, le=1e12)]  # electrons per pattern, or per Å²
Index = Annotated[int, Field(ge=-1000, le=1000)]  # of a direction [uvw]
Word = Annotated[str, Field(min_length=1, max_length=200)]  # a name, a formula, an identifier
