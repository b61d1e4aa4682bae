"""The result of an estimation: a few quantities of a scan with their errors, and what a network has
learnt of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from namsa.base.arrays import Floats
from namsa.base.pixels import PixelGrid
from namsa.base.provenance_values import Provenance
from namsa.config.simulation import SimulationConfig

from ...apply.estimated import Comparison
from ...apply.scan_result import Maps, ScanResult
from .quantities import QUANTITIES, Range, quantity_range

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class EstimatedQuantity(NamedTuple):
    """A quantity of a scan."""

    name: str  # with its unit, as "defocus_angstrom"
    value: float  # mean over the scan's windows, weighted by their variances
    # One standard deviation of a window's error. The windows of a scan share a specimen and a
    # network, so that their mean is not taken for more certain.
    error: float
    two_sigma_factor: float = 2.0  # multiple of the error within which 95 % of the errors lie

    def is_outside(self, limits: Range) -> bool:
        """Returns whether a range is farther away than 95 % of the errors are large."""
        reach = self.two_sigma_factor * self.error
        return self.value + reach < limits[0] or self.value - reach > limits[1]

    def __str__(self) -> str:
        digits = 0 if self.error >= 10 else 1
        facts = QUANTITIES[self.name]
        text = f"{facts.title} {self.value:.{digits}f} ± {self.error:.{digits}f} {facts.unit}"
        return text.replace("-", "−")


# arrays have no single truth value and long representations
@dataclass(frozen=True, eq=False, repr=False)
class EstimatedScan(ScanResult):
    """Thickness, defocus and tilt of a scan.

    Attributes:
        values: The estimate of each window, `(ny, nx)`, by name, in the units of the names.
        errors: One standard deviation of their errors, in the same shape.
        ranges: Range of each quantity in the network's training.
        two_sigma_factors: See `EstimatedQuantity`.
        pixels: Middles of the windows, Å.
        provenance: Data, network, and under "notes" the notes; JSON types only.
    """

    group = "estimates"

    values: Mapping[str, Floats]
    errors: Mapping[str, Floats]
    ranges: Mapping[str, Range]
    two_sigma_factors: Mapping[str, float]
    pixels: PixelGrid
    provenance: Provenance

    @property
    def quantities(self) -> list[EstimatedQuantity]:
        """The quantities of the scan."""
        quantities = []
        for name, values in self.values.items():
            weights = self.errors[name] ** -2.0
            value = np.average(values, weights=weights)
            error = np.mean(weights) ** -0.5
            quantities.append(
                EstimatedQuantity(name, float(value), float(error), self.two_sigma_factors[name])
            )
        return quantities

    @property
    def lines(self) -> list[str]:
        """One line about each quantity, which says if it lies outside of what the network was
        trained for.
        """
        lines = []
        for quantity in self.quantities:
            low, high = self.ranges[quantity.name]
            line = str(quantity)
            if not low <= quantity.value <= high:
                trained = _described((low, high), quantity.name)
                line += f": outside of {trained} that this network was trained for"
            lines.append(line)
        return lines

    def _maps(self) -> Maps:
        maps = {name: (image, QUANTITIES[name].unit) for name, image in self.values.items()}
        return maps | {
            f"{name}_error": (image, QUANTITIES[name].unit) for name, image in self.errors.items()
        }

    def _facts(self) -> dict[str, object]:
        return {
            "quantities": {
                quantity.name: {"value": quantity.value, "error": quantity.error}
                for quantity in self.quantities
            }
        }

    def _figure(self, title: str) -> "Figure":
        from .figure import estimate_figure

        return estimate_figure(self, title)

    def compared_with(self, config: SimulationConfig) -> Comparison:
        """Compares the quantities with the samples of a configuration, that a network was trained
        on.
        """
        lines = []
        outside = []
        for quantity in self.quantities:
            limits = quantity_range(config, quantity.name)
            learnt = _described(limits, quantity.name)
            if quantity.is_outside(limits):
                outside.append(f"{quantity} lies outside of {learnt} that the network learnt")
                lines.append(outside[-1])
            else:
                lines.append(f"{quantity} agrees with {learnt} that the network learnt")
        checked = frozenset(QUANTITIES[name].varied for name in self.values)
        facts = {key: self.provenance[key] for key in ("model", "weights_digest")}
        return Comparison(lines, outside, checked, facts | self._facts() | {"outside": outside})

    @property
    def _summary(self) -> str:
        return ", ".join(map(str, self.quantities))


def _described(limits: Range, name: str) -> str:
    """Returns a range as text, or one number if both limits are equal."""
    low, high = (f"{limit + 0.0:g}".replace("-", "−") for limit in limits)
    return f"{low if low == high else f'{low} … {high}'} {QUANTITIES[name].unit}"
