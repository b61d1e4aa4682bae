"""Whether a vacancy, a dopant or an adatom is seen: by densities, their stated error, iCoM and ptychography.

    nice scripts/uv run python scripts/bench/planted.py [--checkpoint NAME ...] [--crystals FORMULA ...] [--json]
        [--doses 1e4 1e5 1e6] [--iterations N] [--work DIR] [--seconds N] [--show]

`planted_cases.py` simulates 40 pairs of scans at each thickness, one with a defect and one without: a vacancy, a
dopant, and an adatom between columns and on one, in each of ten crystals, under aberrations, a source, a tilt and a
vibration that no network is told. Each scan is counted at each dose, in e/Å²; all methods see the same counts.
`--iterations` adds py4DSTEM's multislice ptychography. It is told the defocus and the thickness.

The excess of a place is the electrons by which it differs from the places that the lattice makes equal to it. The
median over these is taken off the image, and at each position the profile of an atom in the band is fitted by least
squares, with a constant. "by spread" divides it by its spread in the scan (1.48 times the median of its magnitude),
"by error" by the error that the network states, as if errors within an atom were all alike. The score of a scan is
the largest magnitude at a position at least 1.2 Å from the edge. A defect is found if the score is above a threshold
and its position within 0.8 Å. A scan without a defect whose score is above it is a false alarm. "area" is the area
under the curve of finds over false alarms, "found" the share found with false alarms in at most 5 % of the scans,
"excess" the median of the excess at the defect over the true one, and "beyond 2" the share of positions without a
defect whose ratio is above 2.

Rows are kept in --work, and a run that was stopped goes on. `--show` prints the rows that are there. "ratio" is the
mean area of the first network by spread over that of the best of the other methods, over the cells that all have.
"""

import argparse
import json
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from amount_cases import Optics
from ase.data import atomic_numbers
from planted_cases import CRYSTALS, KINDS, Case, cases, write_crystal
from rich.console import Console
from rich.table import Table
from rivals.methods import Programs, images, install
from rivals.results import Results
from rivals.stacks import TOLD, Image, Stack
from rivals.stacks import case as read_case
from scipy.ndimage import correlate, map_coordinates

from namsa.inverse.columns import atom_density
from namsa.io.calibration import CalibrationOverrides
from namsa.physics.detector import add_poisson_noise
from namsa.pixels import PixelGrid

OPTICS = Optics(200e3, 20.0, 33, 3.0, 1.25)
REACH, BORDER, NEAR = 1.6, 1.2, 0.8  # Å: of the profile, of the edge that is left out, of a find from the defect
VIBRATION = 0.07  # Å, of the profile
FALSE_ALARMS = 0.05
MEASURES = ("spread", "error")
PTYCHOGRAPHY = "py4DSTEM, multislice"
SETTINGS = {"rate": 0.5, "batch": 32, "identical_slices": True, "slice_angstrom": 20.0, "object": "complex"}

Reconstruct = Callable[[Stack], tuple[Image, Image | None]]  # to an image and its stated error


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", nargs="+", default=["200kv-20mrad-reality"], metavar="NAME")
    parser.add_argument("--crystals", nargs="+", metavar="FORMULA", default=[each.formula for each in CRYSTALS])
    parser.add_argument("--doses", nargs="+", type=float, default=[1e4, 1e5, 1e6], help="e/Å²")
    parser.add_argument("--iterations", nargs="+", type=int, default=[], help="of ptychography; none without it")
    parser.add_argument("--work", type=Path, default=Path("data/planted"))
    parser.add_argument("--seconds", type=float, default=np.inf, help="begin no reconstruction after this time")
    parser.add_argument("--show", action="store_true", help="measure nothing")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    results = Results(options.work / "rows.json")
    if not options.show:
        measure(options, results)
    summary = summarise(results.rows)
    show(summary)
    if options.json:
        print(json.dumps({"ratio": ratio(summary, options.checkpoint[0]), "summary": summary}))
    return 0


class Excess(NamedTuple):
    """What differs from equal places."""

    electrons: Image  # `(sy, sx)`; NaN near the edge
    stated: Image | None  # its stated error


def excess(
    image: Image,  # `(sy, sx)`, e/Å², or any unit
    error: Image | None,  # its stated error, likewise
    pixels: PixelGrid,
    vectors: list[tuple[float, float]],  # from a place to those that are equal to it, (y, x), Å
    number: int,  # atomic number of the profile
) -> Excess:
    """Returns by how many electrons each position differs from the median of its equal places."""
    places = np.indices(image.shape).astype(float)
    shifted = []
    for vector in vectors:
        at = places + np.divide(vector, pixels.step)[:, None, None]
        inside = np.all([(row >= 0) & (row <= n - 1) for row, n in zip(at, image.shape, strict=True)], axis=0)
        if inside.any():
            shifted.append(np.where(inside, map_coordinates(image, at, order=5, mode="mirror"), np.nan))
    left = image - np.nanmedian(shifted, axis=0)
    half = [int(REACH / step) for step in pixels.step]
    y, x = (step * np.arange(-n, n + 1) for n, step in zip(half, pixels.step, strict=True))
    profile = atom_density(np.hypot(y[:, None], x).ravel(), number, OPTICS.max_q, VIBRATION)
    near = np.hypot(y[:, None], x).ravel() <= REACH
    weights = np.zeros_like(profile)
    weights[near] = np.linalg.pinv(np.stack([profile[near], np.ones(near.sum())], axis=1))[0]
    weights = weights.reshape(len(y), len(x))
    border = [int(np.ceil(BORDER / step)) for step in pixels.step]
    inner = np.full(image.shape, np.nan)
    inner[border[0] : -border[0], border[1] : -border[1]] = 0.0
    stated = None if error is None else correlate(error, np.abs(weights), mode="mirror") + inner
    return Excess(correlate(left, weights, mode="mirror") + inner, stated)


def scores(found: Excess, pixels: PixelGrid, site: tuple[float, float]) -> dict[str, Any]:
    """Returns the score of a scan by each measure, whether its place is near a site, and the excess there."""
    spread = 1.4826 * float(np.nanmedian(np.abs(found.electrons)))
    by = {"spread": found.electrons / max(spread, 1e-30)}
    if found.stated is not None:
        by["error"] = found.electrons / found.stated
    row: dict[str, Any] = {}
    y, x = pixels.coordinates(found.electrons.shape)
    distance = np.hypot(y[:, None] - site[0], x - site[1])
    for name, ratio in by.items():
        magnitude = np.abs(ratio)
        place = np.unravel_index(np.nanargmax(magnitude), magnitude.shape)
        row[name] = {"score": float(magnitude[place]), "near": bool(distance[place] <= NEAR)}
        row[name]["at_site"] = float(np.nanmax(np.where(distance <= NEAR, magnitude, np.nan)))
        row[name]["beyond_2"] = float(np.mean(magnitude[np.isfinite(magnitude)] > 2))
    near = np.where(distance <= NEAR, found.electrons, np.nan)
    row["electrons"] = float(near.flat[np.nanargmax(np.abs(near))])
    return row


def translations(case: Case, step: tuple[float, float], shape: tuple[int, ...]) -> list[tuple[float, float]]:
    """Returns the vectors (y, x) between equal places of a scan, Å, without zero."""
    lx, ly, _ = case.crystal.make().cell.lengths()
    reach = [int(np.ceil(n * d / side)) for n, d, side in zip(shape, step, (ly, lx), strict=True)]
    places = [
        (i + fy, j + fx)
        for i in range(-reach[0], reach[0] + 1)
        for j in range(-reach[1], reach[1] + 1)
        for fy, fx in case.crystal.equal
    ]
    return [(ly * y, lx * x) for y, x in places if (y, x) != (0, 0)]


def curve(planted: list[dict], without: list[dict], measure: str) -> dict[str, float]:
    """Returns the area under finds over false alarms, and the share that is found at `FALSE_ALARMS`."""
    false = np.sort([row[measure]["score"] for row in without])[::-1]
    true = np.array([row[measure]["score"] if row[measure]["near"] else -np.inf for row in planted])
    # Between two false alarms the threshold may be anywhere: that just above the next one finds most.
    above = [float(np.mean(true > threshold)) for threshold in false]
    allowed = int(FALSE_ALARMS * len(false))
    return {"area": float(np.mean(above)), "found": above[allowed]}


def counted(case: Case, folder: Path, dose: float) -> Stack:
    """Returns the scan of a case as counted at a dose, e/Å²."""
    stack = read_case(folder / f"{case.name}.h5", (*TOLD, "thickness_angstrom", "aberrations"))
    name, electrons = f"{case.name}-{dose:g}", dose * float(np.prod(stack.frame.step))
    patterns = add_poisson_noise(stack.patterns, electrons, zlib.crc32(name.encode()))
    return replace(stack, id=name, patterns=patterns, c10=stack.provenance["aberrations"]["C10"])


def methods(options: argparse.Namespace) -> Iterator[tuple[str, Reconstruct]]:
    """Yields the name of each method with its function."""
    yield "iCoM", lambda stack: (images("iCoM", stack, {}, options)["images"][0][1], None)
    for checkpoint in options.checkpoint:
        yield checkpoint, network(checkpoint)
    if options.iterations:
        install("py4dstem", options.work)
        options.threads = 1
        options.programs = Programs(options.work, 1, options.threads)
        yield PTYCHOGRAPHY, lambda stack: (images(PTYCHOGRAPHY, stack, SETTINGS, options)["images"][-1][1], None)
        options.programs.stop()


def network(checkpoint: str) -> Reconstruct:
    """Returns the function of a network, which is told what a microscope's file says."""
    import train  # which imports TensorFlow

    model = train.load_model(checkpoint)

    def reconstruct(stack: Stack) -> tuple[Image, Image | None]:
        p, step = stack.provenance, stack.frame.step
        told = CalibrationOverrides(
            scan_step_angstrom=(step[0], step[1]),
            pixel_mrad=tuple(p["detector_sampling_mrad"]),
            energy_ev=p["energy_ev"],
            semiangle_mrad=p["semiangle_mrad"],
        )
        patterns = stack.patterns.reshape(*p["scan_shape"], *stack.patterns.shape[1:])
        result = train.reconstruct(patterns, model, told, beam_intensity=1.0)
        assert result.uncertainty is not None
        return result.density.astype(np.float64), result.uncertainty.astype(np.float64)

    return reconstruct


def measure(options: argparse.Namespace, results: Results) -> None:
    """Adds the rows that are missing, until the time is over."""
    end = time.monotonic() + options.seconds
    crystals = [crystal for crystal in CRYSTALS if crystal.formula in options.crystals]
    for crystal in crystals:
        if time.monotonic() < end:
            write_crystal(crystal, OPTICS, options.work)
    for name, reconstruct in methods(options):
        for crystal in crystals:
            for case in cases((crystal,)):
                for dose in options.doses:
                    key = f"{case.name}-{dose:g}"
                    if results.row(key, name) or not (options.work / f"{case.name}.h5").exists():
                        continue
                    if time.monotonic() > end:
                        return
                    stack = counted(case, options.work, dose)
                    image, error = reconstruct(stack)
                    number = atomic_numbers[crystal.host]
                    found = excess(image, error, stack.frame, translations(case, stack.frame.step, image.shape), number)
                    facts = {"kind": case.kind, "planted": case.planted, "thickness": case.thickness, "dose": dose}
                    row = {"method": name, "case": key, "true": case.electrons, "crystal": crystal.formula}
                    results.add(row | facts | scores(found, stack.frame, case.site))


def summarise(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the areas and finds of each method, measure, thickness and dose, of all kinds and of each."""
    cells: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        for by in MEASURES:
            if by in row:
                cells.setdefault((row["method"], by, row["thickness"], row["dose"]), []).append(row)
    summary = []
    for (method, by, thickness, dose), each in cells.items():
        planted, without = ([row for row in each if row["planted"] == state] for state in (True, False))
        if not planted or not without:
            continue
        line = {"method": method, "by": by, "thickness": thickness, "dose": dose, "pairs": len(planted)}
        line |= curve(planted, without, by) | {"beyond_2": float(np.mean([row[by]["beyond_2"] for row in without]))}
        line["excess"] = float(np.median([row["electrons"] / row["true"] for row in planted]))
        line["kinds"] = {
            kind: curve(own, without, by)["found"] if (own := [row for row in planted if row["kind"] == kind]) else 0.0
            for kind in KINDS
        }
        summary.append(line)
    return summary


def show(summary: list[dict[str, Any]]) -> None:
    """Prints a table of what `summarise` returns."""
    columns = ("area", "found", "excess", "beyond_2")
    table = Table("method", "by", "Å", "e/Å²", "pairs", *(name.replace("_", " ") for name in columns), *KINDS, box=None)
    for line in summary:
        numbers = [f"{line[name]:.2f}" for name in columns]
        kinds = [f"{value:.2f}" for value in line["kinds"].values()]
        table.add_row(
            line["method"],
            line["by"],
            f"{line['thickness']:g}",
            f"{line['dose']:g}",
            str(line["pairs"]),
            *numbers,
            *kinds,
        )
    Console(width=160).print(table)


def ratio(summary: list[dict[str, Any]], network: str) -> float | None:
    """Returns the mean area of a network by spread over that of the best other method, over the cells that all have."""
    areas: dict[str, dict[tuple[float, float], float]] = {}
    for line in summary:
        if line["by"] == "spread":
            areas.setdefault(line["method"], {})[line["thickness"], line["dose"]] = line["area"]
    common = set.intersection(*(set(cells) for cells in areas.values())) if areas else set()
    means = {method: float(np.mean([cells[cell] for cell in common])) for method, cells in areas.items() if common}
    others = [value for method, value in means.items() if method != network]
    return means[network] / max(others) if network in means and others and max(others) else None


if __name__ == "__main__":
    sys.exit(main())
