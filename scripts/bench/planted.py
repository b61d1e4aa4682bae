"""Whether a vacancy, a dopant or an adatom is seen: by densities, their stated error, iCoM and ptychography.

    nice scripts/uv run python scripts/bench/planted.py [--checkpoint NAME ...] [--crystals FORMULA ...] [--json]
        [--doses 1e4 1e5 1e6] [--iterations N] [--work DIR] [--seconds N] [--show]

`planted_cases.py` simulates 40 pairs of scans at each thickness, one with a defect and one without: a vacancy, a
dopant, and an adatom between columns and on one, in each of ten crystals, under aberrations, a source, a tilt and a
vibration that no network is told. Each scan is counted at each dose, in e/Å²; all methods see the same counts.
`--iterations` adds py4DSTEM's multislice ptychography, which is told defocus and thickness and reconstructs the probe.

The excess of a place (`namsa.inverse.excess`) is the electrons by which it differs from the places that the lattice
makes equal to it. "by spread" divides it by its spread in the scan (1.48 times the median of its magnitude), "by error"
by the error that the network states, as if errors within an atom were all alike. The score of a scan is the
largest magnitude at a position at least 1.2 Å from the edge. A defect is found if the score is above a threshold and
its position within 0.8 Å. A scan without a defect whose score is above it is a false alarm. "area" is the area under
the curve of finds over false alarms, "found" the share found with false alarms in at most 5 % of the scans, "own" the
share found above the scans of the same crystal without a defect, "excess" the median of the excess at the defect over
the true one, and "beyond 2" the share of positions without a defect whose ratio is above 2.

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
from typing import Any

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
from scipy.ndimage import correlate

from namsa.inverse.excess import Excess, atom_filter, find_excess
from namsa.io.calibration import CalibrationOverrides
from namsa.physics.detector import add_poisson_noise

OPTICS = Optics(200e3, 20.0, 33, 3.0, 1.25)
NEAR = 0.8  # Å, of a find from the defect
FALSE_ALARMS = 0.05
MEASURES = ("spread", "error")
PTYCHOGRAPHY = "py4DSTEM, multislice"
SETTINGS: dict[str, Any] = {"rate": 0.5, "batch": 32, "identical_slices": True, "slice_angstrom": 20.0}
SETTINGS |= {"object": "complex", "probe": True}  # a probe that is fixed has none of the aberrations that are not told

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


def scores(found: Excess, error: Image | None, weights: Image, site: tuple[float, float]) -> dict[str, Any]:
    """Returns the score of a scan by each measure, whether its place is near a site, and the excess there.

    Args:
        error: The image's stated error, `(sy, sx)`.
        weights: Those that the excess is fitted with.
        site: Of the defect, (y, x), Å.
    """
    by = {"spread": found.spreads}
    if error is not None:
        by["error"] = found.amount / correlate(error, np.abs(weights), mode="mirror")
    row: dict[str, Any] = {}
    y, x = found.pixels.coordinates(found.amount.shape)
    distance = np.hypot(y[:, None] - site[0], x - site[1])
    for name, ratio in by.items():
        magnitude = np.abs(ratio)
        place = np.unravel_index(np.nanargmax(magnitude), magnitude.shape)
        row[name] = {"score": float(magnitude[place]), "near": bool(distance[place] <= NEAR)}
        row[name]["at_site"] = float(np.nanmax(np.where(distance <= NEAR, magnitude, np.nan)))
        row[name]["beyond_2"] = float(np.mean(magnitude[np.isfinite(magnitude)] > 2))
    near = np.where(distance <= NEAR, found.amount, np.nan)
    row["electrons"] = float(near.flat[np.nanargmax(np.abs(near))])
    return row


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
                    found = find_excess(image, stack.frame, number, crystal.basis(), OPTICS.max_q)
                    weights = atom_filter(stack.frame, number, OPTICS.max_q)
                    facts = {"kind": case.kind, "planted": case.planted, "thickness": case.thickness, "dose": dose}
                    row = {"method": name, "case": key, "true": case.electrons, "crystal": crystal.formula}
                    results.add(row | facts | scores(found, error, weights, case.site))


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
        clean: dict[str, float] = {}
        for row in without:
            clean[row["crystal"]] = max(clean.get(row["crystal"], 0.0), row[by]["score"])
        own = [row[by]["near"] and row[by]["score"] > clean.get(row["crystal"], np.inf) for row in planted]
        line["own"] = float(np.mean(own))
        line["excess"] = float(np.median([row["electrons"] / row["true"] for row in planted]))
        line["kinds"] = {
            kind: curve(alike, without, by)["found"]
            if (alike := [row for row in planted if row["kind"] == kind])
            else 0.0
            for kind in KINDS
        }
        summary.append(line)
    return summary


def show(summary: list[dict[str, Any]]) -> None:
    """Prints a table of what `summarise` returns."""
    columns = ("area", "found", "own", "excess", "beyond_2")
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
