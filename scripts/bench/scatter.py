"""Samples per hour: one scattering per specimen, against a simulation of each sample.

    scripts/uv run python scripts/bench/scatter.py [--specimens 2] [--settings 6] [--rounds 3] [--json]

The list of samples is that of configs/benchmark.yaml, with its specimens, scan and detector: every specimen at the
thicknesses of the configuration and at `--settings` settings of the lens (defocus ±100 Å, astigmatism and coma, tilts
of the beam up to 3 mrad). Thicknesses are whole numbers of the thickest specimen's slices, and both sides simulate the
same atoms in the same slices. "Each" calls `namsa.simulate` for every sample, which chooses multislice or PRISM by
cost, as the factory of datasets does. "Scattered" calls `namsa.scatter` for every specimen, then adds its samples up.
Both run in every round, in turn; the patterns are compared. Ratios are within a round.

"ratio" is the median of the time of "each" divided by that of "scattered".
"""

import argparse
import json
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import ase
import numpy as np
from rich.console import Console
from rich.table import Table

import namsa
from namsa.dataset.entries import build_entries
from namsa.dataset.entry import Entry
from namsa.dataset.sample_setup import SampleSetup, make_sample_setup
from namsa.physics.slice_plan import slice_count

CONFIG = Path(__file__).parents[2] / "configs/benchmark.yaml"
MATERIALS = 60  # of which specimens are drawn
TILT_MRAD = 3.0
MARGIN_MRAD = 0.7  # half a pixel of the reciprocal grid, which the detector's outermost pixels share
TOLERANCE = 1e-4  # of patterns in float32


def main() -> None:
    options = parse()
    warnings.simplefilter("ignore", namsa.SimulationWarning)
    config = namsa.load_config(CONFIG, ["simulation.backend=cpu"])
    thickest = max(config.specimen.thickness_angstrom)
    materials = {material.name: material for material in namsa.builtin_materials()[:: 400 // MATERIALS]}
    entries = [e for e in build_entries(config, list(materials.values())) if not e.skipped]
    entries = sorted((e for e in entries if e.thickness_angstrom == thickest), key=lambda e: e.seed)
    rounds: list[dict[str, Any]] = []
    for number in range(options.rounds):
        for entry in entries[: options.specimens]:
            setup = make_sample_setup(config, materials[entry.material], entry)
            row = compare(setup, entry, options.settings, number % 2 == 0)
            rounds.append(row)
            print(f"round {number + 1}: {row}", file=sys.stderr)
    show(rounds)
    if options.json:
        ratio = statistics.median(row["each_s"] / row["scattered_s"] for row in rounds)
        print(json.dumps({"ratio": ratio, "rounds": rounds}))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--specimens", type=int, default=2)
    parser.add_argument("--settings", type=int, default=6, help="settings of the lens per specimen and thickness")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    return parser.parse_args()


def compare(setup: SampleSetup, entry: Entry, settings: int, each_first: bool) -> dict[str, Any]:
    """Times both ways on the samples of one specimen, and compares their patterns."""
    atoms, config = setup.supercell().atoms, setup.config
    shared = {
        "energy_ev": config.microscope.energy_ev,
        "grid_shape": setup.grid.shape,
        "slice_thickness_angstrom": config.simulation.slice_thickness_angstrom,
        "backend": "cpu",
    }
    probes = {
        "positions_angstrom": setup.positions_angstrom,
        "scan_shape": config.scan.shape,
        "detector": config.detector,
        "semiangle_mrad": config.microscope.semiangle_mrad,
    }
    lenses = [probes | lens for lens in lens_settings(settings, entry.seed)]
    thicknesses = [t for t in config.specimen.thickness_angstrom if t <= setup.thickness_angstrom]
    rows, columns = config.detector.shape
    reach = {
        "max_angle_mrad": config.microscope.semiangle_mrad + TILT_MRAD,
        "max_detected_mrad": 0.5 * max(rows, columns) * config.detector.pixel_mrad + MARGIN_MRAD,
        "thicknesses_angstrom": thicknesses,
    }

    def scattered() -> list[Any]:
        scattering = namsa.scatter(atoms, **shared, **reach)
        depths = range(len(scattering.depths))
        return [scattering.simulate(depth, **lens).cbed for depth in depths for lens in lenses]

    count = slice_count(setup.thickness_angstrom, config.simulation.slice_thickness_angstrom)
    parts = [upper_part(atoms, round(t * count / setup.thickness_angstrom), count) for t in thicknesses]

    def each() -> list[Any]:
        return [namsa.simulate(part, **shared, **lens).cbed for part in parts for lens in lenses]

    times, found = {}, {}
    for name, run in (("each", each), ("scattered", scattered))[:: 1 if each_first else -1]:
        began = time.perf_counter()
        found[name] = run()
        times[name] = time.perf_counter() - began
    error = max(
        np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(found["scattered"], found["each"], strict=True)
    )
    if error > TOLERANCE:
        raise SystemExit(f"{entry.id}: the patterns differ by {error:.1e}")
    return {
        "specimen": entry.id,
        "grid": list(setup.grid.shape),
        "samples": len(found["each"]),
        "each_s": times["each"],
        "scattered_s": times["scattered"],
        "difference": float(error),
    }


def upper_part(atoms: ase.Atoms, slices: int, of: int) -> ase.Atoms:
    """The atoms of the first slices, in a cell that ends there."""
    height = slices * float(atoms.cell.lengths()[2]) / of
    part = atoms[atoms.positions[:, 2] < height - 1e-9]
    part.cell[2, 2] = height
    return part


def lens_settings(count: int, seed: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        size, angle = TILT_MRAD * np.sqrt(rng.random()), 2 * np.pi * rng.random()
        aberrations = {"C10": rng.uniform(-100, 100), "C12": rng.uniform(0, 20), "C21": rng.uniform(0, 500)}
        tilt = (float(size * np.sin(angle)), float(size * np.cos(angle)))
        found.append({"aberrations": {k: float(v) for k, v in aberrations.items()}, "beam_tilt_mrad": tilt})
    return found


def show(rounds: list[dict[str, Any]]) -> None:
    table = Table("specimen", "grid", "samples", "each, samples/h", "scattered, samples/h", "ratio", box=None)
    for specimen in dict.fromkeys(row["specimen"] for row in rounds):
        rows = [row for row in rounds if row["specimen"] == specimen]
        each, scattered = (
            statistics.median(3600 * row["samples"] / row[name] for row in rows) for name in ("each_s", "scattered_s")
        )
        ratio = statistics.median(row["each_s"] / row["scattered_s"] for row in rows)
        grid = "×".join(map(str, rows[0]["grid"]))
        table.add_row(specimen, grid, str(rows[0]["samples"]), f"{each:.0f}", f"{scattered:.0f}", f"{ratio:.1f}")
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
