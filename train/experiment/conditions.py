"""Experimental conditions of the training samples, which data must meet for the network."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from namsa.base.arrays import Pair
from namsa.base.pixels import PixelGrid
from namsa.config.simulation import SimulationConfig
from namsa.config.variation import magnitude
from namsa.physics.optics import wavelength_angstrom

from .inputs import Inputs
from .symmetries import broken_by


@dataclass(frozen=True)
class Conditions:
    """Experimental conditions of the training samples. Pairs are (y, x)."""

    energy_ev: float  # energy of the electrons, eV
    semiangle_mrad: float  # convergence semiangle of the probe, mrad
    scan_shape: tuple[int, int]  # number of scan positions that the network sees at once
    scan_step_angstrom: Pair  # distance of scan positions, Å
    detector_shape: tuple[int, int]  # number of detector pixels
    pixel_mrad: Pair  # size of a detector pixel, mrad
    first_edge: Pair  # outer edges of the detector's first pixels, in pixels from the optic axis
    # whether lens, tilts and detector allow the symmetries of `train.experiment.symmetries`
    symmetric: bool

    @property
    def detector_pixels(self) -> PixelGrid:
        """The detector's pixels, mrad from the optic axis."""
        y, x = (
            (edge + 0.5) * pixel
            for edge, pixel in zip(self.first_edge, self.pixel_mrad, strict=True)
        )
        return PixelGrid(self.pixel_mrad, (y, x))

    @property
    def reach_mrad(self) -> float:
        """Radius of the largest circle around the optic axis that is inside the detector, mrad."""
        edges = zip(self.first_edge, self.detector_shape, self.pixel_mrad, strict=True)
        return min(min(-edge, edge + count) * pixel for edge, count, pixel in edges)


def conditions(config: SimulationConfig, window: tuple[int, int] | None = None) -> Conditions:
    """Returns the conditions of the samples of `config`.

    The cell's size depends on the crystal. Values that depend on the cell (of a scan that fills it,
    of a detector without pixel_mrad) are those of the smallest, `specimen.lateral_angstrom`.

    Args:
        window: Scan positions (y, x) that a network sees at once. `None` stands for all of a
            sample.
    """
    shape = config.pattern_shape()
    scan = shape[:2]
    detector = shape[2:]
    cell = config.specimen.lateral_angstrom
    microscope = config.microscope
    camera = config.detector
    step = config.scan.step_angstrom or (cell[0] / scan[0], cell[1] / scan[1])
    if camera and camera.pixel_mrad:
        pixel = (camera.pixel_mrad, camera.pixel_mrad)
        edge = (-detector[0] / 2, -detector[1] / 2)
    else:
        binning = camera.binning if camera else 1
        pitch = 1e3 * binning * wavelength_angstrom(microscope.energy_ev)
        pixel = (pitch / cell[0], pitch / cell[1])
        offset = (binning // 2 + 0.5) / binning
        edge = (-(detector[0] // 2) - offset, -(detector[1] // 2) - offset)
    directed = broken_by(
        microscope.model_dump() | config.varied_quantities(), config.drawn_in_all_directions()
    )
    centred = all(-2 * start == count for start, count in zip(edge, detector, strict=True))
    return Conditions(
        microscope.energy_ev,
        microscope.semiangle_mrad,
        window or scan,
        step,
        detector,
        pixel,
        edge,
        symmetric=not directed and centred,
    )


def describe_unchecked(
    config: SimulationConfig, inputs: Inputs, checked: Collection[str] = ()
) -> str:
    """Returns one line about conditions of the training that neither data files contain nor
    estimates have checked.
    """
    electrons = describe_dose(inputs)
    noise = f"at {electrons} electrons per pattern" if electrons else "without noise"
    specimens = []
    if "thickness_angstrom" not in checked:
        specimens.append(f"thickness {describe_thickness(config)}")
    if "defocus_angstrom" not in checked:
        specimens.append(f"defocus {format_range(defocus_angstrom(config))} Å")
    aberrations = config.microscope.aberrations
    others = {name: value for name, value in aberrations.items() if name != "C10" and value}
    if others:
        specimens.append(str(others))
    if specimens:
        specimens[0] = f"for {specimens[0]}"
    words = [*specimens, noise]
    ranges = describe_varied(config) | describe_imperfections(inputs)
    for name, limits in ranges.items():
        if name not in checked:
            words.append(_with_unit(name, limits))
    return f"not compared: trained {', '.join(words)}"


def describe_edge(edge: str, config: SimulationConfig) -> str | None:
    """Returns a line about simulated patterns whose aperture has another edge than the training's;
    `None` if it is the same, or not known.

    Args:
        edge: What falls linearly over the edge, "intensity" or "amplitude"; "" if it is not known.
    """
    trained = config.microscope.aperture_edge
    if edge in ("", trained):
        return None
    return (
        f"over the edge of the aperture the {edge} of these patterns falls linearly, in the "
        f"training data the {trained} (microscope.aperture_edge): the density of shipped networks "
        "changes by 1 to 3 % of its standard deviation, see docs/physics.md"
    )


def _with_unit(name: str, limits: str) -> str:
    """Returns a quantity and its range as text, with the unit of a length or an angle behind the
    range.
    """
    quantity, _, unit = name.rpartition("_")
    symbol = {"angstrom": "Å", "mrad": "mrad"}.get(unit)
    if symbol is None:
        return f"{name.replace('_', ' ')} {limits}"
    return f"{quantity.replace('_', ' ')} {limits} {symbol}"


def thickness_angstrom(config: SimulationConfig) -> tuple[float, ...]:
    """Returns the nominal thicknesses, Å: those of a list, or the limits of their range."""
    return config.varied_quantities().get("thickness_angstrom", config.specimen.thickness_angstrom)


def describe_thickness(config: SimulationConfig) -> str:
    """Returns the range of the nominal thicknesses, Å, in words where specimens are films that have
    their own.
    """
    if has_films_alone(config):
        return "of the films"
    return f"{format_range(thickness_angstrom(config))} Å"


def has_films_alone(config: SimulationConfig) -> bool:
    """Whether all specimens are films of layered crystals, whatever the nominal thickness is."""
    given = config.materials
    return bool(given.layers) and not (
        given.builtin or given.cif or given.files or given.materials_project or given.generator
    )


def defocus_angstrom(config: SimulationConfig) -> tuple[float, ...]:
    """Returns the defocus at the entrance surface, Å, underfocus positive: one value, or the limits
    of its range.
    """
    varied = config.varied_quantities()
    return varied.get("defocus_angstrom", (0.0 - config.microscope.aberrations.get("C10", 0.0),))


def describe_varied(config: SimulationConfig) -> dict[str, str]:
    """Returns the ranges of what varies between samples, by name, without thickness and defocus.

    Of tilts and aberrations with a direction it is the range of the magnitudes.
    """
    return {
        name: format_range([magnitude(name, value) for value in values])
        for name, values in config.varied_quantities().items()
        if name not in ("thickness_angstrom", "defocus_angstrom")
    }


def describe_dose(inputs: Inputs) -> str | None:
    """Returns the electrons per pattern that a network was trained for. `None` without noise."""
    dose = inputs.dose_electrons_per_pattern
    if dose is None:
        return None
    return format_range(dose if isinstance(dose, tuple) else (dose,))


def describe_imperfections(inputs: Inputs) -> dict[str, str]:
    """Returns the ranges of the imperfections that a network was trained for, by name."""
    given = inputs.imperfections.given() if inputs.imperfections else {}
    return {name: format_range(limits) for name, limits in given.items()}


def format_range(values: Sequence[float]) -> str:
    """Returns the smallest and the largest of `values` as text, or one number if they are equal."""
    smallest = min(values)
    largest = max(values)
    if smallest == largest:
        return f"{smallest:g}"
    return f"{smallest:g} to {largest:g}"
