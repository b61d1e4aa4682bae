"""Reconstructs the electron density of a specimen from a 4D-STEM scan, top to bottom.

The scan passes through in strips of rows, so that memory does not grow with it: only a strip of patterns on the
network's detector, and images, are held. Everything that is done to the data or assumed about them is noted, and
written with the result.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console

from namsa.arrays import Array
from namsa.errors import InputError
from namsa.io.calibration import CalibrationOverrides
from namsa.pixels import PixelGrid, detector_grid

from ...apply import familiarity, pacbed, windows
from ...apply.aberrations import MEASURED
from ...apply.models import Model
from ...apply.reading import AddNote
from ...apply.refine import refined_images
from ...apply.scans import FittedScan, Notes, check_number, network_for, open_scan
from ...apply.trust import (
    THICKNESS_ANGSTROM,
    TRANSFER,
    Comparison,
    Estimated,
    KnownSpecimen,
    WindowSimulation,
    window_simulation,
)
from ...apply.windows import BlendedImages, ScanImages, ScanNetwork
from ...program import PROGRAM
from .halves import check_halves, measure_halves
from .result import Reconstruction

GIVE_THICKNESS = "give --thickness-angstrom, or --pacbed or --estimator to find it"
# The smallest and the largest number of each argument.
LIMITS = {
    "thickness_angstrom": THICKNESS_ANGSTROM,
    "passes": (0, 1000),
    "refine_steps": (0, 10_000),
    "vibration_angstrom": (1e-3, 1.0),
}


@dataclass(frozen=True)
class ReconstructionOptions:
    """How a scan is reconstructed.

    Attributes:
        passes: Predictions with dropout per symmetry. `None` takes none if there are several symmetries, otherwise
            eight if the network has dropout.
        refine_steps: Steps of `train.apply.refine`, at most; 0 refines nothing. They take a thickness, as trust does.
        pacbed: Whether the density is scaled by what the mean pattern says of its amount (`namsa.inverse.amount`).
        halves: Whether the halves of the scan are reconstructed, too, and compared (`train.tasks.density.halves`).
        trust: Whether trust is measured if a thickness is known: as given, else as in the file, as estimated, or as
            pacbed fits it. `False` takes no thickness from the file.
    """

    passes: int | None = None
    refine_steps: int = 0
    pacbed: bool = False
    halves: bool = False
    trust: bool = True


def reconstruct(
    data: str | Path | npt.ArrayLike,
    model: Model | str | Path,
    calibration: CalibrationOverrides = CalibrationOverrides(),  # noqa: B008 - frozen
    *,
    beam_intensity: float | None = None,
    specimen: KnownSpecimen | None = None,
    options: ReconstructionOptions = ReconstructionOptions(),
    layout: Mapping[str, Any] | None = None,
    estimated: Estimated | None = None,
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
        specimen: What is known about the specimen.
        options: Dropout, refinement and measures.
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
    note, model = Notes(console), network_for("density", model)
    check_layout(model)
    check_arguments(specimen, options)
    if options.refine_steps and model.experiment.bins_shape():
        raise InputError(
            f"refine_steps refines a projected density, and {model.name} predicts it by depth: set it to 0"
        )
    compared = estimated.compared_with(model.experiment) if estimated else None
    with open_scan(
        data,
        model,
        calibration,
        note,
        beam_intensity=beam_intensity,
        layout=layout,
        estimated=MEASURED | (compared.checked if compared else frozenset()),
        estimates=compared.said if compared else (),
    ) as scan:
        prepared = prepare(scan, specimen, options, note, compared)
        with scan.bands(note.console, prepared.lost) as bands:
            images = windows.predict_images(bands, prepared.images(), note)
        found, known = None, prepared.specimen
        if prepared.masks is not None:
            found = pacbed.fit_amount(images, scan.pixels, model, known)
            images = pacbed.scaled(images, found)
            note(found.line())
            if known.thickness_angstrom is None:
                thickness, error = found.thickness_angstrom, found.thickness_error
                known = replace(known, thickness_angstrom=thickness, thickness_error=error, source="as pacbed fits it")
                images = _with_trust(prepared, images, known, note) if options.trust else images
        refinement = None
        if options.refine_steps:
            note(f"refined: begins with {known.thickness_angstrom:.4g} Å, the thickness {known.source}")
            images, refinement, lines = refined_images(
                images, scan, prepared.network, known, options.refine_steps, note.console
            )
            for line in lines:
                note(line)
        compared_halves = None
        if options.halves:
            compared_halves, lines = measure_halves(scan, prepared.network, prepared.simulation, prepared.images)
            for line in lines:
                note(line)
        result = assemble(prepared, images, scan.pattern, note.lines)
        facts = {"pacbed": found.facts() if found else None, "halves": compared_halves, "refined": refinement}
        result.provenance.update({name: value for name, value in facts.items() if value})
        return result


@dataclass(frozen=True)
class Prepared:
    """A scan and a network that are ready for each other."""

    scan: FittedScan  # the scan
    network: ScanNetwork  # its network, loaded
    specimen: KnownSpecimen  # with a thickness if one is known, or estimated, before the density is
    simulation: WindowSimulation | None  # simulation of a window, by which trust is measured; `None` measures none
    # What was estimated of the scan, beside what the network has learnt. `None` if nothing was.
    compared: Comparison | None = None
    masks: Array | None = None  # of the rings by which the amount is fitted; `None` if it is not

    @property
    def lost(self) -> str:
        """What becomes of lost patterns, for the note."""
        return "their neighbours' mean is used" if self.network.whole_scan else "masked in the result"

    def images(self) -> ScanImages:
        """Returns the images of the scan before the first strip is added."""
        return ScanImages(self.scan.plan, self.network, self.simulation, self.masks)


def prepare(
    scan: FittedScan,  # the scan; its patterns are not read
    specimen: KnownSpecimen | None,  # as for `reconstruct`
    options: ReconstructionOptions,  # as for `reconstruct`
    note: AddNote,  # called with a line about each thing that is done or assumed
    compared: Comparison | None = None,  # see `Prepared`
) -> Prepared:
    """Loads the network of a scan. Raises InputError if the data do not fit the network."""
    model, plan, given = scan.model, scan.plan, specimen
    specimen = (given or KnownSpecimen()).with_thickness(
        scan.data.thickness_angstrom if options.trust or options.refine_steps else None, compared
    )
    known = None if specimen.thickness_error else specimen.thickness_angstrom
    network = windows.prepare_network(model, plan, options.passes, note, known)
    simulation = None
    if (
        options.trust
        and not network.whole_scan
        and (specimen.can_be_simulated(model) or (given and given.thickness_angstrom))
    ):
        simulation = window_simulation(specimen, model, network.window, plan.step_angstrom)
    note(_uncertainty_note(network, model))
    if network.familiarity is None:
        note(f"familiarity: not measured, for {model.name} has no {familiarity.FILE}: run {PROGRAM} calibrate")
    note(_trust_line(specimen) if simulation else _no_trust_line(specimen, model, options))
    if options.refine_steps and network.whole_scan:
        raise InputError(f"{model.name} has no density at the scan's positions (layout detector), which --refine needs")
    if options.refine_steps and specimen.thickness_angstrom is None and not options.pacbed:
        raise InputError(
            f"refine_steps is {options.refine_steps}, and no thickness of the specimen is known: {GIVE_THICKNESS}"
        )
    if options.refine_steps:
        note("refined: trust and uncertainty are those of the network's own density")
    masks = pacbed.ring_masks(model) if options.pacbed else None
    if options.halves:
        check_halves(plan, network.whole_scan)
    return Prepared(scan, network, specimen, simulation, compared, masks)


def assemble(prepared: Prepared, images: BlendedImages, pattern: Array, notes: list[str]) -> Reconstruction:
    """Returns images with their pixels and provenance, and the mean pattern `(dy, dx)`, in the data's units."""
    scan = prepared.scan
    uncertainty, measured, ratio = images.uncertainty, scan.model.calibration, images.error_over_contrast
    return Reconstruction(
        images.density.astype(np.float32),
        None if uncertainty is None else uncertainty.astype(np.float32),
        None if images.trust is None else images.trust.astype(np.float32),
        images.bright_field,
        pattern * scan.scale,
        _density_pixels(scan, images.density.shape),
        scan.pixels,
        detector_grid(scan.data.pixel_mrad, scan.centre),
        {
            **scan.provenance,
            **scan.beam,
            **({} if images.flagged is None else {"windows_not_familiar": images.flagged}),
            **({} if ratio is None else {"error_over_contrast": ratio}),
            **({"lost_patterns": [list(place) for place in sorted(lost)]} if (lost := scan.losses.patterns) else {}),
            **({} if images.aberrations is None else {"aberrations": images.aberrations}),
            **({} if images.orientation is None else {"orientation": images.orientation}),
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
    if prepared.specimen.thickness_angstrom:
        return prepared.specimen.thickness_angstrom
    learnt = set(prepared.scan.model.experiment.specimen.thickness_angstrom)
    return learnt.pop() if len(learnt) == 1 else None


def check_layout(model: Model) -> None:
    """Checks that the network's target is on the positions that it predicts."""
    inputs, target = model.experiment.training.inputs, model.experiment.target
    if inputs.layout in ("scan", "depth") and target.at != "scan":
        raise InputError(f"{model.name} has layout scan and targets at the grid: use a network with target.at scan")


def check_arguments(specimen: KnownSpecimen | None, options: ReconstructionOptions) -> None:
    """Checks that all numbers are finite and in their ranges."""
    arguments: dict[str, float | None] = {
        "thickness_angstrom": None if specimen is None else specimen.thickness_angstrom,
        "passes": options.passes,
        "refine_steps": options.refine_steps,
        "vibration_angstrom": None if specimen is None else specimen.vibration_angstrom,
    }
    for name, value in arguments.items():
        check_number(name, value, LIMITS[name])


def _with_trust(prepared: Prepared, images: BlendedImages, specimen: KnownSpecimen, note: AddNote) -> BlendedImages:
    """Returns the images with the trust in their density for a thickness that was fitted. The file is read again."""
    scan, network = prepared.scan, prepared.network
    if not specimen.can_be_simulated(scan.model):
        return images
    simulation = window_simulation(specimen, scan.model, network.window, scan.plan.step_angstrom)
    note(_trust_line(specimen))
    with scan.bands(Console(quiet=True), "") as bands:
        return replace(images, trust=prepared.images().trust_in(images.density, bands, simulation))


def _trust_line(specimen: KnownSpecimen) -> str:
    """Returns a line about how trust is measured."""
    formula = f" of {specimen.formula}" if specimen.formula else ""
    return (
        f"trust: 1 − R/R₀ of every window's simulation, for {specimen.thickness_angstrom:.4g} Å{formula}, the "
        f"thickness {specimen.source}"
    )


def _no_trust_line(specimen: KnownSpecimen, model: Model, options: ReconstructionOptions) -> str:
    """Returns a line about why trust is not measured, or not yet."""
    if not options.trust:
        return "trust: not measured, as asked"
    if specimen.thickness_angstrom is None:
        if options.pacbed:
            return "trust: measured after the amount, for the thickness that is found"
        return f"trust: not measured, which takes the specimen's thickness: {GIVE_THICKNESS}"
    if specimen.can_be_simulated(model):
        return "trust: not measured, for a network of layout detector has no windows"
    return f"trust: not measured, for {model.name} has no {TRANSFER}: give --formula"


def _uncertainty_note(network: ScanNetwork, model: Model) -> str:
    """Returns a line about where the uncertainty comes from, or why there is none."""
    if not network.has_uncertainty:
        return "uncertainty: none, for there is no ensemble: give --passes, with a network that has dropout"
    factor, two_sigma = model.calibration.uncertainty_factor, model.calibration.two_sigma_factor
    sources = ["the ensemble's standard deviation"] if network.members > 1 else []
    sources += ["the error that the network predicts"] if model.predicts_its_error else []
    state = f"times {factor:.3g}, as calibrated" if factor else "not calibrated: a lower bound of the error"
    beyond = f"; 95 % of the errors are within {two_sigma:.3g} times that" if two_sigma else ""
    return f"uncertainty: {' and '.join(sources)}, {state}{beyond}"


def _density_pixels(scan: FittedScan, shape: tuple[int, ...]) -> PixelGrid:
    """Returns the pixels of the density, Å."""
    experiment = scan.model.experiment
    if experiment.training.inputs.layout in ("scan", "depth"):
        return scan.pixels
    extent = list(experiment.specimen.lateral_angstrom)
    if experiment.scan.step_angstrom is None:
        extent = [n * step for n, step in zip(scan.data.shape, scan.plan.step_angstrom, strict=False)]
    return PixelGrid([length / n for length, n in zip(extent, shape, strict=True)], (0.0, 0.0))
