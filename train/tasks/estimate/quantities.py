"""The quantities of the task estimate: their values in a sample, and their ranges in a dataset."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from namsa.config.simulation import SimulationConfig
from namsa.dataset.entry import Entry

from ...experiment.conditions import defocus_angstrom, thickness_angstrom

Range = tuple[float, float]


class QuantityFacts(NamedTuple):
    """Name, unit and range of a quantity."""

    varied: str  # the setting of `variation` that it belongs to
    axis: int | None  # 0 for y and 1 for x of a tilt; `None` for a quantity without a direction
    title: str  # in words
    unit: str  # of its values


QUANTITIES: Mapping[str, QuantityFacts] = {
    "thickness_angstrom": QuantityFacts("thickness_angstrom", None, "thickness", "Å"),
    "defocus_angstrom": QuantityFacts("defocus_angstrom", None, "defocus", "Å"),
    "specimen_tilt_y_mrad": QuantityFacts("specimen_tilt_mrad", 0, "specimen tilt y", "mrad"),
    "specimen_tilt_x_mrad": QuantityFacts("specimen_tilt_mrad", 1, "specimen tilt x", "mrad"),
}


def quantity_range(config: SimulationConfig, name: str) -> Range:
    """Returns the least and the largest value of a quantity in the samples of a configuration.

    Of tilts that are drawn in all directions, a component reaches from minus to plus the largest
    magnitude.
    """
    if name == "thickness_angstrom":
        values = thickness_angstrom(config)
    elif name == "defocus_angstrom":
        values = defocus_angstrom(config)
    else:
        varied, axis, *_ = QUANTITIES[name]
        assert axis is not None
        listed: tuple[Any, ...] = config.varied_quantities().get(
            varied, (getattr(config.microscope, varied),)
        )
        if varied in config.drawn_in_all_directions():
            return -max(listed), max(listed)
        values = tuple(value[axis] for value in listed)
    return min(values), max(values)


def quantity_ranges(config: SimulationConfig, names: Sequence[str]) -> dict[str, Range]:
    """Returns the ranges of quantities that differ between samples. Raises ValueError if one is the
    same in all.
    """
    ranges = {name: quantity_range(config, name) for name in names}
    for name, (least, most) in ranges.items():
        if least == most:
            raise ValueError(
                f"training.estimate.quantities has {name}, which is {least:g} in all samples: give "
                f"variation.{QUANTITIES[name].varied} a range, or leave {name} out"
            )
    return ranges


def sample_value(entry: Entry, name: str) -> float:
    """Returns a quantity of a sample as the manifest has it.

    Thickness is the requested one, from which that of the sample differs by up to half a slice, or
    half a period of a crystal that is not cut. Raises KeyError if the dataset does not vary it.
    """
    varied, axis, *_ = QUANTITIES[name]
    if name == "thickness_angstrom":
        return entry.thickness_angstrom
    return float(entry.varied[varied] if axis is None else entry.varied[varied][axis])
