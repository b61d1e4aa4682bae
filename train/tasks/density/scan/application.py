"""Reconstructs the electron density of a specimen from a 4D-STEM scan, top to bottom.

The scan passes through in strips of rows, so that memory does not grow with it: only a strip of
patterns on the network's detector, and images, are held. Everything that is done to the data or
assumed about them is noted, and written with the result.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.notebook_progress import Report
from namsa.base.pixels import PixelGrid, detector_grid
from namsa.io.calibration import CalibrationOverrides

from ....apply.estimated import Estimated
from ....apply.learnt import learnt
from ....apply.models import Model
from ....apply.scans import BEAM_INTENSITY, FittedScan, Notes, check_number, network_for, open_scan
from ..trust.aberrations import MEASURED
from ..trust.consistency import KnownSpecimen
from . import windows
from .halves import Halves
from .options import LIMITS, ReconstructionOptions
from .pacbed import AmountByPatterns
from .preparation import Findings, Measure, Prepared, prepare, thickness_warning
from .refine import Refinement
from .result import Reconstruction
from .scan_images import BlendedImages, ScanImages
from .thicker import ThickerComparison, is_thickness_known, pair_for
from .truth import true_density

# In the order in which they are taken.
MEASURES: tuple[type[Measure], ...] = (AmountByPatterns, Refinement, Halves)


def reconstruct(
    data: str | Path | npt.ArrayLike,
    model: Model | str | Path,
    calibration: CalibrationOverrides = CalibrationOverrides(),  # noqa: B008 - frozen
    *,
    beam_intensity: float | None = None,
    specimen: KnownSpecimen | None = None,
    options: ReconstructionOptions = ReconstructionOptions(),  # noqa: B008 - frozen
    layout: Mapping[str, object] | None = None,
    estimated: Estimated | None = None,
    console: Console | None = None,
    on_progress: Report | None = None,
) -> Reconstruction:
    """Reconstructs the projected electron density of a scan with a trained network.

    Args:
        data: Path of a file that `namsa.read` opens, or patterns `(sy, sx, dy, dx)`, in any units
            of intensity.
        model: The network, or what `train.load_model` finds it by.
        calibration: What the file does not say, or says wrongly. An array needs at least energy,
            semiangle, scan step and detector pixel.
        beam_intensity: Sum of a pattern without a specimen, in the data's units. `None` assumes
            that the mean pattern holds the same fraction of the beam as the network's training
            data.
        specimen: What is known about the specimen.
        options: Dropout, refinement and measures.
        layout: How the patterns lie in a file that does not say it, as `namsa.read` takes it:
            {"scan_shape": (64, 96)}.
        estimated: Thickness, defocus and tilt of the scan, as `train.estimate` returns them. They
            are compared with what the network has learnt. `None` compares nothing.
        console: Where notes and progress are printed. `None` prints nothing; the notes are in the
            result.
        on_progress: Called as `on_progress(stage, done, total)`. Default: a bar in a notebook,
            if the call takes long, and else nothing.

    Returns:
        Density with uncertainty, familiarity, trust, axes and provenance.

    Raises:
        InputError: If the data do not fit the network, or if their calibration is not complete.
        WorkError: If the file is damaged.
    """
    note = Notes(console, on_progress)
    model = checked_network(model, beam_intensity, specimen, options)
    asked = _asked(options)
    compared = None
    compared_settings = frozenset[str]()
    lines: Sequence[str] = ()
    if estimated:
        compared = estimated.compared_with(model.experiment)
        compared_settings = compared.checked
        lines = compared.lines
    with open_scan(
        data,
        model,
        calibration,
        note,
        beam_intensity=beam_intensity,
        layout=layout,
        estimated=MEASURED | compared_settings,
        estimates=lines,
    ) as scan:
        prepared = prepare(scan, specimen, options, compared, asked)
        measures = _measures(prepared, asked)
        images = _predicted_images(prepared, measures)
        findings = Findings(images, prepared.specimen, {})
        for measure in measures:
            findings = measure.after(findings)
        truth = _truth(data, calibration, scan)
        result = assemble(prepared, findings.images, scan.pattern, truth)
        result.provenance.update(findings.facts)
        return result


def checked_network(
    model: Model | str | Path,
    beam_intensity: float | None,
    specimen: KnownSpecimen | None,
    options: ReconstructionOptions,
    whole_scan: bool = True,
) -> Model:
    """Returns the network of a reconstruction, after checks of the arguments, as of `reconstruct`.

    Args:
        whole_scan: Whether the whole scan is there, which the measures need.
    """
    model = network_for("density", model)
    inputs = model.experiment.training.inputs
    target = model.experiment.target
    if inputs.layout in ("scan", "depth") and target.at != "scan":
        raise InputError(
            f"{model.name} has layout scan and targets at the grid: use a network with target.at "
            "scan"
        )
    check_number("beam_intensity", beam_intensity, BEAM_INTENSITY)
    arguments = vars(specimen or KnownSpecimen()) | vars(options)
    for name, limits in LIMITS.items():
        check_number(name, arguments[name], limits)
    asked = _asked(options)
    if asked and not whole_scan:
        named = " and ".join(measure.option for measure in asked)
        raise InputError(
            f"the whole scan is needed for {named}: use reconstruct when it is complete"
        )
    for measure in asked:
        measure.check(model)
    return model


def _asked(options: ReconstructionOptions) -> list[type[Measure]]:
    """Returns the measures that options ask for."""
    return [measure for measure in MEASURES if measure.is_asked(options)]


def _measures(prepared: Prepared, asked: Sequence[type[Measure]]) -> list[Measure]:
    """Returns what follows the density: what was asked for, after a comparison with a network for
    thicker specimens where the thickness is not known.
    """
    measures: list[Measure] = [measure(prepared) for measure in asked]
    if is_thickness_known(prepared):
        return measures
    pair = pair_for(prepared.scan.model, prepared.scan.plan.scan_shape)
    if pair is None:
        return measures
    return [ThickerComparison(prepared, pair), *measures]


def _predicted_images(prepared: Prepared, measures: Sequence[Measure]) -> BlendedImages:
    """Returns the images of a scan, whose strips are shown to the measures."""
    scan = prepared.scan
    with (
        scan.bands_without_progress(lost=prepared.lost) as bands,
        scan.note.counter("windows") as count,
    ):
        return windows.predict_images(
            bands, prepared.images(count), scan.note, [measure.see for measure in measures]
        )


def so_far(prepared: Prepared, images: ScanImages, pattern: Array) -> Reconstruction:
    """Returns the reconstruction by the strips that were added; after the last one it notes what
    all of them show.
    """
    blended = images.blended()
    note = prepared.scan.note
    if images.strips == len(images.rows):  # in the order of `reconstruct`
        windows.note_findings(images, blended, note)
        for line in prepared.scan.losses.lines(prepared.lost):
            note(line)
    return assemble(prepared, blended, pattern)


def _truth(
    data: str | Path | npt.ArrayLike, calibration: CalibrationOverrides, scan: FittedScan
) -> Array | None:
    """Returns the true density of a simulated scan; `None` if its file does not hold it, or if its
    rows or columns were exchanged.
    """
    reordered = calibration.serpentine or calibration.flip_scan
    if reordered or not isinstance(data, str | Path):
        return None
    return true_density(Path(data), scan)


def assemble(
    prepared: Prepared, images: BlendedImages, pattern: Array, truth: Array | None = None
) -> Reconstruction:
    """Returns images with their pixels and provenance.

    Args:
        prepared: The scan and its network.
        images: The images.
        pattern: The mean pattern, `(dy, dx)`, in the data's units.
        truth: The true density at the density's pixels; `None` if it is not known.
    """
    scan = prepared.scan
    return Reconstruction(
        images.density.astype(np.float32),
        _float32(images.uncertainty),
        _float32(images.trust),
        images.bright_field,
        pattern * scan.scale,
        _density_pixels(scan, images.density.shape),
        scan.pixels,
        detector_grid(scan.data.pixel_mrad, scan.centre),
        _provenance(prepared, images),
        familiarity=_float32(images.familiarity),
        density_by_depth=_float32(images.by_depth),
        depth_angstrom=None if images.by_depth is None else _known_thickness(prepared),
        truth=truth,
    )


def _provenance(prepared: Prepared, images: BlendedImages) -> dict[str, object]:
    """Returns what a result's file holds beside its arrays; JSON types only."""
    scan = prepared.scan
    optional = {
        "windows_not_familiar": images.flagged,
        "error_over_contrast": images.error_over_contrast,
        "lost_patterns": [list(place) for place in sorted(scan.losses.patterns)] or None,
        "aberrations": images.aberrations,
        "orientation": images.orientation,
        "intensities": images.intensities,
        "estimated": prepared.compared.facts if prepared.compared else None,
        "max_q_per_angstrom": scan.model.max_q,
        "thickness_angstrom": prepared.specimen.thickness_angstrom or scan.data.thickness_angstrom,
        "counts_per_pattern": _counts_per_pattern(scan),
        "two_sigma_factor": scan.model.calibration.two_sigma_factor,
        "formula_learnt": _kinship(prepared),
        "thickness_outside": thickness_warning(prepared.specimen, scan.model) or None,
    }
    known = {name: value for name, value in optional.items() if value is not None}
    return {**scan.provenance, **scan.beam, **known, "notes": list(scan.note.lines)}


def _counts_per_pattern(scan: FittedScan) -> float | None:
    """Returns the beam in the data's units if these can be counts; fractions of it have 1."""
    beam = float(1 / scan.scale)
    return None if scan.data.normalised or beam <= 1 else beam


def _float32(image: Array | None) -> Array | None:
    return None if image is None else image.astype(np.float32)


def _kinship(prepared: Prepared) -> str | None:
    """Returns whether the network has learnt the formula of the specimen; `None` without one."""
    formula = prepared.specimen.formula
    if formula is None:
        return None
    return learnt(prepared.scan.model).kinship(formula)


def _known_thickness(prepared: Prepared) -> float | None:
    """Returns the thickness that the bins divide, Å: as given, or that of the whole training;
    `None` if it varied.
    """
    if prepared.specimen.thickness_angstrom:
        return prepared.specimen.thickness_angstrom
    learnt = set(prepared.scan.model.experiment.specimen.thickness_angstrom)
    return learnt.pop() if len(learnt) == 1 else None


def _density_pixels(scan: FittedScan, shape: tuple[int, ...]) -> PixelGrid:
    """Returns the pixels of the density, Å."""
    experiment = scan.model.experiment
    if experiment.training.inputs.layout in ("scan", "depth"):
        return scan.pixels
    extent = list(experiment.specimen.lateral_angstrom)
    if experiment.scan.step_angstrom is None:
        extent = [
            n * step for n, step in zip(scan.data.shape, scan.plan.step_angstrom, strict=False)
        ]
    return PixelGrid([length / n for length, n in zip(extent, shape, strict=True)], (0.0, 0.0))
