"""Ptychography on its own ground: the shipped network and rivals on the same defocused, finely
sampled scans.

    scripts/uv run python scripts/bench/rivals.py [--cases NAME ...] [--rivals NAME ...]
        [--checkpoint NAME] [--side N] [--work DIR] [--search] [--json]

The scans (`rival_cases.py`) are simulated once and stay in --work: over- and underfocus of 90 to
150 Å, steps of 0.3 Å, 63 × 63 pixels to 63 mrad, a source of 0.6 Å, 10⁵ to 10⁶ e/Å². All are told
the beam, the step and the detector; the rivals, whose probe is refined, also begin with a focus
that is wrong by 20 Å. Rivals run twice, without and with the thickness. Without it they try
`ASSUMED` for their first iterations, and take the one with the least loss. Thickness and formula do
not change the network's density.

"own fit" is the SSIM under the scale and offset that fit the true density of the sample itself
best; "SSIM" is without, of the network alone. "potential" is the own fit to the true projected
potential, which a phase is. "finer" is the better of both with a band to 2 in place of 1.25 1/Å.
"columns" is the rms error of column positions along an axis, pm, "unmatched" the share of maxima of
image or truth that the other has not. The scan's outer 1.2 Å are left out. "true potential" is what
a phase without errors has.

--search prints, setting by setting, what is best on two other crystals with the thickness told, and
after how many iterations. `Program.chosen` and the last of `Program.iterations` are what it found.

"ratio" is the mean own fit of the best rival over that of the network, with nothing told.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import frame

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from rival_cases import DEVELOPMENT, SHOWN, SIDE, STEP, Case, Truth, Written, file_of, written
from rival_programs import (
    KNOWN,
    PROGRAMS,
    WINDOWS,
    Answer,
    Program,
    Runner,
    Settings,
    first_settings,
)
from scipy.ndimage import map_coordinates

import train
from namsa.base.arrays import Floats
from namsa.base.errors import InputError
from namsa.base.pixels import PixelGrid
from namsa.inverse.agreement import column_errors
from train.apply.learnt import learnt
from train.apply.models import Model
from train.measure.metrics import image_metrics

NETWORK_STEP = 0.4  # Å
BORDER = 1.2  # Å
ASSUMED = (40.0, 70.0, 100.0)  # Å
Row = dict[str, Any]


class Raster(NamedTuple):
    """Pixels and a band on which images are compared."""

    step: float  # Å
    max_q: float  # 1/Å

    def pixels(self) -> PixelGrid:
        """Returns the pixels in the frame of the scan."""
        return PixelGrid((self.step, self.step), (0.0, 0.0))

    def shape(self, side: int) -> tuple[int, int]:
        """Returns the number of pixels within a scan of side × side positions."""
        network = int((side - 1) * STEP / NETWORK_STEP + 1e-9)
        count = round(network * NETWORK_STEP / self.step) + 1
        return count, count

    def inside(self, image: Floats) -> Floats:
        """Returns an image without its border."""
        border = round(BORDER / self.step)
        return image[border:-border, border:-border]


USUAL = Raster(NETWORK_STEP, 1.25)
FINER = Raster(NETWORK_STEP / 2, 2.0)


def main() -> int:
    parser = frame.parser(__doc__)
    parser.add_argument("--cases", nargs="+", default=list(SHOWN), choices=list(SHOWN))
    parser.add_argument("--rivals", nargs="*", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--checkpoint", default="200kv-20mrad-reality", metavar="NAME")
    parser.add_argument("--side", type=int, default=SIDE, metavar="N", help="positions on a side")
    parser.add_argument("--work", type=Path, default=Path("data/rivals"))
    parser.add_argument("--search", action="store_true", help="search settings, and end")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.search:
        for key in options.rivals:
            runner = Runner(key, options.work)
            search(runner, options.side, options.work)
            runner.stop()
        return 0
    rows = []
    model = train.load_model(options.checkpoint)
    for name in options.cases:
        scan = written(name, SHOWN[name], options.side, options.work)
        rows.append(network_row(name, scan, model, options))
        rows.append(potential_row(name, scan, options.side))
    for key in options.rivals:
        runner = Runner(key, options.work)
        for name in options.cases:
            scan = written(name, SHOWN[name], options.side, options.work)
            for thickness in (None, scan.thickness):
                rows.append(rival_row(name, scan, runner, thickness, options))
                print(rows[-1], flush=True)
        runner.stop()
    show(rows)
    frame.finish(options, {"ratio": ratio(rows), "rows": rows})
    return 0


def network_row(name: str, scan: Written, model: Model, options: argparse.Namespace) -> Row:
    """Returns the numbers of the network, with nothing told."""
    if learnt(model).kinship(scan.formula) == "formula":
        raise InputError(f"{model.name} has learnt {scan.formula}: take another crystal")
    path = file_of(name, options.side, options.work)
    started = time.process_time()
    result = train.reconstruct(
        path,
        model,
        KNOWN,
        beam_intensity=1.0,
        options=train.ReconstructionOptions(trust=False),
    )
    seconds = time.process_time() - started
    density = result.density.astype(np.float64)
    row = numbers(density, twice_as_fine(density), scan, options.side)
    row["ssim"] = ssim(density, truth(scan.density, USUAL, options.side))
    named = {"case": name, "method": model.name, "told": False}
    return named | row | {"cpu_seconds": seconds, "outside": result.outside}


def twice_as_fine(image: Floats) -> Floats:
    """Returns an image on pixels of half the size, by splines."""
    rows, columns = ((2 * n - 1) for n in image.shape)
    grid = np.meshgrid(np.arange(rows) / 2, np.arange(columns) / 2, indexing="ij")
    return np.asarray(map_coordinates(image, grid, order=5, mode="mirror"))


def potential_row(name: str, scan: Written, side: int) -> Row:
    """Returns the numbers of the true potential."""
    images = [truth(scan.potential, raster, side) for raster in (USUAL, FINER)]
    row = numbers(images[0], images[1], scan, side)
    return {"case": name, "method": "true potential", "told": True} | row | {"cpu_seconds": 0.0}


def truth(field: Truth, raster: Raster, side: int) -> Floats:
    """Returns a true field on the pixels of a raster."""
    return field.at(raster.pixels(), raster.shape(side), raster.max_q)


def rival_row(
    name: str, scan: Written, runner: Runner, thickness: float | None, options: argparse.Namespace
) -> Row:
    """Returns the numbers of a rival; `thickness` is `None` where it is not told."""
    program = runner.program
    path = file_of(name, options.side, options.work)
    c10 = SHOWN[name].nominal_c10
    settings = first_settings(program) | program.chosen
    iterations = program.iterations
    seconds = 0.0
    assumed = thickness
    if assumed is None:
        losses = {}
        for value in ASSUMED:
            tried = runner.run(path, c10, value, settings, iterations[:1])
            seconds += tried.cpu_seconds[-1]
            losses[value] = tried.losses[-1]
        assumed = min(ASSUMED, key=lambda value: losses[value])
    answer = runner.run(path, c10, assumed, settings, iterations)
    row = numbers(*images(answer, -1, program.window, options.side), scan, options.side)
    return (
        {"case": name, "method": program.name, "told": thickness is not None}
        | row
        | {"cpu_seconds": seconds + answer.cpu_seconds[-1], "thickness": assumed}
    )


def images(answer: Answer, index: int, window: float, side: int) -> tuple[Floats, Floats]:
    """Returns a phase on the usual pixels and on the finer ones."""
    usual = answer.at(index, USUAL.pixels(), USUAL.shape(side), window)
    finer = answer.at(index, FINER.pixels(), FINER.shape(side), max(window, FINER.max_q))
    return usual, finer


def numbers(usual: Floats, finer: Floats, scan: Written, side: int) -> Row:
    """Returns own fits and columns of an image on the usual and the finer pixels."""
    density = truth(scan.density, USUAL, side)
    as_density = own_fit(usual, density, USUAL)
    finest = []
    for field in (scan.density, scan.potential):
        fine = truth(field, FINER, side)
        finest.append(ssim(own_fit(finer, fine, FINER), fine, FINER))
    potential = truth(scan.potential, USUAL, side)
    row = {
        "own_fit": ssim(as_density, density),
        "potential": ssim(own_fit(usual, potential, USUAL), potential),
        "finer": max(finest),
    }
    errors = column_errors(USUAL.inside(as_density), USUAL.inside(density), USUAL.pixels())
    if errors:
        # that of the mean of two independent images; the truth has no error
        row["columns_pm"] = 200 * errors.position_angstrom
        row["unmatched"] = errors.unmatched
    return row


def own_fit(image: Floats, field: Floats, raster: Raster) -> Floats:
    """Returns an image under the scale and offset that fit a true field best."""
    x = raster.inside(image)
    y = raster.inside(field)
    if np.ptp(x) == 0:
        return np.full_like(image, y.mean())
    scale, offset = np.polyfit(x.ravel(), y.ravel(), 1)
    return np.asarray(scale * image + offset)


def ssim(image: Floats, field: Floats, raster: Raster = USUAL) -> float:
    """Returns the structural similarity within the border."""
    metrics = image_metrics(raster.inside(image), raster.inside(field), huber_delta=1.0)
    return float(metrics["ssim"] or 0.0)


class Choice(NamedTuple):
    """What a search has found."""

    score: float  # mean own fit of the development cases
    settings: Settings
    iterations: int
    window: float


def search(runner: Runner, side: int, work: Path) -> Choice:
    """Searches settings, one after the other, on the development cases, and prints each step."""
    program = runner.program
    scans = {}
    for name, case in DEVELOPMENT.items():
        scans[name] = written(name, case, side, work)
    best = tried(runner, scans, first_settings(program), side, work)
    for name, values in program.axes.items():
        for value in values:
            if value != best.settings[name]:
                other = tried(runner, scans, best.settings | {name: value}, side, work)
                best = max(best, other, key=lambda choice: choice.score)
        print(f"{program.name}, after {name}: {best}", flush=True)
    return best


def tried(
    runner: Runner, scans: dict[str, Written], settings: Settings, side: int, work: Path
) -> Choice:
    """Returns settings with the best of the iterations and windows on the development cases."""
    program: Program = runner.program
    answers = {}
    for name, scan in scans.items():
        case: Case = DEVELOPMENT[name]
        answers[name] = runner.run(
            file_of(name, side, work),
            case.nominal_c10,
            scan.thickness,
            settings,
            program.iterations,
        )
    best = Choice(-1.0, settings, program.iterations[0], WINDOWS[0])
    for index, iterations in enumerate(program.iterations):
        for window in WINDOWS:
            scores = []
            for name, scan in scans.items():
                usual, finer = images(answers[name], index, window, side)
                scores.append(numbers(usual, finer, scan, side)["own_fit"])
            if np.mean(scores) > best.score:
                best = Choice(float(np.mean(scores)), settings, iterations, window)
    print(f"{program.name} {settings}: {best.score:.4f}", flush=True)
    return best


def show(rows: list[Row]) -> None:
    """Prints the table."""
    table = frame.table(
        *("case", "told", "method", "SSIM", "own fit", "potential", "finer"),
        *("columns, pm", "unmatched", "CPU s"),
    )
    for row in rows:
        cells = [row["case"], "yes" if row["told"] else "no", row["method"]]
        for key, digits in (
            ("ssim", 3),
            ("own_fit", 3),
            ("potential", 3),
            ("finer", 3),
            ("columns_pm", 1),
            ("unmatched", 2),
            ("cpu_seconds", 1),
        ):
            cells.append(f"{row[key]:.{digits}f}" if key in row else "–")
        table.add_row(*cells)
    frame.show(table)


def ratio(rows: list[Row]) -> float | None:
    """Returns the mean own fit of the best rival over that of the network, nothing told."""
    fits: dict[str, list[float]] = {}
    for row in rows:
        if not row["told"]:
            fits.setdefault(row["method"], []).append(row["own_fit"])
    names = [program.name for program in PROGRAMS.values()]
    rivals: list[float] = []
    networks: list[float] = []
    for method, values in fits.items():
        means = rivals if method in names else networks
        means.append(float(np.mean(values)))
    return max(rivals) / max(networks) if rivals and networks else None


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        sys.exit(f"error: {error}")
