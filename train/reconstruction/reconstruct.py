"""Reconstructs the electron density of a specimen from a 4D-STEM scan, top to bottom.

The scan passes through in strips of rows, so that memory does not grow with it: only a strip of patterns on the
network's detector, and images, are held. Everything that is done to the data or assumed about them is noted, and
written with the result.
"""

import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console

from namsa.errors import InputError
from namsa.io.calibration import CalibrationOverrides, FourDData
from namsa.io.reading import open_patterns
from namsa.pixels import PixelGrid
from namsa.text import shorten
from train.experiment.conditions import describe_unchecked
from train.measure import telemetry
from train.optimization import checkpoint
from train.reconstruction import familiarity, reading, resampling, windows
from train.reconstruction.estimated import Comparison, EstimatedScan, compare
from train.reconstruction.models import Model, load_model
from train.reconstruction.reading import AddNote
from train.reconstruction.resampling import ResamplingPlan
from train.reconstruction.result import Reconstruction
from train.reconstruction.trust import KnownSpecimen, WindowSimulation, window_simulation
from train.reconstruction.windows import BlendedImages, ScanImages, ScanNetwork

Array = npt.NDArray[Any]

# The smallest and the largest number of each argument.
LIMITS = {
    "beam_intensity": (1e-15, 1e18),
    "thickness_angstrom": (0.1, 1e4),
    "passes": (0, 1000),
    "refine_steps": (0, 10_000),
}


@dataclass(frozen=True)
class ReconstructionOptions:
    """How a scan is reconstructed.

    Attributes:
        passes: Predictions with dropout per symmetry. `None` takes none if there are several symmetries, otherwise
            eight if the network has dropout.
        refine_steps: Steps of `train.reconstruction.refine` per window. They need a known specimen.
    """

    passes: int | None = None
    refine_steps: int = 0


def reconstruct(
    data: str | Path | npt.ArrayLike,
    model: Model | str | Path,
    calibration: CalibrationOverrides = CalibrationOverrides(),  # noqa: B008 - frozen
    *,
    beam_intensity: float | None = None,
    specimen: KnownSpecimen | None = None,
    options: ReconstructionOptions = ReconstructionOptions(),
    layout: Mapping[str, Any] | None = None,
    estimated: EstimatedScan | None = None,
    console: Console | None = None,
) -> Reconstruction:
    """Reconstructs the projected electron density of a scan with a trained network.

    Args:
        data: Path of a file that `namsa.read` opens, or patterns `(sy, sx, dy, dx)`, in any units of intensity.
        model: The network, or what `train.load_model` finds it by.
        calibration: What the file does not say, or says wrongly. An array needs at least energy, semiangle, scan step
            and detector pixel.
        beam_intensity: Sum of a pattern without a specimen, in the data's units. `None` assumes that the mean pattern
            holds the same fraction of the beam as the network's training data.
        specimen: What is known about the specimen, by which trust is measured. `None` measures none.
        options: Dropout and refinement.
        layout: How the patterns lie in a file that does not say it, as `namsa.read` takes it: {"scan_shape": (64, 96)}.
        estimated: Thickness, defocus and tilt of the scan, as `train.estimate` returns them. They are compared with
            what the network has learnt. `None` compares nothing.
        console: Where notes and progress are printed. `None` prints nothing; the notes are in the result.

    Returns:
        Density with uncertainty, familiarity, trust, axes and provenance.

    Raises:
        InputError: If the data do not fit the network, or if their calibration is not complete.
        WorkError: If the file is damaged.
    """
    console = console or Console(quiet=True)
    notes: list[str] = []

    def note(line: str) -> None:
        notes.append(line)
        console.print(line, highlight=False, soft_wrap=True)

    # ---- Data and network -------------------------------------------------------------------------------------------

    model = model if isinstance(model, Model) else load_model(model)
    check_layout(model)
    check_arguments(beam_intensity, specimen, options)
    if options.refine_steps and model.experiment.bins_shape():
        raise InputError(
            f"refine_steps refines a projected density, and {model.name} predicts it by depth: set it to 0"
        )
    if isinstance(data, str | Path):
        data, name, origin = Path(data), str(data), os.path.realpath(data)
    else:
        name = origin = "array"
    with open_patterns(data, calibration, **(layout or {})) as scan:
        sy, sx, dy, dx = scan.shape
        note(f"{name}: {sy}×{sx} patterns of {dy}×{dx} pixels, {scan.data.dtype}")
        resampling.check_fit(scan, model.conditions, name)
        reading.check_memory(scan, model.conditions, name)

        pattern = reading.mean_pattern(scan, name)
        compared = compare(estimated, model.experiment) if estimated else None
        prepared = prepare(scan, model, pattern, name, beam_intensity, specimen, options, note, compared)
        with (
            telemetry.counter(console, "scan rows") as count,
            closing(reading.read_bands(scan, prepared.plan, prepared.scale, lambda row: count(row, sy))) as bands,
        ):
            images = windows.predict_images(bands, prepared.images(), note)
        return assemble(prepared, images, pattern, origin, notes)


@dataclass(frozen=True)
class Prepared:
    """A scan and a network that are ready for each other.

    Attributes:
        scan: The scan.
        model: The trained network.
        centre: Optic axis, (y, x), pixels.
        scale: Factor from intensities to fractions of the beam.
        plan: How the scan is resampled.
        network: The network, loaded.
        simulation: Simulation of a window, by which trust is measured. `None` measures none.
        refine_steps: Steps of refinement per window.
        compared: What was estimated of the scan, beside what the network has learnt. `None` if nothing was.
        thickness_angstrom: Of the specimen, Å. `None` if it is not known.
    """

    scan: FourDData
    model: Model
    centre: tuple[float, float]
    scale: float
    plan: ResamplingPlan
    network: ScanNetwork
    simulation: WindowSimulation | None
    refine_steps: int
    compared: Comparison | None = None
    thickness_angstrom: float | None = None

    def images(self) -> ScanImages:
        """Returns the images of the scan before the first strip is added."""
        return ScanImages(self.plan, self.network, self.simulation, self.refine_steps)


def prepare(
    scan: FourDData,
    model: Model,
    pattern: Array,
    name: str,
    beam_intensity: float | None,
    specimen: KnownSpecimen | None,
    options: ReconstructionOptions,
    note: AddNote,
    compared: Comparison | None = None,
) -> Prepared:
    """Calibrates a scan, plans its resampling and loads the network.

    Args:
        scan: The scan; its patterns are not read.
        model: The trained network.
        pattern: Mean pattern, `(dy, dx)`, from which the optic axis and the scale are taken where they are not known.
        name: Name of the scan in error messages.
        beam_intensity: As for `reconstruct`.
        specimen: As for `reconstruct`.
        options: As for `reconstruct`.
        note: Called with a line about each thing that is done or assumed.
        compared: See `Prepared`.

    Raises:
        InputError: If the data do not fit the network.
    """
    centre = reading.optic_axis(scan, pattern, note)
    scale = reading.intensity_scale(scan, pattern, beam_intensity, model, note)
    plan = resampling.plan_resampling(scan, centre, model.conditions, name)
    checked, estimates = (compared.checked, compared.said) if compared else (frozenset[str](), [])
    unchecked = describe_unchecked(model.experiment, model.experiment.training.inputs, checked)
    for line in (*plan.notes, *estimates, unchecked):
        note(line)
    network = windows.prepare_network(model, plan, options.passes, note)
    simulation = None
    if specimen and not network.whole_scan:
        simulation = window_simulation(specimen, model, network.window, plan.step_angstrom)
    note(_uncertainty_note(network, model))
    if network.familiarity is None:
        note(f"familiarity: not measured, for {model.name} has no {familiarity.FILE}: run python -m train calibrate")
    note(_trust_note(specimen, simulation))
    if simulation and options.refine_steps:
        note(f"refined: {options.refine_steps} steps a window; the uncertainty is that of the network's own density")
    thickness = specimen.thickness_angstrom if specimen else None
    return Prepared(scan, model, centre, scale, plan, network, simulation, options.refine_steps, compared, thickness)


def assemble(
    prepared: Prepared, images: BlendedImages, pattern: Array, origin: str, notes: list[str]
) -> Reconstruction:
    """Returns images with their pixels and provenance.

    Args:
        prepared: The scan and the network.
        images: What was predicted.
        pattern: Mean pattern, `(dy, dx)`, in the data's units.
        origin: The data, for the provenance.
        notes: Lines about what was done and assumed.
    """
    scan, plan, model = prepared.scan, prepared.plan, prepared.model
    uncertainty, measured = images.uncertainty, model.calibration
    if uncertainty is not None:
        uncertainty = uncertainty * (measured.uncertainty_factor or 1)
    detector = [-at * pixel for at, pixel in zip(prepared.centre, scan.pixel_mrad, strict=True)]
    return Reconstruction(
        images.density.astype(np.float32),
        None if uncertainty is None else uncertainty.astype(np.float32),
        None if images.trust is None else images.trust.astype(np.float32),
        images.bright_field,
        pattern * prepared.scale,
        _density_pixels(scan, plan, model, images.density.shape),
        PixelGrid(plan.step_angstrom, scan.scan_origin_angstrom),
        PixelGrid(scan.pixel_mrad, detector),
        {
            "data": origin,
            "model": model.name,
            "weights": str(model.weights.resolve()),
            "weights_digest": checkpoint.read(model.weights)[0]["digest"],
            "namsa": version("namsa"),
            "energy_ev": model.conditions.energy_ev,
            "semiangle_mrad": model.conditions.semiangle_mrad,
            **({} if images.flagged is None else {"windows_not_familiar": images.flagged}),
            **({"estimated": prepared.compared.facts} if prepared.compared else {}),
            **({} if measured.two_sigma_factor is None else {"two_sigma_factor": measured.two_sigma_factor}),
            "said": [*notes],  # the key of the file format
        },
        familiarity=None if images.familiarity is None else images.familiarity.astype(np.float32),
        density_by_depth=None if images.by_depth is None else images.by_depth.astype(np.float32),
        depth_angstrom=None if images.by_depth is None else _known_thickness(prepared),
    )


def _known_thickness(prepared: Prepared) -> float | None:
    """Returns the thickness that the bins divide, Å: as given, or that of the whole training; `None` if it varied."""
    if prepared.thickness_angstrom:
        return prepared.thickness_angstrom
    learnt = set(prepared.model.experiment.specimen.thickness_angstrom)
    return learnt.pop() if len(learnt) == 1 else None


def check_layout(model: Model) -> None:
    """Checks that the network predicts a density, and that its target is on the positions that it predicts."""
    _ = model.network  # raises an error if it is of another task
    inputs, target = model.experiment.training.inputs, model.experiment.target
    if inputs.layout in ("scan", "depth") and target.at != "scan":
        raise InputError(f"{model.name} has layout scan and targets at the grid: use a network with target.at scan")


def check_arguments(
    beam_intensity: float | None, specimen: KnownSpecimen | None, options: ReconstructionOptions
) -> None:
    """Checks that all numbers are finite and in their ranges, and that they go together."""
    arguments: dict[str, float | None] = {
        "beam_intensity": beam_intensity,
        "thickness_angstrom": None if specimen is None else specimen.thickness_angstrom,
        "passes": options.passes,
        "refine_steps": options.refine_steps,
    }
    for name, value in arguments.items():
        low, high = LIMITS[name]
        if value is not None and not low <= value <= high:
            raise InputError(f"{name} is {shorten(value)}: give a number from {low:g} to {high:g}")
    if options.refine_steps and specimen is None:
        raise InputError(f"refine_steps is {options.refine_steps}: refinement needs the specimen's thickness, too")


def _trust_note(specimen: KnownSpecimen | None, simulation: WindowSimulation | None) -> str:
    """Returns a line about how trust is measured, or why it is not."""
    if specimen is None:
        return "trust: not measured, which takes the specimen's thickness: give --thickness-angstrom"
    if simulation is None:
        return "trust: not measured, for a network of layout detector has no windows"
    formula = f" of {specimen.formula}" if specimen.formula else ""
    return f"trust: 1 − R/R₀ of every window's simulation, for {specimen.thickness_angstrom:g} Å{formula}"


def _uncertainty_note(network: ScanNetwork, model: Model) -> str:
    """Returns a line about where the uncertainty comes from, or why there is none."""
    if not network.has_uncertainty:
        return "uncertainty: none, for there is no ensemble: give --passes, with a network that has dropout"
    factor, two_sigma = model.calibration.uncertainty_factor, model.calibration.two_sigma_factor
    sources = ["the ensemble's standard deviation"] if network.members > 1 else []
    sources += ["the error that the network predicts"] if model.predicts_its_error else []
    state = f"times {factor:g}, as calibrated" if factor else "not calibrated: a lower bound of the error"
    beyond = f"; 95 % of the errors are within {two_sigma:.3g} times that" if two_sigma else ""
    return f"uncertainty: {' and '.join(sources)}, {state}{beyond}"


def _density_pixels(scan: FourDData, plan: ResamplingPlan, model: Model, shape: tuple[int, ...]) -> PixelGrid:
    """Returns the pixels of the density, Å."""
    if model.experiment.training.inputs.layout in ("scan", "depth"):
        return PixelGrid(plan.step_angstrom, scan.scan_origin_angstrom)
    extent = list(model.experiment.specimen.lateral_angstrom)
    if model.experiment.scan.step_angstrom is None:
        extent = [n * step for n, step in zip(scan.shape, plan.step_angstrom, strict=False)]
    return PixelGrid([length / n for length, n in zip(extent, shape, strict=True)], (0.0, 0.0))
