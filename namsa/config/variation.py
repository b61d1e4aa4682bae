"""The microscope's values that differ from sample to sample: what may vary, and the values of each configuration.

Random values are Sobol' points, so that few configurations cover the ranges evenly; each specimen has them shifted,
modulo 1, by a number of its own (Cranley & Patterson, SIAM J. Numer. Anal. 13, 904 (1976)), so that all specimens
together cover them too. More configurations of a specimen leave the first ones what they were.
"""

import itertools
import math
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from namsa.config.loading import Section

Varied = dict[str, Any]  # the value of each quantity that varies, by its name


def _ordered(limits: tuple[float, float]) -> tuple[float, float]:
    if limits[0] > limits[1]:
        raise ValueError(f"give [least, most], not {list(limits)}")
    return limits


Range = Annotated[tuple[float, float], AfterValidator(_ordered)]
Magnitudes = Annotated[tuple[NonNegativeFloat, NonNegativeFloat], AfterValidator(_ordered)]
Positive = Annotated[tuple[PositiveFloat, PositiveFloat], AfterValidator(_ordered)]
Values = Annotated[tuple[float, ...], Field(min_length=1)]
Tilts = Annotated[tuple[tuple[float, float], ...], Field(min_length=1)]
Doses = Annotated[tuple[PositiveFloat, ...], Field(min_length=1)]


class _Variation(Section):
    @model_validator(mode="after")
    def _something_varies(self) -> "_Variation":
        given = self.given()
        if not given:
            raise ValueError(f"nothing varies: give one of {', '.join(_QUANTITIES)}")
        if "electrons_per_pattern" in given and "dose_electrons_per_angstrom2" in given:
            raise ValueError("vary electrons_per_pattern or dose_electrons_per_angstrom2, not both")
        return self

    def given(self) -> dict[str, tuple[Any, ...]]:
        """What varies, by name, in a fixed order."""
        return {name: value for name in _QUANTITIES if (value := getattr(self, name)) is not None}


class RandomVariation(_Variation):
    """Each specimen has `configurations` samples, their values drawn evenly from ranges [least, most]."""

    rule: Literal["random"]
    configurations: PositiveInt = Field(description="samples of each specimen")
    defocus_angstrom: Range | None = Field(None, description="underfocus is positive; in place of C10")
    beam_tilt_mrad: Magnitudes | None = Field(None, description="its size, evenly over the ring, in any direction")
    specimen_tilt_mrad: Magnitudes | None = Field(None, description="as beam_tilt_mrad")
    electrons_per_pattern: Positive | None = Field(None, description="evenly in the logarithm")
    dose_electrons_per_angstrom2: Positive | None = Field(None, description="evenly in the logarithm")


class GridVariation(_Variation):
    """Each specimen has a sample of every combination of the listed values."""

    rule: Literal["grid"]
    defocus_angstrom: Values | None = Field(None, description="underfocus is positive; in place of C10")
    beam_tilt_mrad: Tilts | None = Field(None, description="a list of (y, x)")
    specimen_tilt_mrad: Tilts | None = Field(None, description="a list of (y, x)")
    electrons_per_pattern: Doses | None = None
    dose_electrons_per_angstrom2: Doses | None = None


_QUANTITIES = (
    "defocus_angstrom",
    "beam_tilt_mrad",
    "specimen_tilt_mrad",
    "electrons_per_pattern",
    "dose_electrons_per_angstrom2",
)


def draw(variation: RandomVariation | GridVariation, seed: int) -> list[Varied]:
    """The values of every configuration of the specimen that `seed` stands for; tilts are [y, x] in mrad.

    Random ones are rounded to 0.01 Å, 0.001 mrad and four digits of a dose: they are written down, and the last bits
    of a logarithm may differ between machines.
    """
    given = variation.given()
    if isinstance(variation, GridVariation):
        return [dict(zip(given, _plain(values), strict=True)) for values in itertools.product(*given.values())]
    from scipy.stats import qmc  # half a second for every process, of which few draw

    coordinates = sum(2 if name.endswith("tilt_mrad") else 1 for name in given)
    # Whole powers of 2 are what Sobol' points are even in, and what SciPy wants; the sequence does not depend on them.
    points = qmc.Sobol(coordinates, scramble=False).random_base2(math.ceil(math.log2(variation.configurations)))
    shifted = (points[: variation.configurations] + np.random.default_rng(seed).random(coordinates)) % 1
    return [_at(given, iter(point.tolist())) for point in shifted]


def _at(ranges: dict[str, tuple[Any, ...]], point: Any) -> Varied:
    """The values at one point of the unit cube, whose coordinates are taken in turn."""
    varied: Varied = {}
    for name, (least, most) in ranges.items():
        if name == "defocus_angstrom":
            varied[name] = round(least + (most - least) * next(point), 2)
        elif name.endswith("tilt_mrad"):
            size = math.sqrt(least**2 + (most**2 - least**2) * next(point))
            angle = 2 * math.pi * next(point)
            varied[name] = [round(size * math.sin(angle), 3), round(size * math.cos(angle), 3)]
        else:
            varied[name] = float(f"{least * (most / least) ** next(point):.4g}")
    return varied


def _plain(values: tuple[Any, ...]) -> list[Any]:
    return [list(value) if isinstance(value, tuple) else value for value in values]
