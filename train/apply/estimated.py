"""The result of an estimation: a few quantities of a scan with their errors, and what a network has learnt of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from namsa.config.simulation import SimulationConfig
from namsa.io import hdf5
from namsa.pixels import PixelGrid

from ..experiment.quantities import QUANTITIES, Range, quantity_range

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = npt.NDArray[np.float64]


class Quantity(NamedTuple):
    """A quantity of a scan.

    Attributes:
        name: With its unit, as "defocus_angstrom".
        value: Mean over the scan's windows, weighted by their variances.
        error: One standard deviation of a window's error. The windows of a scan share a specimen and a network, so that
            their mean is not taken for more certain.
        two_sigma_factor: Multiple of the error within which 95 % of the errors lie.
    """

    name: str
    value: float
    error: float
    two_sigma_factor: float = 2.0

    def is_outside(self, limits: Range) -> bool:
        """Returns whether a range is farther away than 95 % of the errors are large."""
        reach = self.two_sigma_factor * self.error
        return self.value + reach < limits[0] or self.value - reach > limits[1]

    def __str__(self) -> str:
        digits = 0 if self.error >= 10 else 1
        facts = QUANTITIES[self.name]
        text = f"{facts.title} {self.value:.{digits}f} ± {self.error:.{digits}f} {facts.unit}"
        return text.replace("-", "−")


@dataclass(frozen=True, eq=False, repr=False)  # arrays have no single truth value and long representations
class EstimatedScan:
    """Thickness, defocus and tilt of a scan.

    Attributes:
        values: The estimate of each window, `(ny, nx)`, by name, in the units of the names.
        errors: One standard deviation of their errors, in the same shape.
        ranges: Range of each quantity in the network's training.
        two_sigma_factors: See `Quantity`.
        pixels: Middles of the windows, Å.
        provenance: Data, network, and under "said" the notes; JSON types only.
    """

    values: Mapping[str, Array]
    errors: Mapping[str, Array]
    ranges: Mapping[str, Range]
    two_sigma_factors: Mapping[str, float]
    pixels: PixelGrid
    provenance: dict[str, Any]

    @property
    def quantities(self) -> list[Quantity]:
        """The quantities of the scan."""
        found = []
        for name, values in self.values.items():
            weights = self.errors[name] ** -2.0
            value, error = np.average(values, weights=weights), np.mean(weights) ** -0.5
            found.append(Quantity(name, float(value), float(error), self.two_sigma_factors[name]))
        return found

    @property
    def notes(self) -> list[str]:
        """One line about each thing that was done to the data or assumed about them."""
        return list(self.provenance["said"])

    @property
    def lines(self) -> list[str]:
        """One line about each quantity, which says if it lies outside of what the network was trained for."""
        found = []
        for each in self.quantities:
            low, high = self.ranges[each.name]
            beyond = f": outside of {_described((low, high), each.name)} that this network was trained for"
            found.append(str(each) + beyond * (not low <= each.value <= high))
        return found

    def save(self, path: str | Path) -> None:
        """Writes values and errors of the windows as HDF5 (EMD 1.0); those of the scan are in the provenance.

        Args:
            path: The file; replaced if it exists.

        Raises:
            WorkError: If the file cannot be written.
        """
        images = {name: (image, QUANTITIES[name].unit) for name, image in self.values.items()}
        images |= {f"{name}_error": (image, QUANTITIES[name].unit) for name, image in self.errors.items()}
        facts = {"quantities": self._values()}
        hdf5.write_images(Path(path), "estimates", images, self.pixels, self.provenance | facts)

    def show(self, path: str | Path | None = None) -> "Figure":
        """Draws each quantity with its error and those of the windows, on the range of the training.

        Args:
            path: Where the picture is also written; the suffix names the format. `None` writes none.

        Returns:
            The Matplotlib figure.

        Raises:
            InputError: If Matplotlib does not know the format.
            WorkError: If the file cannot be written.
        """
        from ..reports.estimate_figure import EstimatePanel, estimate_figure
        from ..reports.figures import write_figure

        panels = []
        for each in self.quantities:
            unit, windows, limits = QUANTITIES[each.name].unit, self.values[each.name], self.ranges[each.name]
            panels.append(EstimatePanel(str(each), unit, each.value, each.error, windows.ravel(), limits))
        title = f"{Path(self.provenance['data']).name}  ·  {self.provenance['model']}"
        figure = estimate_figure(panels, title)
        if path is not None:
            write_figure(figure, Path(path))
        return figure

    def facts(self) -> dict[str, Any]:
        """Returns the quantities and the network that they are from, of JSON types."""
        return {key: self.provenance[key] for key in ("model", "weights_digest")} | {"quantities": self._values()}

    def _values(self) -> dict[str, dict[str, float]]:
        return {each.name: {"value": each.value, "error": each.error} for each in self.quantities}

    def __repr__(self) -> str:
        return f"<EstimatedScan: {', '.join(map(str, self.quantities))}>"


class Comparison(NamedTuple):
    """What was estimated beside what a network has learnt.

    Attributes:
        said: A line about each quantity.
        outside: Those of the quantities that lie outside.
        checked: The settings that were compared.
        facts: The quantities and the network that they are from; JSON types.
    """

    said: list[str]
    outside: list[str]
    checked: frozenset[str]
    facts: dict[str, Any]


def compare(estimated: EstimatedScan, config: SimulationConfig) -> Comparison:
    """Compares the quantities of a scan with the samples that a network was trained on.

    Args:
        estimated: The scan's quantities.
        config: The configuration of the network's samples.
    """
    said, outside = [], []
    for each in estimated.quantities:
        limits = quantity_range(config, each.name)
        learnt = _described(limits, each.name)
        if each.is_outside(limits):
            outside.append(f"{each} lies outside of {learnt} that the network learnt")
            said.append(outside[-1])
        else:
            said.append(f"{each} agrees with {learnt} that the network learnt")
    checked = frozenset(QUANTITIES[name].varied for name in estimated.values)
    return Comparison(said, outside, checked, estimated.facts() | {"outside": outside})


def _described(limits: Range, name: str) -> str:
    """Returns a range as text, or one number if both limits are equal."""
    low, high = (f"{limit + 0.0:g}".replace("-", "−") for limit in limits)
    return f"{low if low == high else f'{low} … {high}'} {QUANTITIES[name].unit}"
