"""How the intensity of a detector pixel becomes a number of the network's input.

I is the part of the beam in a pixel, I₀ = 1 / (number of detector pixels) that of a beam which is spread evenly.

- power: x = gain · (I / I₀)^power.
- log: x = gain · (17 + max(ln I, −17)), which with gain 10 is that of the STEMDL benchmark (mlcommons/science).
- standardised: x = gain · (I − mean) / deviation, both over the pixels of the pattern, as the authors of the paper have
  it (nlaanait/stemdl). A pattern that is the same in all pixels becomes 0. Neither scale nor offset of the stored
  numbers matters, so that patterns which are standardised already stay as they are.
"""

import math
from typing import Any, Literal, NamedTuple

from keras import ops

from ..experiment.inputs import Inputs

Tensor = Any

DARKEST = 17.0  # −ln of the part of the beam below which all pixels are alike
_SAME = 1e-6  # deviation of a pattern from its mean that is rounding


class Intensities(NamedTuple):
    """A rule by which intensities become numbers."""

    kind: Literal["power", "log", "standardised"]
    power: float  # exponent of kind "power"
    gain: float  # factor of the numbers

    @classmethod
    def of(cls, inputs: Inputs) -> "Intensities":
        """Returns the rule of the section training.inputs."""
        return cls(inputs.normalisation, inputs.power, inputs.gain)

    def numbers(self, relative: Tensor, pixels: int) -> Tensor:
        """Returns the numbers of intensities by the kinds "power" and "log".

        Args:
            relative: I / I₀, float32.
        """
        if self.kind == "log":
            dark = DARKEST - math.log(pixels)  # −ln of the same in units of I₀
            x = ops.log(ops.maximum(relative, math.exp(-dark))) + dark
        elif self.power == 1:
            x = relative
        else:
            x = ops.sqrt(relative) if self.power == 0.5 else relative**self.power
        return x if self.gain == 1 else self.gain * x

    def standardised(self, values: Tensor, patterns: Tensor, axis: int | tuple[int, int]) -> Tensor:
        """Returns the numbers by the kind "standardised".

        Args:
            values: Pixels of `patterns` or averages of them, float32.
            patterns: Patterns in the same units, float32.
            axis: The detector's axes in `patterns`.
        """
        mean, deviation = (of(patterns, axis=axis, keepdims=True) for of in (ops.mean, ops.std))
        return self.gain * (values - mean) / ops.where(deviation > _SAME * ops.abs(mean), deviation, 1)
