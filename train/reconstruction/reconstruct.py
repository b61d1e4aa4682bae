"""From a microscope's 4D-STEM file to the electron density of its specimen, top to bottom.

The scan goes through in strips of rows, so that memory does not grow with it: what is held are a strip of patterns on
the network's detector, and images. What is done to the data, and what is assumed about it, is said and written beside
the result.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console

from namsa.errors import InputError, WorkError
from namsa.io import hdf5
from namsa.io.foreign import Given, Patterns, opened
from namsa.pixels import PixelGrid
from train.experiment.conditions import conditions, not_in_the_file
from train.measure import telemetry
from train.optimization import checkpoint
from train.reconstruction import reading as intake
from train.reconstruction import resampling as fit
from train.reconstruction import windows
from train.reconstruction.models import Model, find
from train.reconstruction.trust import Specimen, Trust, judge, refiner
from train.reconstruction.windows import Images

Array = npt.NDArray[Any]
Say = Callable[[str], None]

COLOURS = {"density": "viridis", "uncertainty": "cividis", "trust": "RdYlGn"}


def reconstruct(
    path: Path,
    checkpoint_name: str,
    out: Path,
    given: Given = Given(),  # noqa: B008 - frozen
    beam_intensity: float | None = None,
    passes: int | None = None,
    specimen: Specimen | None = None,
    refine_steps: int = 0,
    console: Console | None = None,
) -> None:
    """Writes the density of the scan in `path` to `out` (HDF5, EMD 1.0) and a picture beside it (.png).

    checkpoint_name: see `train.reconstruction.models.find`
    given: what the file does not say, or says wrongly
    beam_intensity: the sum of a pattern without a specimen, in the file's units
    passes: with dropout, for each symmetry
    specimen: what is known of it, by which trust is measured; see `train.reconstruction.trust`
    refine_steps: towards the patterns, from each window's density; takes a specimen; see `train.reconstruction.refine`

    Raises InputError where the data do not fit what the network was trained for, or do not say enough; WorkError where
    `out` cannot be written.
    """
    console = console or Console(quiet=True)

    def say(line: str) -> None:
        said.append(line)
        console.print(line, highlight=False, soft_wrap=True)

    said: list[str] = []
    model = find(checkpoint_name)
    trained = conditions(model.experiment)
    _check_model(model)
    with opened(path, given) as data:
        sy, sx, dy, dx = data.shape
        say(f"{path}: {sy}×{sx} patterns of {dy}×{dx} pixels, {data.data.dtype}")
        fit.check(data, trained, path)
        pattern = intake.survey(data, path)
        centre = intake.centre(data, pattern, say)
        scale = intake.scale(data, pattern, beam_intensity, model, say)
        plan = fit.plan(data, centre, trained, path)
        for line in (*plan.said, not_in_the_file(model.experiment, model.experiment.training.inputs)):
            say(line)
        network = windows.ready((plan.down.shape[0], plan.along.shape[0]), plan, model, trained, passes, say)
        judged = judge(specimen, model, network.window, plan.step_angstrom) if specimen and not network.whole else None
        say(_about_trust(specimen, judged))
        improve = None
        if judged and specimen and refine_steps:
            improve = refiner(specimen, model, network.window, plan.step_angstrom, refine_steps)
            say(f"refined: {refine_steps} steps a window; the uncertainty is that of the network's own density")
        with (
            telemetry.counter(console, "scan rows") as done,
            closing(intake.bands(data, plan, scale, lambda row: done(row, data.shape[0]))) as bands,
        ):
            images = windows.images(bands, plan, network, trained, judged, improve, say)
        images = _calibrated(images, model, say)
        frame = PixelGrid(*_axes(data, plan, model, images.density.shape))
        scan = PixelGrid(plan.step_angstrom, data.scan_origin_angstrom)
        angles = PixelGrid(data.pixel_mrad, [-at * pixel for at, pixel in zip(centre, data.pixel_mrad, strict=True)])
    provenance = {
        "data": str(path.resolve()),
        "model": model.name,
        "weights": str(model.weights.resolve()),
        "weights_digest": checkpoint.read(model.weights)[0]["digest"],
        "namsa": version("namsa"),
        "energy_ev": trained.energy_ev,
        "semiangle_mrad": trained.semiangle_mrad,
        "said": said,
    }
    _write(out, images, pattern * scale, frame, scan, angles, provenance)
    console.print(f"{out} and {out.with_suffix('.png')}", highlight=False, soft_wrap=True)


def _check_model(model: Model) -> None:
    inputs, target = model.experiment.training.inputs, model.experiment.target
    if inputs.layout == "scan" and target.at != "scan":
        raise InputError(f"{model.name} has layout scan and targets at the grid: use a network with target.at scan")


def _about_trust(specimen: Specimen | None, judged: Trust | None) -> str:
    if specimen is None:
        return "trust: not measured, which takes the specimen's thickness: give --thickness-angstrom"
    if judged is None:
        return "trust: not measured, for a network of layout detector has no windows"
    of = f" of {specimen.formula}" if specimen.formula else ""
    return f"trust: 1 − R/R₀ of every window's simulation, for {specimen.thickness_angstrom:g} Å{of}"


def _calibrated(images: Images, model: Model, say: Say) -> Images:
    if images.uncertainty is None:
        say("uncertainty: none, for there is no ensemble: give --passes, with a network that has dropout")
        return images
    factor = float(model.calibration.get("uncertainty_factor", 0))
    how = f"times {factor:g}, as calibrated" if factor else "not calibrated: a lower bound of the error"
    say(f"uncertainty: the ensemble's standard deviation, {how}")
    return replace(images, uncertainty=images.uncertainty * (factor or 1))


def _axes(data: Patterns, plan: fit.Plan, model: Model, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """(step, origin) of the images, Å."""
    if model.experiment.training.inputs.layout == "scan":
        return plan.step_angstrom, data.scan_origin_angstrom
    cell = model.experiment.specimen.lateral_angstrom
    extent = [n * step for n, step in zip(data.shape, plan.step_angstrom, strict=False)]
    extent = extent if model.experiment.scan.step_angstrom is None else list(cell)
    return [length / n for length, n in zip(extent, shape, strict=True)], (0.0, 0.0)


def _write(
    out: Path,
    images: Images,
    pattern: Array,
    frame: PixelGrid,
    scan: PixelGrid,
    angles: PixelGrid,
    provenance: dict[str, Any],
) -> None:
    from train.reports.figures import reconstruction_figure

    found = {
        "density": (images.density, "e/Å²"),
        "uncertainty": (images.uncertainty, "e/Å²"),
        "trust": (images.trust, ""),
    }
    stored = {name: (image.astype(np.float32), units) for name, (image, units) in found.items() if image is not None}
    hdf5.write_images(out, "reconstruction", stored, frame, provenance)
    drawn = {"Bright field": (images.bright_field, scan, "fraction of the beam", "gray")}
    drawn |= {name.capitalize(): (image, frame, units, COLOURS[name]) for name, (image, units) in stored.items()}
    title = f"{Path(provenance['data']).name}  ·  {provenance['model']}"
    figure = reconstruction_figure(pattern, angles, provenance["semiangle_mrad"], drawn, title)
    try:
        figure.savefig(out.with_suffix(".png"))
    except OSError as error:
        raise WorkError(f"cannot write {out.with_suffix('.png')}: {error.strerror}") from None
