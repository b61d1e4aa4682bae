"""What the training samples of an experiment are of: the conditions that data must meet for its network."""

from collections.abc import Sequence
from dataclasses import dataclass

from namsa.config.simulation import SimulationConfig
from namsa.physics.optics import wavelength_angstrom
from train.experiment.sections import Inputs

Pair = tuple[float, float]


@dataclass(frozen=True)
class Conditions:
    """What the training samples are of; pairs are (y, x).

    first_edge: the detector's first pixels' outer edges, in pixels from the optic axis
    """

    energy_ev: float
    semiangle_mrad: float
    scan_shape: tuple[int, int]
    scan_step_angstrom: Pair
    detector_shape: tuple[int, int]
    pixel_mrad: Pair
    first_edge: Pair
    symmetric: bool

    @property
    def reach_mrad(self) -> float:
        """The radius of the circle that the detector holds."""
        edges = zip(self.first_edge, self.detector_shape, self.pixel_mrad, strict=True)
        return min(min(-first, first + count) * pixel for first, count, pixel in edges)


def conditions(config: SimulationConfig) -> Conditions:
    """What `config`'s samples are of.

    A cell is as large as the crystal needs: what depends on it (a scan that fills it, a detector without pixel_mrad)
    is given for the smallest, `specimen.lateral_angstrom`.
    """
    patterns = config.pattern_shape()
    scan, detector = patterns[:2], patterns[2:]
    cell, microscope, camera = config.specimen.lateral_angstrom, config.microscope, config.detector
    step = config.scan.step_angstrom or (cell[0] / scan[0], cell[1] / scan[1])
    if camera and camera.pixel_mrad:
        pixel, edge = (camera.pixel_mrad, camera.pixel_mrad), (-detector[0] / 2, -detector[1] / 2)
    else:
        binning = camera.binning if camera else 1
        pitch = 1e3 * binning * wavelength_angstrom(microscope.energy_ev)
        pixel = (pitch / cell[0], pitch / cell[1])
        offset = (binning // 2 + 0.5) / binning
        edge = (-(detector[0] // 2) - offset, -(detector[1] // 2) - offset)
    round_lens = all(name.endswith("0") for name, value in microscope.aberrations.items() if value)
    varied = config.variation.given() if config.variation else {}
    tilted = any((*microscope.beam_tilt_mrad, *microscope.specimen_tilt_mrad)) or any("tilt" in name for name in varied)
    centred = all(-2 * first == count for first, count in zip(edge, detector, strict=True))
    return Conditions(
        microscope.energy_ev,
        microscope.semiangle_mrad,
        scan,
        step,
        detector,
        pixel,
        edge,
        symmetric=round_lens and not tilted and centred,
    )


def not_in_the_file(config: SimulationConfig, inputs: Inputs) -> str:
    """One line about what a network was trained for and no data file says."""
    thickness = config.specimen.thickness_angstrom
    electrons = dose(inputs)
    noise = f"at {electrons} electrons a pattern" if electrons else "without noise"
    others = {name: value for name, value in config.microscope.aberrations.items() if name != "C10" and value}
    lens = f", {others}" if others else ""
    return (
        f"not in the file, so not checked: trained for thickness {span(thickness)} Å, "
        f"defocus {span(defocus(config))} Å{lens}, {noise}"
    )


def defocus(config: SimulationConfig) -> tuple[float, ...]:
    """Of the entrance, in Å, underfocus positive: the one value, or those between which it varies."""
    varied = config.variation.given() if config.variation else {}
    return varied.get("defocus_angstrom", (0.0 - config.microscope.aberrations.get("C10", 0.0),))


def dose(inputs: Inputs) -> str | None:
    """Electrons a pattern that a network was trained for, in words; None without noise."""
    given = inputs.dose_electrons_per_pattern
    if given is None:
        return None
    return span(given if isinstance(given, tuple) else (given,))


def span(values: Sequence[float]) -> str:
    """In words, from the least to the most."""
    least, most = min(values), max(values)
    return f"{least:g}" if least == most else f"{least:g} to {most:g}"
