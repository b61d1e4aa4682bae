"""Ptychography and the classical images on the benchmark's stacks: quality and time by thickness and dose.

    nice scripts/uv run python scripts/bench/rivals.py [--dev 2] [--test 2] [--thickness 20 100] [--dose 0 1e5 1e4]

quantem (MIT) and py4DSTEM (GPL), each single-slice and multislice, run in environments of their own that pip makes;
iCoM and the mean image are namsa's. All see the same patterns and are told the axis, the probe and the thickness. They
are searched alike: on samples of the development split, setting by setting (`SEARCH`), for the best mean SSIM ("own
fit" below); the number of iterations is one of the settings, looked at along the way. What is best there is applied to
the test split.

A phase is no density. So a rival's image is windowed as the target is, or not, sampled at the target's pixels, and
mapped by the scale and offset that fit the development samples best ("SSIM"), or this very sample ("own fit": more
than anybody could know). It is judged as projected electron density and, with settings searched anew, as projected
potential, its own quantity. A border of 2 Å is left out. "Loss" is by how much of itself it still fell in the last leg.

Every reconstruction is kept in --work, so that a run that was stopped goes on. "ratio" is the best ptychography's mean
SSIM over iCoM's, density.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import venv
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from threading import BoundedSemaphore
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from namsa import hdf5, manifest, materials, target, virtual
from namsa.config import SimulationConfig, load
from namsa.detector import counted
from namsa.entry import simulate_entry, specimen
from namsa.frame import Frame, density_frame, pattern_frame, scan_frame
from namsa.grid import Grid
from namsa.optics import wavelength_angstrom
from namsa.simulate import Sample
from train.columns import Columns, column_metrics, columns
from train.metrics import metrics

Image = npt.NDArray[np.float64]
Settings = dict[str, Any]

HERE = Path(__file__).parent
PACKAGES = {"quantem": ("torch==2.13.0", "quantem==0.1.10"), "py4dstem": ("py4DSTEM==0.14.18",)}
BORDER = 5  # pixels of the target on every side
TARGETS = ("density", "potential")
MULTISLICE = {"identical_slices": (True, False), "slice_angstrom": (10.0, 5.0, 20.0)}
UPDATES = (("sgd", 0.5), ("sgd", 1.0), ("adam", 3e-3), ("adam", 1e-2), ("adam", 3e-2))
# The first of each is what the search begins with; the settings in front matter most. "plane": where the slices lie
# within their thickness, 0 at the front.
SEARCH: dict[str, dict[str, tuple[Any, ...]]] = {
    "quantem, single slice": {
        "update": UPDATES,
        "batch": (128, 32),
        "plane": (0.5, 0.0),
        "object": ("potential", "pure_phase", "complex"),
        "probe_rate": (0.0, 1e-3),
        "tv_weight_xy": (0.0, 0.5, 5.0),
    },
    "quantem, multislice": {
        "update": UPDATES,
        "batch": (32, 128),
        **MULTISLICE,
        "object": ("complex", "potential", "pure_phase"),
        "tv_weight_xy": (0.0, 0.5, 5.0),
        "tv_weight_z": (0.0, 5.0, 50.0),
        "probe_rate": (0.0, 1e-3),
        "plane": (0.5, 0.0),
    },
    "py4DSTEM, single slice": {
        "rate": (1.0, 0.5, 2.0, 0.1),
        "batch": (128, 32),
        "plane": (0.5, 0.0),
        "object": ("potential", "complex"),
        "object_positivity": (True, False),
        "probe": (False, True),
    },
    "py4DSTEM, multislice": {
        "rate": (0.5, 1.0, 2.0, 0.1),
        "batch": (32, 128),
        **MULTISLICE,
        "object": ("complex", "potential"),
        "object_positivity": (True, False),
        "kz_regularization_gamma": (None, 1.0),
        "probe": (False, True),
        "plane": (0.5, 0.0),
    },
}
PERFECT = "true potential"  # what it is worth as a density, under a line as any phase
CLASSICAL = ("iCoM", PERFECT, "mean image", "the target itself")


@dataclass(frozen=True)
class Stack:
    """A sample at a dose, as all methods get it; truth: by `TARGETS`, at the scan's positions."""

    id: str
    patterns: npt.NDArray[Any]
    provenance: dict[str, Any]
    frame: Frame
    truth: dict[str, Image]
    atoms: Columns
    max_q: float


@dataclass(frozen=True)
class Choice:
    """What the development split says is best: settings, which of the images along the way, and how to map it."""

    settings: Settings
    leg: int
    windowed: bool
    line: tuple[float, float]
    ssim: float


def main() -> None:
    options = parse()
    options.places = BoundedSemaphore(options.workers)
    config = load(options.config)
    samples = Samples(config, options.work / "samples")
    for program in {program_of(method) for method in options.methods if method in SEARCH}:
        install(program, options.work)
    rows: list[dict[str, Any]] = []
    for thickness in options.thickness:
        entries = [samples.choose(split, thickness, getattr(options, split)) for split in ("dev", "test")]
        for dose in options.dose:
            dev, test = ([samples.stack(entry, dose) for entry in chosen] for chosen in entries)
            for method in options.methods:
                row = compare(method, dev, test, options)
                rows.append({"method": method, "thickness_angstrom": thickness, "dose": dose, **row})
                print(json.dumps(rows[-1]), file=sys.stderr)
    show(rows)
    if options.json:
        print(json.dumps({"ratio": ratio(rows), "load": os.getloadavg()[1], "rows": rows}))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=HERE.parents[1] / "configs/benchmark.yaml")
    parser.add_argument("--work", type=Path, default=Path("data/rivals"), help="samples, environments, reconstructions")
    parser.add_argument("--thickness", type=float, nargs="+", default=[20, 50, 100, 200], help="Å")
    parser.add_argument("--dose", type=float, nargs="+", default=[0, 1e5, 1e4], help="electrons/Å²; 0 is noiseless")
    parser.add_argument("--dev", type=int, default=2, help="samples of each thickness to search settings on")
    parser.add_argument("--test", type=int, default=1000, help="samples of each thickness to judge on, at most")
    parser.add_argument("--methods", nargs="+", default=[*SEARCH, *CLASSICAL], choices=[*SEARCH, *CLASSICAL])
    parser.add_argument("--iterations", type=int, nargs="+", default=[10, 20, 50, 100, 200, 400])
    parser.add_argument("--axes", type=int, default=99, help="search only the first so many settings")
    parser.add_argument("--workers", type=int, default=2, help="reconstructions side by side")
    parser.add_argument("--threads", type=int, default=1, help="of each")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    return parser.parse_args()


class Samples:
    """The held-out samples, simulated when they are first wanted and kept as HDF5."""

    def __init__(self, config: SimulationConfig, directory: Path) -> None:
        self.config, self.directory = config, directory
        self.materials = {material.name: material for material in materials.select(config.materials)}
        self.entries = manifest.build(config, tuple(self.materials.values()))

    def choose(self, split: str, thickness: float, count: int) -> list[manifest.Entry]:
        """`count` of a split at a thickness, by the hash of what they are of: the same at every thickness."""
        fit = [e for e in self.entries if (e.split, e.thickness_angstrom) == (split, thickness) and not e.skipped]
        return sorted(fit, key=lambda e: hashlib.sha256(f"{e.material} {e.zone_axis}".encode()).digest())[:count]

    def stack(self, entry: manifest.Entry, dose: float) -> Stack:
        path = self.directory / f"{entry.id}.h5"
        material = self.materials[entry.material]
        if not path.exists():
            hdf5.write(path, [(entry.id, simulate_entry(self.config, material, entry))])
        ((_, sample),) = hdf5.read(path)
        p, frame = sample.provenance, density_frame(sample.provenance)
        patterns = sample.cbed
        if dose:
            patterns = counted(patterns, dose * frame.step[0] * frame.step[1], entry.seed)
        atoms = columns(specimen(self.config, material, entry).atoms, frame, sample.density.shape)
        truth = {"density": sample.density.astype(np.float64), "potential": potential(sample, frame)}
        max_q = p["density_max_q_per_angstrom"]
        return Stack(f"{entry.id}-{dose:g}", patterns, p, frame, truth, atoms, max_q)


def potential(sample: Sample, frame: Frame) -> Image:
    """The projected potential under the density's window, at its pixels."""
    grid = Grid(sample.projected_potential.shape, tuple(sample.provenance["extent_angstrom"]))
    window = target.band_limited(
        sample.projected_potential.astype(np.float64), grid, sample.provenance["density_max_q_per_angstrom"]
    )
    return target.at_positions(window, grid, *frame.coordinates(sample.density.shape))


# ---- A method's images of a stack, one for each leg of its iterations ------------------------------------------------


def images(method: str, stack: Stack, settings: Settings, options: argparse.Namespace) -> dict[str, Any]:
    """ "images" (legs, 2, H, W), without and with the window, at the target's pixels; "seconds"; "losses"."""
    if method == "iCoM":
        return {"images": [icom(stack)], "seconds": [0.0], "losses": []}
    if method == PERFECT:
        return {"images": [[stack.truth["potential"]] * 2], "seconds": [0.0], "losses": []}
    found = reconstruct(method, stack, settings, options)
    y, x = (step * np.arange(n) for step, n in zip(stack.frame.step, stack.truth["density"].shape, strict=True))
    pictures = []
    for phase in found["phases"]:
        grid = Grid(phase.shape, tuple(np.multiply(phase.shape, found["step"])))
        coefficients = (target.band_limited(phase.astype(np.float64), grid, q) for q in (np.inf, stack.max_q))
        pictures.append(
            [target.at_positions(c, grid, found["first"][0] + y, found["first"][1] + x) for c in coefficients]
        )
    return found | {"images": pictures}


def icom(stack: Stack) -> list[Image]:
    p, angles, scan = stack.provenance, pattern_frame(stack.provenance), scan_frame(stack.provenance)
    deflection = virtual.centre_of_mass(stack.patterns, angles).reshape(*p["scan_shape"], 2)
    phase = virtual.integrated(deflection, tuple(scan.step), wavelength_angstrom(p["energy_ev"]), periodic=False)
    mirrored = np.block([[phase, phase[:, ::-1]], [phase[::-1], phase[::-1, ::-1]]])
    grid = Grid(mirrored.shape, tuple(np.multiply(mirrored.shape, scan.step)))
    window = target.on_grid(target.band_limited(mirrored, grid, stack.max_q))
    return [phase, window[: phase.shape[0], : phase.shape[1]]]


def reconstruct(method: str, stack: Stack, settings: Settings, options: argparse.Namespace) -> dict[str, Any]:
    """What the method's worker answers; kept, so that it is asked once."""
    p, program = stack.provenance, program_of(method)
    given = {key: value for key, value in settings.items() if key != "slice_angstrom"}
    if "slice_angstrom" in settings:
        given["slices"] = max(2, round(p["thickness_angstrom"] / settings["slice_angstrom"]))
    job = {
        "energy_ev": p["energy_ev"],
        "semiangle_mrad": p["semiangle_mrad"],
        "step_angstrom": list(stack.frame.step),
        "pixel_mrad": p["detector_sampling_mrad"],
        "thickness_angstrom": p["thickness_angstrom"],
        "settings": given,
        "iterations": options.iterations,
    }
    asked = json.dumps([PACKAGES[program], stack.id, p["config_hash"], job])
    answer = options.work / "answers" / f"{stack.id}-{program}-{hashlib.sha256(asked.encode()).hexdigest()[:12]}.json"
    result = answer.with_suffix(".npz")
    if not answer.exists():
        answer.parent.mkdir(parents=True, exist_ok=True)
        patterns = answer.with_suffix(".npy")
        np.save(patterns, stack.patterns.reshape(*p["scan_shape"], *stack.patterns.shape[1:]))
        job |= {"stack": str(patterns), "result": str(result), "threads": options.threads}
        said = run(program, json.dumps(job), options)
        patterns.unlink()
        answer.write_text(json.dumps(json.loads(said) | {"settings": given}))
    with np.load(result) as file:
        return json.loads(answer.read_text()) | dict(file)


def program_of(method: str) -> str:
    return method.partition(",")[0].lower()


def run(program: str, job: str, options: argparse.Namespace) -> str:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(options.threads))
    command = [python(program, options.work), HERE / f"worker_{program}.py"]
    surroundings = os.environ | threads
    with options.places:
        done = subprocess.run(command, check=False, input=job + "\n", capture_output=True, text=True, env=surroundings)
    if done.returncode or not done.stdout:
        raise SystemExit(f"{program} failed on {job}:\n{done.stderr[-3000:]}")
    return done.stdout


def python(program: str, work: Path) -> Path:
    return (work / "environments" / program / "bin/python").absolute()


def install(program: str, work: Path) -> None:
    """The program's environment, made by pip where it is not there; torch comes as pip's default has it."""
    home = work / "environments" / program
    if not (home / "ready").exists():
        venv.create(home, with_pip=True)
        subprocess.run([python(program, work), "-m", "pip", "install", "-q", *PACKAGES[program]], check=True)
        (home / "ready").touch()


# ---- The search, on the development split; the numbers, on the test split --------------------------------------------


def compare(method: str, dev: list[Stack], test: list[Stack], options: argparse.Namespace) -> dict[str, Any]:
    """The method's row: means over `test` for both targets."""
    row: dict[str, Any] = {"samples": [stack.id for stack in test]}
    for wanted in TARGETS:
        if method in CLASSICAL[2:]:
            average = np.mean([stack.truth[wanted] for stack in dev], axis=0)
            judged = [judge(average if "mean" in method else s.truth[wanted], s, wanted, (1, 0)) for s in test]
            row[wanted] = means(judged)
            continue
        choice = search(method, dev, wanted, options)
        found = everywhere(method, test, choice.settings, options)
        pictures = [answer["images"][choice.leg][int(choice.windowed)] for answer in found]
        judged = [judge(image, s, wanted, choice.line) for image, s in zip(pictures, test, strict=True)]
        row[wanted] = means(judged) | {
            "settings": choice.settings,
            "windowed": choice.windowed,
            "dev_ssim": choice.ssim,
            "seconds": mean(answer["seconds"][choice.leg] for answer in found),
        }
        if found[0]["losses"]:
            row[wanted]["iterations"] = options.iterations[choice.leg]
            row[wanted]["loss_still_falls"] = mean(falling(answer["losses"], options.iterations) for answer in found)
    return row


def search(method: str, dev: list[Stack], wanted: str, options: argparse.Namespace) -> Choice:
    """Setting by setting, from the first values of all, each value kept that is better than what was there."""
    axes = SEARCH.get(method, {})
    settings = {name: values[0] for name, values in axes.items()}
    best = chosen(method, dev, settings, wanted, options)
    for name, values in list(axes.items())[: options.axes]:
        others = [best.settings | {name: value} for value in values[1:]]
        with ThreadPoolExecutor(len(others)) as pool:
            tried = list(pool.map(lambda other: chosen(method, dev, other, wanted, options), others))
        best = max([best, *tried], key=lambda choice: choice.ssim)
    return best


def chosen(method: str, dev: list[Stack], settings: Settings, wanted: str, options: argparse.Namespace) -> Choice:
    """The best of the images along the way, with and without the window, under the line that fits all of `dev`."""
    found = [answer["images"] for answer in everywhere(method, dev, settings, options)]
    choices = []
    for leg in range(len(found[0])):
        for windowed in (False, True):
            pictures = [sample[leg][int(windowed)] for sample in found]
            if not all(np.isfinite(picture).all() for picture in pictures):  # a step that is too long diverges
                continue
            line = fitted(np.array(pictures), np.array([stack.truth[wanted] for stack in dev]))
            scores = [judge(image, s, wanted, line)["own_ssim"] for image, s in zip(pictures, dev, strict=True)]
            choices.append(Choice(settings, leg, windowed, line, mean(score or 0.0 for score in scores)))
    return max(choices, key=lambda c: c.ssim, default=Choice(settings, 0, False, (1, 0), -1.0))


def everywhere(
    method: str, stacks: list[Stack], settings: Settings, options: argparse.Namespace
) -> list[dict[str, Any]]:
    with ThreadPoolExecutor(len(stacks)) as pool:
        return list(pool.map(lambda stack: images(method, stack, settings, options), stacks))


def fitted(image: Image, truth: Image) -> tuple[float, float]:
    """Scale and offset by least squares, of the interiors."""
    x, t = interior(image), interior(truth)
    scale = float(((x - x.mean()) * (t - t.mean())).sum() / max(((x - x.mean()) ** 2).sum(), 1e-30))
    return scale, float(t.mean() - scale * x.mean())


def judge(image: Image, stack: Stack, wanted: str, line: tuple[float, float]) -> dict[str, float | None]:
    truth = interior(stack.truth[wanted])
    own = fitted(image, stack.truth[wanted])
    numbers = metrics(line[0] * interior(image) + line[1], truth, huber_delta=1.0)
    frame = Frame(stack.frame.step, np.add(stack.frame.origin, np.multiply(BORDER, stack.frame.step)).tolist())
    return {
        "ssim": numbers["ssim"],
        "own_ssim": metrics(own[0] * interior(image) + own[1], truth, huber_delta=1.0)["ssim"],
        **{name: numbers[name] for name in ("pearson", "psnr", "mae", "r_factor")},
        **column_metrics(interior(image), frame, stack.atoms),
    }


def interior(image: Image) -> Image:
    return image[..., BORDER:-BORDER, BORDER:-BORDER]


def means(judged: list[dict[str, float | None]]) -> dict[str, Any]:
    defined = {name: [v for numbers in judged if (v := numbers[name]) is not None] for name in judged[0]}
    return {name: mean(values) if values else None for name, values in defined.items()}


def falling(losses: list[float], iterations: list[int]) -> float:
    return losses[iterations[-2] - 1] / losses[iterations[-1] - 1] - 1 if len(iterations) > 1 else float("nan")


def ratio(rows: list[dict[str, Any]]) -> float | None:
    by_method: dict[str, list[float]] = {}
    for row in rows:
        by_method.setdefault(row["method"], []).append(row["density"]["ssim"] or 0.0)
    ptychography = [mean(values) for method, values in by_method.items() if method in SEARCH]
    return max(ptychography) / mean(by_method["iCoM"]) if ptychography and "iCoM" in by_method else None


def show(rows: list[dict[str, Any]]) -> None:
    for wanted in TARGETS:
        table = Table(title=f"projected {wanted}", box=None)
        for name in ("Å", "e/Å²", "method", "SSIM", "own fit", "Pearson"):
            table.add_column(name)
        for name in ("column, Å", "found", "spurious", "rank", "iterations", "s", "loss"):
            table.add_column(name, justify="right")
        for row in rows:
            n = row[wanted]
            quality = [n[key] for key in ("ssim", "own_ssim", "pearson")]
            column = [n[key] for key in ("column_error_angstrom", "columns_found", "columns_spurious", "column_rank")]
            effort = [str(n.get("iterations", "")), f"{n['seconds']:.0f}" if "iterations" in n else ""]
            dose = f"{row['dose']:g}" if row["dose"] else "no noise"
            loss = f"{n['loss_still_falls']:.1%}" if "loss_still_falls" in n else ""
            table.add_row(
                f"{row['thickness_angstrom']:g}", dose, row["method"], *map(number, quality + column), *effort, loss
            )
        Console(width=160).print(table)


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    main()
