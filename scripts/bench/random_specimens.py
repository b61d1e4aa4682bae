"""Errors of the pixels and slices that `namsa.simulate` uses, on random specimens.

    scripts/uv run python scripts/bench/random_specimens.py [--count 30] [--seed 1] [--run] [--json]

Films, particles, columns and glasses, 30 kV to 1 MV, semi-angles of 0 to 40 mrad, detectors to 20
to 200 mrad, with and without tilts of beam and specimen, scans of 1,024 patterns. What the model
chooses, and what there is after `SimulationPlan.measured`, is compared with pixels a fourth as
large and layers of which at most those a tenth as far apart share a slice, for six probes that the
measurement has not used, two of them on and beside the strongest column. With `--run` the scan is
simulated too, and the processor time of the measurement is given in parts of that.

"ratio" is the largest error of all patterns of a specimen, divided by the accuracy.
"""

import argparse
import time
from itertools import cycle, islice
from typing import Any

import ase
import frame
import numpy as np
from ase.build import bulk

from namsa.sampling.evidence import errors_of
from namsa.sampling.trial import Trial, finer_grid, probes_of
from namsa.setup.settings import settings_of
from namsa.simulation_plan import plan_simulation

ACCURACY = 0.01
ELEMENTS = {"C": 3.57, "Al": 4.05, "Si": 5.43, "Cu": 3.61, "Ag": 4.09, "W": 3.16, "Pt": 3.92}
ELEMENTS["Au"] = 4.08
STRUCTURES = {"C": "diamond", "Si": "diamond", "W": "bcc"}
KINDS = ("film", "particle", "column", "glass")
FINER = 4
THINNER = 10


def main() -> None:
    parser = frame.parser(__doc__)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--run", action="store_true", help="the time of the simulations, too")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    kinds = islice(cycle(KINDS), options.count)
    rows = [compare(rng, kind, options) for kind in kinds]
    largest = max(frame.column(rows, "error"))
    worst = max(frame.column(rows, "worst_pattern"))
    measured = sum(row["basis"] == "measured" for row in rows)
    by_model = sum(row["error_of_model"] <= ACCURACY for row in rows)
    print(
        f"{len(rows)} specimens, {measured} measured: errors to {largest:.2%}, of the worst "
        f"pattern to {worst:.2%}; {by_model} hold by the model alone"
    )
    frame.finish(options, {"ratio": largest / ACCURACY, "specimens": rows})


def compare(rng: np.random.Generator, kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """Draws a specimen and a microscope, and prints the error of what is chosen for them."""
    symbol = str(rng.choice(list(ELEMENTS)))
    atoms = specimen(rng, kind, symbol)
    beam = microscope(rng)
    settings = settings_of(beam | {"scan": (32, 32), "accuracy": ACCURACY, "backend": "cpu"})
    plan = plan_simulation(atoms, settings)
    of_model = plan.slicing
    begin = time.process_time()
    plan = plan.measured()
    seconds = time.process_time() - begin
    slicing = plan.slicing
    probes = np.repeat(probes_of(slicing.snapshots[0], slicing.extent_angstrom, 3), 2, axis=0)
    probes[1::2] += (0.3, 0.2)
    trial = Trial(of_model, probes, slicing.required.reach_mrad)
    finest = trial.patterns(finer_grid(slicing.grid, FINER), slicing.finer_plan(THINNER))
    by_model = errors_of(trial.patterns(of_model.grid, of_model.plan), finest)
    errors = errors_of(trial.patterns(slicing.grid, slicing.plan), finest)
    evidence = slicing.accuracy_evidence() or {}
    row = {
        "specimen": f"{symbol}, {kind}, {slicing.thickness_angstrom:.0f} Å",
        "energy_ev": beam["energy_ev"],
        "semiangle_mrad": beam["semiangle_mrad"],
        "reach_mrad": beam["reach_mrad"],
        "tilts_mrad": [beam["beam_tilt_mrad"][0], beam["specimen_tilt_mrad"][1]],
        "pixel_angstrom": max(slicing.grid.sampling_angstrom),
        "slices": slicing.slices,
        "error": errors.error,
        "worst_pattern": errors.worst_pattern,
        "error_of_model": by_model.error,
        "worst_pattern_of_model": by_model.worst_pattern,
        "basis": evidence["basis"],
        "stated": evidence["error"],
        "measurement_s": seconds,
    }
    if options.run:
        begin = time.process_time()
        plan.run()
        row["run_s"] = time.process_time() - begin
    show(row)
    return row


def show(row: dict[str, Any]) -> None:
    """Prints the row of a table in Markdown."""
    added = f" {row['measurement_s'] / row['run_s']:.0%} |" if "run_s" in row else ""
    print(
        f"| {row['specimen']} | {row['energy_ev'] / 1e3:.0f}, {row['semiangle_mrad']:.1f}, "
        f"{row['reach_mrad']:.0f} | {row['tilts_mrad'][0]:.0f}, {row['tilts_mrad'][1]:.0f} | "
        f"{row['pixel_angstrom']:.4f} | {row['slices']} | {row['error']:.2%} | "
        f"{row['worst_pattern']:.2%} | {row['basis']}, {row['stated']:.2%} | "
        f"{row['error_of_model']:.2%} |{added}",
        flush=True,
    )


def microscope(rng: np.random.Generator) -> dict[str, Any]:
    """Draws energy, semi-angle, detector and tilts, as arguments of `namsa.simulate`."""
    tilted = rng.uniform() < 0.3
    return {
        "energy_ev": float(np.exp(rng.uniform(np.log(30e3), np.log(1e6)))),
        "semiangle_mrad": float(rng.choice([0.0, rng.uniform(1, 8), rng.uniform(8, 40)])),
        "reach_mrad": float(np.exp(rng.uniform(np.log(20), np.log(200)))),
        "beam_tilt_mrad": (float(rng.uniform(0, 30)) if tilted else 0.0, 0.0),
        "specimen_tilt_mrad": (0.0, float(rng.uniform(0, 60)) if tilted else 0.0),
    }


def specimen(rng: np.random.Generator, kind: str, symbol: str) -> ase.Atoms:
    """Draws a small specimen of a kind, of which no two atoms overlap."""
    lattice = ELEMENTS[symbol]
    unit = bulk(symbol, STRUCTURES.get(symbol, "fcc"), a=lattice, cubic=True)
    if kind == "film":
        across = max(1, round(8 / lattice))
        return unit * (across, across, max(1, round(rng.uniform(15, 200) / lattice)))
    if kind == "column":
        count = max(2, round(rng.uniform(15, 120) / lattice))
        heights = lattice * np.arange(count)
        positions = np.stack([np.full(count, 4.0), np.full(count, 5.0), heights], axis=1)
        return ase.Atoms(f"{symbol}{count}", positions, cell=[8, 10, lattice * count], pbc=True)
    if kind == "particle":
        atoms = unit * (4, 4, 4)
        centre = atoms.positions.mean(axis=0)
        inside = np.abs(atoms.positions - centre).sum(axis=1) < rng.uniform(5, 9)
        particle = atoms[inside]
        particle.center(vacuum=3.0)
        return particle
    glass = unit * (2, 2, max(2, round(rng.uniform(15, 45) / lattice)))
    glass.rattle(0.08 * lattice, seed=int(rng.integers(2**31)))
    glass.wrap()
    return glass


if __name__ == "__main__":
    main()
