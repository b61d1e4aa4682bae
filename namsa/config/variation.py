"""Settings of the microscope that differ from sample to sample, and the values of each
configuration.

Random values are Sobol' points, so that few configurations cover the ranges evenly. Each specimen
shifts the points, modulo 1, by an offset of its own (Cranley & Patterson, SIAM J. Numer. Anal. 13,
904 (1976)), so that all specimens together cover the ranges evenly too. More configurations per
specimen do not change the first ones.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from namsa.base.provenance_values import DOSES
from namsa.config.aberrations import LARGEST_ABERRATION_ANGSTROM, LARGEST_AZIMUTH_RAD
from namsa.config.bounds import (
    Dose,
    FocalSpread,
    Listed,
    Ordered,
    Position,
    SourceSize,
    Thickness,
    Tilt,
    TiltMagnitude,
)
from namsa.config.loading import Section
from namsa.config.specimen import Displacement

VariedValues = dict[str, Any]  # the value of each varied quantity, by its name
# The range (least, most) of each, or with the rule "grid" its values.
VariedRanges = dict[str, tuple[Any, ...]]


MOST_CONFIGURATIONS = 100_000  # samples per specimen
_Order1 = Annotated[float, Field(ge=0, le=LARGEST_ABERRATION_ANGSTROM[1])]  # Å
_Order2 = Annotated[float, Field(ge=0, le=LARGEST_ABERRATION_ANGSTROM[2])]
_Order3 = Annotated[
    float, Field(ge=-LARGEST_ABERRATION_ANGSTROM[3], le=LARGEST_ABERRATION_ANGSTROM[3])
]
_Azimuth = Annotated[float, Field(ge=-LARGEST_AZIMUTH_RAD, le=LARGEST_AZIMUTH_RAD)]


class _Variation(Section):
    @model_validator(mode="after")
    def _varies_something(self) -> "_Variation":
        quantities = self.quantities()
        if not quantities:
            raise ValueError(f"nothing varies: give one of {', '.join(_QUANTITIES)}")
        if "electrons_per_pattern" in quantities and "dose_electrons_per_angstrom2" in quantities:
            raise ValueError("vary electrons_per_pattern or dose_electrons_per_angstrom2, not both")
        return self

    def quantities(self) -> VariedRanges:
        """Returns the ranges or values of the quantities that vary, by name, in a fixed order."""
        varied = {}
        for name in _QUANTITIES:
            value = getattr(self, name)
            if value is not None:
                varied[name] = value
        return varied


class RandomVariation(_Variation):
    """Each specimen has `configurations` samples, whose values are drawn evenly from the ranges
    [least, most].
    """

    rule: Literal["random"] = Field(description="'random': values are drawn from ranges")
    configurations: int = Field(ge=1, le=MOST_CONFIGURATIONS, description="samples per specimen")
    probability: float = Field(
        1.0,
        gt=0,
        le=1,
        description="of each aberration, tilt, spread and displacement of a sample to be drawn, "
        "independently of the others; otherwise it is the value of its range that is "
        "nearest to zero. Thickness and dose are always drawn",
    )
    defocus_angstrom: Ordered[Position] | None = Field(
        None, description="defocus, Å, in place of C10; underfocus is positive; drawn evenly"
    )
    beam_tilt_mrad: Ordered[TiltMagnitude] | None = Field(
        None,
        description="magnitude of the beam's tilt, mrad; drawn evenly over the ring, in any "
        "direction",
    )
    specimen_tilt_mrad: Ordered[TiltMagnitude] | None = Field(
        None, description="magnitude of the specimen's tilt, mrad; drawn as beam_tilt_mrad"
    )
    electrons_per_pattern: Ordered[Dose] | None = Field(
        None, description="dose for Poisson noise; drawn evenly on a logarithmic scale"
    )
    dose_electrons_per_angstrom2: Ordered[Dose] | None = Field(
        None,
        description="dose for Poisson noise, electrons per Å²; drawn evenly on a logarithmic scale",
    )
    C12_angstrom: Ordered[_Order1] | None = Field(
        None,
        description="magnitude of the twofold astigmatism C12, Å; drawn evenly, in any direction",
    )
    C21_angstrom: Ordered[_Order2] | None = Field(
        None, description="magnitude of the coma C21, Å; drawn evenly, in any direction"
    )
    C30_angstrom: Ordered[_Order3] | None = Field(
        None, description="spherical aberration C30, Å; drawn evenly"
    )
    source_size_angstrom: Ordered[SourceSize] | None = Field(
        None, description="full width at half maximum of the source, Å; drawn evenly"
    )
    focal_spread_angstrom: Ordered[FocalSpread] | None = Field(
        None, description="root mean square of the spread of defocus, Å; drawn evenly"
    )
    rms_displacement_angstrom: Ordered[Displacement] | None = Field(
        None,
        description="root mean square thermal displacement along one axis, Å, of all elements, in "
        "place of that of specimen.frozen_phonons; drawn evenly",
    )
    thickness_angstrom: Ordered[Thickness] | None = Field(
        None,
        description="thickness, Å, of a whole number of slices from the entrance face of the "
        "specimen, which has the one specimen.thickness_angstrom; drawn evenly; for "
        "simulation.method scatter",
    )

    def configurations_per_specimen(self) -> int:
        """Returns the number of samples of each specimen."""
        return self.configurations


class GridVariation(_Variation):
    """Each specimen has one sample for every combination of the listed values."""

    rule: Literal["grid"] = Field(description="'grid': all combinations of listed values")
    defocus_angstrom: Listed[Position] | None = Field(
        None, description="values of the defocus, Å, in place of C10; underfocus is positive"
    )
    beam_tilt_mrad: Listed[tuple[Tilt, Tilt]] | None = Field(
        None, description="values (y, x) of the beam's tilt, mrad"
    )
    specimen_tilt_mrad: Listed[tuple[Tilt, Tilt]] | None = Field(
        None, description="values (y, x) of the specimen's tilt, mrad"
    )
    electrons_per_pattern: Listed[Dose] | None = Field(None, description="doses for Poisson noise")
    dose_electrons_per_angstrom2: Listed[Dose] | None = Field(
        None, description="doses for Poisson noise, electrons per Å²"
    )
    C12_angstrom: Listed[tuple[_Order1, _Azimuth]] | None = Field(
        None, description="values [magnitude in Å, azimuth in rad] of the twofold astigmatism C12"
    )
    C21_angstrom: Listed[tuple[_Order2, _Azimuth]] | None = Field(
        None, description="values [magnitude in Å, azimuth in rad] of the coma C21"
    )
    C30_angstrom: Listed[_Order3] | None = Field(
        None, description="values of the spherical aberration C30, Å"
    )
    source_size_angstrom: Listed[SourceSize] | None = Field(
        None, description="full widths at half maximum of the source, Å"
    )
    focal_spread_angstrom: Listed[FocalSpread] | None = Field(
        None, description="root mean squares of the spread of defocus, Å"
    )
    rms_displacement_angstrom: Listed[Displacement] | None = Field(
        None,
        description="root mean square thermal displacements along one axis, Å, of all elements, in "
        "place of those of specimen.frozen_phonons",
    )
    thickness_angstrom: Listed[Thickness] | None = Field(
        None,
        description="thicknesses, Å, of a whole number of slices from the entrance face of the "
        "specimen, which has the one specimen.thickness_angstrom; for "
        "simulation.method scatter",
    )

    def configurations_per_specimen(self) -> int:
        """Returns the number of combinations."""
        return math.prod(len(values) for values in self.quantities().values())

    @model_validator(mode="after")
    def _has_a_bounded_number_of_combinations(self) -> "GridVariation":
        count = self.configurations_per_specimen()
        if count > MOST_CONFIGURATIONS:
            raise ValueError(
                f"the lists have {count} combinations; give lists with {MOST_CONFIGURATIONS} or "
                "fewer"
            )
        return self


_QUANTITIES = tuple(name for name in GridVariation.model_fields if name != "rule")
OF_SPECIMEN = ("specimen_tilt_mrad", "rms_displacement_angstrom")  # change how a specimen scatters
_ALWAYS_DRAWN = ("thickness_angstrom", *DOSES)
_AZIMUTHS = {"C12_angstrom": math.pi, "C21_angstrom": 2 * math.pi}  # period of the azimuth, rad


def has_direction(name: str) -> bool:
    """Returns whether a quantity has a direction, which the rule "random" draws from all of them
    evenly.
    """
    return name.endswith("tilt_mrad") or name in _AZIMUTHS


def magnitude(name: str, value: float | Sequence[float]) -> float:
    """Returns a value without its direction: the length of a tilt [y, x], the magnitude of C12 or
    C21.
    """
    if isinstance(value, int | float):
        return float(value)
    if name.endswith("tilt_mrad"):
        return math.hypot(*value)
    return float(value[0])


def draw_values(variation: RandomVariation | GridVariation, seed: int) -> list[VariedValues]:
    """Returns the varied values of each configuration of one specimen.

    Random values are rounded to 0.01 Å (displacements to 0.0001 Å), 0.001 mrad or rad, and four
    digits of a dose. They are written to files, and the last bits of a logarithm may differ between
    machines.

    Returns:
        One mapping per configuration. Tilts are [y, x] in mrad, C12 and C21 [magnitude in Å,
        azimuth in rad].
    """
    quantities = variation.quantities()
    if isinstance(variation, GridVariation):
        combinations = itertools.product(*quantities.values())
        return [dict(zip(quantities, _as_lists(values), strict=True)) for values in combinations]
    from scipy.stats import qmc  # importing it takes half a second, and few processes draw values

    directions = [name for name in quantities if has_direction(name)]
    coordinates = len(quantities) + len(directions)
    # Sobol' points are even in whole powers of 2, which SciPy asks for; the sequence does not
    # depend on the number.
    points = qmc.Sobol(coordinates, scramble=False).random_base2(
        math.ceil(math.log2(variation.configurations))
    )
    rng = np.random.default_rng(seed)
    shifted = (points[: variation.configurations] + rng.random(coordinates)) % 1
    left_out = rng.random((variation.configurations, len(quantities))) >= variation.probability
    drawn = []
    for point, leave_out in zip(shifted, left_out, strict=True):
        ranges = _nearest_to_zero(quantities, leave_out)
        drawn.append(_values_at(ranges, iter(point.tolist())))
    return drawn


def _nearest_to_zero(ranges: VariedRanges, chosen: Iterable[bool]) -> VariedRanges:
    """Returns the ranges, of which those chosen are their value nearest to zero. Thickness and
    doses stay.
    """
    changed = {}
    for (name, (least, most)), leave_out in zip(ranges.items(), chosen, strict=True):
        if leave_out and name not in _ALWAYS_DRAWN:
            nearest = min(max(0.0, least), most)
            changed[name] = (nearest, nearest)
        else:
            changed[name] = (least, most)
    return changed


def _values_at(ranges: VariedRanges, coordinates: Iterator[float]) -> VariedValues:
    """The values at one point of the unit cube, whose coordinates are used in order."""
    values: VariedValues = {}
    for name, (least, most) in ranges.items():
        if name in DOSES:
            values[name] = float(f"{least * (most / least) ** next(coordinates):.4g}")
        elif name.endswith("tilt_mrad"):
            magnitude = math.sqrt(least**2 + (most**2 - least**2) * next(coordinates))
            angle = 2 * math.pi * next(coordinates)
            values[name] = [
                round(magnitude * math.sin(angle), 3),
                round(magnitude * math.cos(angle), 3),
            ]
        else:
            digits = 4 if name == "rms_displacement_angstrom" else 2
            value = round(least + (most - least) * next(coordinates), digits)
            period = _AZIMUTHS.get(name)
            values[name] = value
            if period:
                values[name] = [value, round(period * next(coordinates), 3)]
    return values


def _as_lists(values: tuple[object, ...]) -> list[object]:
    """Returns values as JSON types."""
    return [list(value) if isinstance(value, tuple) else value for value in values]
