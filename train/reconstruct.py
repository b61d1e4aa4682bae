"""From a microscope's 4D-STEM file to the electron density of its specimen, top to bottom.

The scan goes through in strips of rows, so that memory does not grow with it: what is held are a strip of patterns on
the network's detector, and images. What is done to the data, and what is assumed about it, is said and written beside
the result.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console

from namsa import hdf5
from namsa.backend import available_cores
from namsa.errors import InputError, WorkError
from namsa.fourd import Given, Patterns, opened
from namsa.frame import Frame
from namsa.words import counted
from train import checkpoint, ensemble, fit, telemetry, tiles
from train.readahead import ahead
from train.trained import Conditions, Model, conditions, find, not_in_the_file
from train.trust import Refine, Specimen, Trust, judge, refiner

Array = npt.NDArray[Any]
Say = Callable[[str], None]

PIECE_BYTES = 16 * 2**20  # of patterns that a thread reads at once; three times as much is made of them
READERS = 4  # threads: HDF5 unpacks for one at a time
BAND_ROWS = 8  # scan rows that are read together, or more where the file keeps more together
SURVEY_ROWS = 16  # scan rows that the mean pattern is taken from
BATCH_BYTES = 128 * 2**20  # of windows that the network is given at once
NEGATIVE = 0.01  # of the intensity: what a subtracted dark level may leave
MARGIN = 1 / 8  # of a window's side, where the network sees the padding behind the window's edge most
COLOURS = {"density": "viridis", "uncertainty": "cividis", "trust": "RdYlGn"}


@dataclass(frozen=True)
class Images:
    """What comes out, on the network's scan positions.

    density: e/Å²; uncertainty: e/Å², one standard deviation, None where there is no ensemble
    trust: `train.trust` of the window that a position is in, None where nobody was asked
    bright_field: fraction of the beam in the disk
    """

    density: Array
    uncertainty: Array | None
    trust: Array | None
    bright_field: Array


@dataclass(frozen=True)
class Network:
    """A network made ready for a scan: its window (y, x), where one may begin, and how many answers it gives to each.

    whole: whether it takes the whole scan at once and answers with an image of another shape (layout detector)
    """

    predict: ensemble.Predict
    window: tuple[int, int]
    multiple: int
    answers: int
    image: tuple[int, int]
    whole: bool


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

    checkpoint_name: see `train.trained.find`
    given: what the file does not say, or says wrongly
    beam_intensity: the sum of a pattern without a specimen, in the file's units
    passes: with dropout, for each symmetry
    specimen: what is known of it, by which trust is measured; see `train.trust`
    refine_steps: towards the patterns, from each window's density; takes a specimen; see `train.refine`

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
        pattern = _survey(data, path)
        centre = _centre(data, pattern, say)
        scale = _scale(data, pattern, beam_intensity, model, say)
        plan = fit.plan(data, centre, trained, path)
        for line in (*plan.said, not_in_the_file(model.experiment)):
            say(line)
        network = _network((plan.down.shape[0], plan.along.shape[0]), plan, model, trained, passes, say)
        judged = judge(specimen, model, network.window, plan.step_angstrom) if specimen and not network.whole else None
        say(_about_trust(specimen, judged))
        improve = None
        if judged and specimen and refine_steps:
            improve = refiner(specimen, model, network.window, plan.step_angstrom, refine_steps)
            say(f"refined: {refine_steps} steps a window; the uncertainty is that of the network's own density")
        with (
            telemetry.counter(console, "scan rows") as done,
            closing(_bands(data, plan, scale, lambda row: done(row, data.shape[0]))) as bands,
        ):
            images = _images(bands, plan, network, trained, judged, improve, say)
        images = _calibrated(images, model, say)
        frame = Frame(*_axes(data, plan, model, images.density.shape))
        scan = Frame(plan.step_angstrom, data.scan_origin_angstrom)
        angles = Frame(data.pixel_mrad, [-at * pixel for at, pixel in zip(centre, data.pixel_mrad, strict=True)])
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


# ---- What the patterns are ------------------------------------------------------------------------------------------


def _survey(data: Patterns, path: Path) -> Array:
    """The mean pattern (dy, dx), float64, of rows of the scan, evenly spaced. Raises InputError where it is none."""
    rows = np.unique(np.linspace(0, data.shape[0] - 1, SURVEY_ROWS).round().astype(int))
    total = np.zeros(data.shape[2:])
    for row in rows:
        for columns in _pieces(data, 1):
            total += data.read(slice(row, row + 1), columns).sum(axis=(0, 1), dtype=np.float64)
    if not np.isfinite(total).all() or total.sum() <= 0:
        raise InputError(f"{path} holds patterns that are not finite or sum to nothing: mask its bad pixels")
    return total / (len(rows) * data.shape[1])


def _centre(data: Patterns, pattern: Array, say: Say) -> tuple[float, float]:
    if data.centre_pixels is not None:
        y, x = data.centre_pixels
        say(f"optic axis at pixel ({y:.2f}, {x:.2f}), as the file or the command says")
    else:
        y, x = (
            float(pattern.sum(axis=1 - axis) @ np.arange(n)) / pattern.sum() for axis, n in enumerate(pattern.shape)
        )
        say(f"optic axis taken at pixel ({y:.2f}, {x:.2f}), the mean pattern's centre of mass")
    return y, x


def _scale(data: Patterns, pattern: Array, beam_intensity: float | None, model: Model, say: Say) -> float:
    """What turns the file's intensities into fractions of the incident beam."""
    if beam_intensity is not None:
        part = pattern.sum() / beam_intensity
        say(f"intensities over the given {beam_intensity:g}: the mean pattern is {part:.3f} of the beam")
        return 1 / beam_intensity
    if data.fractions:
        say(f"intensities are fractions of the beam: {pattern.sum():.3f} of it in the mean pattern")
        return 1.0
    fraction = float(model.calibration.get("transmitted_fraction", 1.0))
    say(
        f"assumed: the mean pattern, {pattern.sum():.4g} in the file's units, is {fraction:g} of the beam; "
        "where the beam's own sum is known, give --beam-intensity"
    )
    return fraction / float(pattern.sum())


# ---- From patterns to images ----------------------------------------------------------------------------------------


def _network(
    scan: tuple[int, int], plan: fit.Plan, model: Model, trained: Conditions, passes: int | None, say: Say
) -> Network:
    whole = model.experiment.training.inputs.layout == "detector"
    window, multiple = _window(scan, model, trained, whole)
    image = trained.detector_shape if whole else window
    chosen, passes = ensemble.guises(model, window, plan.step_angstrom, passes)
    predict = ensemble.members(ensemble.network(model, image), model, chosen, passes)
    say(
        f"{model.name}: windows of {window[0]}×{window[1]} positions, "
        f"{counted(len(chosen) * max(1, passes), 'prediction')} of each: {len(chosen)} by symmetry"
        + (f", times {passes} with dropout" if passes else ", without dropout")
    )
    return Network(predict, window, multiple, len(chosen) * max(1, passes), image, whole)


def _images(
    bands: Iterator[Array],
    plan: fit.Plan,
    network: Network,
    trained: Conditions,
    trust: Trust | None,
    improve: Refine | None,
    say: Say,
) -> Images:
    scan = (plan.down.shape[0], plan.along.shape[0])
    rows, columns = (tiles.windows(n, side, network.multiple) for n, side in zip(scan, network.window, strict=True))
    asked = {(y, x) for y in tiles.apart(rows) for x in tiles.apart(columns)} if trust else set()
    margin = 0 if network.whole else int(MARGIN * min(network.window))
    shape = network.image if network.whole else scan
    blend, scores = tiles.Blend(shape, margin), tiles.Blend(shape, 0)
    disk, bright = fit.bright(trained), np.zeros(scan, np.float32)
    dark = light = 0.0
    for y, (row, strip) in enumerate(zip(rows, tiles.strips(bands, plan.down, rows), strict=True)):
        dark -= float(strip[strip < 0].sum(dtype=np.float64))
        light += float(strip.sum(dtype=np.float64))
        if dark > NEGATIVE * light:
            raise InputError(
                f"more than {100 * NEGATIVE:g} % of the intensity is negative: subtract no more than the dark level"
            )
        bright[row] = strip[..., disk].sum(axis=-1)
        patterns = np.maximum(strip, 0).reshape(*strip.shape[:2], *trained.detector_shape)
        for x, answer in _answers(patterns, columns, network.predict):
            place = (slice(0, shape[0]), slice(0, shape[1])) if network.whole else (row, columns[x])
            if improve:
                estimate = answer.mean(axis=0)
                answer = answer + (improve(estimate, patterns[:, columns[x]]) - estimate)  # noqa: PLW2901
            blend.add(place, answer)
            if trust and (y, x) in asked:
                score = trust(answer.mean(axis=0), patterns[:, columns[x]])
                scores.add(place, np.full(answer.shape[1:], score)[None])
    if dark:
        say(f"negative intensities, {100 * dark / light:.2g} % of all, counted as none")
    spread = blend.deviation() if network.answers > 1 else None
    return Images(blend.mean(), spread, scores.mean() if trust else None, bright)


def _answers(patterns: Array, columns: Sequence[slice], predict: ensemble.Predict) -> Iterator[tuple[int, Array]]:
    """The number of each window of a strip and the answers (members, h, w) to it."""
    size = max(1, BATCH_BYTES // patterns[:, columns[0]].nbytes)
    for first in range(0, len(columns), size):
        some = np.stack([patterns[:, column] for column in columns[first : first + size]])
        yield from enumerate(predict(some).swapaxes(0, 1), start=first)


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


def _window(scan: tuple[int, int], model: Model, trained: Conditions, whole: bool) -> tuple[tuple[int, int], int]:
    """A window's shape, and the multiple of positions at which it may begin."""
    if whole:
        if scan != trained.scan_shape:
            raise InputError(
                f"{model.name} takes exactly {trained.scan_shape[0]}×{trained.scan_shape[1]} positions at once "
                f"(layout detector), not {scan[0]}×{scan[1]}: use a network of layout scan"
            )
        return scan, 1
    multiple = 2**model.experiment.network.pools
    y, x = (tiles.side(n, size, multiple) for n, size in zip(scan, trained.scan_shape, strict=True))
    return (y, x), multiple


def _bands(data: Patterns, plan: fit.Plan, scale: float, done: Callable[[int], None]) -> Generator[Array, None, None]:
    """The scan from its first row on, on the network's detector and along x on its positions: (rows, sx, pixels).

    Read and binned in threads, ahead of the network; to be closed before the file is.
    """
    binning = plan.binning * np.float32(scale)
    height = data.chunk[0] * -(-BAND_ROWS // data.chunk[0])
    bands = [slice(first, min(first + height, data.shape[0])) for first in range(0, data.shape[0], height)]
    pieces = _pieces(data, height)

    def binned(task: tuple[slice, slice]) -> Array:
        piece = data.read(*task)
        flat = piece.reshape(-1, piece.shape[2] * piece.shape[3]).astype(np.float32)
        return (binning @ flat.T).T.reshape(*piece.shape[:2], -1)

    threads = min(READERS, available_cores())
    with closing(
        ahead(binned, [(rows, columns) for rows in bands for columns in pieces], threads, 2 * threads)
    ) as ready:
        for rows in bands:
            band = np.concatenate([next(ready) for _ in pieces], axis=1)
            if not np.isfinite(band).all():
                raise InputError(
                    f"patterns in scan rows {rows.start} to {rows.stop - 1} are not finite: mask bad pixels"
                )
            same = plan.along.shape[0] == plan.along.shape[1] == plan.along.nnz
            yield band if same else np.stack([plan.along @ row for row in band])
            done(rows.stop)


def _pieces(data: Patterns, rows: int) -> list[slice]:
    """Columns of the scan in pieces of `PIECE_BYTES` at most, of whole chunks of the file."""
    _, sx, dy, dx = data.shape
    wide = data.chunk[1]
    size = max(1, PIECE_BYTES // (rows * wide * dy * dx * data.data.dtype.itemsize)) * wide
    return [slice(first, min(first + size, sx)) for first in range(0, sx, size)]


# ---- Out ------------------------------------------------------------------------------------------------------------


def _axes(data: Patterns, plan: fit.Plan, model: Model, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """(step, origin) of the images, Å."""
    if model.experiment.training.inputs.layout == "scan":
        return plan.step_angstrom, data.scan_origin_angstrom
    cell = model.experiment.specimen.lateral_angstrom
    extent = [n * step for n, step in zip(data.shape, plan.step_angstrom, strict=False)]
    extent = extent if model.experiment.scan.step_angstrom is None else list(cell)
    return [length / n for length, n in zip(extent, shape, strict=True)], (0.0, 0.0)


def _write(
    out: Path, images: Images, pattern: Array, frame: Frame, scan: Frame, angles: Frame, provenance: dict[str, Any]
) -> None:
    from train.figures import reconstruction_figure

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
