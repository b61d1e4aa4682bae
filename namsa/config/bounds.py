"""Ranges of the quantities in a configuration: what microscopes, crystals and computers reach, with
a wide margin.

A range refuses absurd values before they overflow, divide by zero, or fill the memory on the way to
an error. Values within the ranges whose product is too large for a machine are refused by its
estimate of memory.
"""

from typing import Annotated, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.fields import FieldInfo

# The least and the largest value of each quantity of an experiment, in the unit of its name.
RANGES = {
    "energy_ev": (10e3, 1e6),
    # 0: parallel illumination; the paraxial optics ends before 200 mrad
    "semiangle_mrad": (0.0, 200.0),
    "beam_tilt_mrad": (-200.0, 200.0),
    "source_size_angstrom": (0.0, 1e3),
    "focal_spread_angstrom": (0.0, 1e5),
    "sampling": (1e-3, 10.0),  # Å
    "slice_thickness_angstrom": (0.01, 1e5),
    "accuracy": (1e-4, 0.5),
    "band_fraction": (0.1, 1.0),
    "positions_angstrom": (-1e6, 1e6),
    "depth_bins": (1, 256),
}
MOST_THERMAL_CONFIGURATIONS = 10_000
LARGEST_INTERPOLATION = 32  # of PRISM
DEFAULT_ACCURACY = 0.01  # relative error of patterns
DEFAULT_REACH_MRAD = 100.0  # of patterns without a detector, that the accuracy is for
LARGEST_SEED = 2**63 - 1


def within(name: str) -> FieldInfo:
    """Returns the bounds of a quantity of `RANGES`, to be a part of an annotated type."""
    least, most = RANGES[name]
    return Field(ge=least, le=most)


def _ordered(limits: tuple[float, float]) -> tuple[float, float]:
    if limits[0] > limits[1]:
        raise ValueError(f"give [least, most], not {list(limits)}")
    return limits


def _square(value: object) -> object:
    """Returns one number as a pair: a square step, shape or cell."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [value, value]
    return value


def _listed(value: object) -> object:
    """Returns one number as a list of it."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [value]
    return value


Value = TypeVar("Value")
Ordered = Annotated[tuple[Value, Value], AfterValidator(_ordered)]  # [least, most]
Listed = Annotated[tuple[Value, ...], Field(min_length=1)]
Energy = Annotated[float, within("energy_ev")]
Semiangle = Annotated[float, within("semiangle_mrad")]
Tilt = Annotated[float, within("beam_tilt_mrad")]
TiltMagnitude = Annotated[float, Field(ge=0, le=RANGES["beam_tilt_mrad"][1])]  # mrad
SourceSize = Annotated[float, within("source_size_angstrom")]
FocalSpread = Annotated[float, within("focal_spread_angstrom")]
SliceThickness = Annotated[float, within("slice_thickness_angstrom")]
Position = Annotated[float, within("positions_angstrom")]
DepthBins = Annotated[int, within("depth_bins")]
LARGEST_EXTENT = 2**15
Extent = Annotated[int, Field(ge=1, le=LARGEST_EXTENT)]  # pixels or positions along one axis
SQUARE = BeforeValidator(_square)  # one number stands for a pair (y, x)
ONE_OR_MORE = BeforeValidator(_listed)  # one number stands for a list of it
Shape = Annotated[tuple[Extent, Extent], SQUARE]
Lateral = Annotated[float, Field(ge=1e-3, le=1e4)]  # Å
Thickness = Annotated[float, Field(ge=1e-3, le=1e5)]  # Å
Step = Annotated[float, Field(ge=1e-4, le=1e4)]  # Å
Steps = Annotated[tuple[Step, Step], SQUARE]
Laterals = Annotated[tuple[Lateral, Lateral], SQUARE]
Dose = Annotated[float, Field(ge=1e-6, le=1e12)]  # electrons per pattern, or per Å²
Index = Annotated[int, Field(ge=-1000, le=1000)]  # of a direction [uvw]
Word = Annotated[str, Field(min_length=1, max_length=200)]  # a name, a formula, an identifier
