"""Errors of namsa's and abTEM's patterns against the reference cases, and the time to build a
potential.

    scripts/uv run python scripts/bench/exactness.py [--repeats 3] [--json]

A third program computed the cases (tests/reference) in float64, by direct summation at the exact
positions of the atoms. They are stored in float32, so that errors below about 4e-8 cannot be seen.
An error is the relative L2 difference of the worst pattern. abTEM spreads an atom over four pixels.
It runs with its defaults, in float64, and in float64 with a potential that is built on a grid four
times finer and cropped in reciprocal space. The latter needs code that is not part of abTEM. With
namsa's potential slices, abTEM must agree with namsa: then only the potential differs. abTEM runs
in an environment that uv creates.

The time is measured for SrTiO3, 50.8 x 50.8 x 199.2 Å on 512 x 512 pixels, 100 slices, float32:
once for the crystal, whose slices repeat, and once with every atom displaced. namsa's time includes
transmission functions and the density; abTEM's includes neither. namsa uses all cores. abTEM uses
one, its default: the threads of Dask and FFTW made it no faster.

"ratio" is the worst error of abTEM with its defaults divided by that of namsa in float32.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ase
import frame
import numpy as np
import numpy.typing as npt
from simulate_vs_abtem import RIVALS, workload
from threadpoolctl import threadpool_limits

import namsa
from namsa.physics import potential, specimen
from namsa.physics.grid import Grid
from namsa.physics.optics import interaction_constant
from namsa.physics.slice_plan import equal_slices

sys.path.insert(0, str(frame.ROOT / "tests/support"))
import reference_cases

from namsa.base.arrays import Array

RIVAL_OPTIONS: dict[str, dict[str, Any]] = {
    "abTEM": {"precision": "float32"},
    "abTEM, float64": {"precision": "float64"},
    "abTEM, float64, 4x finer": {"precision": "float64", "oversampling": 4},
}
SAME_SLICES = "abTEM, float64, namsa's slices"


def main() -> int:
    options = parse()
    apart = frame.environment(RIVALS, "abtem")
    abtem = frame.start([*apart, frame.WORKERS / "abtem_exactness.py"])
    errors = {}
    for name in reference_cases.CASES:
        errors[name] = case_errors(name, abtem)
    costs = {
        "crystal": build_seconds(abtem, 0.0, options.repeats),
        "every atom displaced": build_seconds(abtem, 0.08, options.repeats),
    }
    abtem.communicate()
    worst_of_abtem = max(frame.column(errors.values(), "abTEM"))
    ratio = worst_of_abtem / max(frame.column(errors.values(), "namsa, float32"))
    show(errors, costs)
    print(f"abTEM's worst error is {ratio:.3g} times namsa's in float32")
    frame.finish(
        options, {"ratio": ratio, "rival": RIVALS[0], "errors": errors, "potential_s": costs}
    )
    return 0


def parse() -> argparse.Namespace:
    parser = frame.parser(__doc__)
    parser.add_argument(
        "--repeats", type=int, default=3, help="potentials that are timed, after one that is not"
    )
    return parser.parse_args()


def case_errors(name: str, abtem: "subprocess.Popen[str]") -> dict[str, float]:
    atoms, arguments, arrays = reference_cases.load(name)
    expected = reference_cases.full_patterns(arrays, "lobato", arguments["grid_shape"])

    def error(found: Array) -> float:
        difference = np.linalg.norm(found - expected, axis=(1, 2)) / np.linalg.norm(
            expected, axis=(1, 2)
        )
        return float(difference.max())

    errors = {}
    for precision in ("float32", "float64"):
        errors[f"namsa, {precision}"] = error(
            namsa.simulate(
                atoms, **arguments, form_factors="lobato", precision=precision, backend="cpu"
            ).cbed
        )
    with tempfile.TemporaryDirectory() as folder:
        job = {
            **atoms_of(atoms),
            "energy_ev": arguments["energy_ev"],
            "semiangle_mrad": arguments["semiangle_mrad"],
            "aberrations": arguments["aberrations"],
            "grid_shape": arguments["grid_shape"],
            "slice_thickness_angstrom": arguments["slice_thickness_angstrom"],
            "probes_yx": arrays["probe_positions_yx"].tolist(),
            "patterns": str(Path(folder) / "patterns.npy"),
        }
        ours = {"precision": "float64", "slices": str(Path(folder) / "slices.npy")}
        np.save(ours["slices"], potential_slices(atoms, arguments))
        for rival, choices in (RIVAL_OPTIONS | {SAME_SLICES: ours}).items():
            frame.ask(abtem, job | choices)
            errors[rival] = error(np.load(job["patterns"], allow_pickle=False))
    return errors


def atoms_of(atoms: ase.Atoms) -> dict[str, Any]:
    lengths = atoms.cell.lengths().tolist()
    return {
        "numbers": atoms.numbers.tolist(),
        "positions": atoms.positions.tolist(),
        "cell": lengths,
    }


def potential_slices(atoms: ase.Atoms, arguments: dict[str, Any]) -> npt.NDArray[np.float64]:
    """namsa's, in V·Å and not band-limited, (n_slices, ny, nx)."""
    lx, ly, depth = (float(length) for length in atoms.cell.lengths())
    grid = Grid(tuple(arguments["grid_shape"]), (ly, lx))
    listed = specimen.atom_list(atoms)
    plan = equal_slices(listed.z, depth, arguments["slice_thickness_angstrom"])
    distinct, order = potential.distinct_slices(listed, plan)
    factors = potential.element_factors(atoms.numbers, grid, "lobato", np)
    fields = []
    for members in distinct:
        fields.append(
            potential.field(potential.structure_sums(members, grid, np), factors, grid, np)
        )
    return potential.POTENTIAL_CONSTANT * np.stack(fields)[order]


def build_seconds(
    abtem: "subprocess.Popen[str]", displacement_angstrom: float, repeats: int
) -> dict[str, float]:
    """Medians; the programs take turns, so that whatever else the machine does falls on both
    alike.
    """
    job = workload(grid=512, probes=1, threads=1)
    atoms = ase.Atoms(job["numbers"], positions=job["positions"], cell=job["cell"], pbc=True)
    atoms.positions += np.random.default_rng(0).normal(
        0, displacement_angstrom, atoms.positions.shape
    )
    grid = Grid(tuple(job["grid_shape"]), tuple(job["cell"][1::-1]))
    sigma = interaction_constant(job["energy_ev"])
    times: dict[str, list[float]] = {"namsa": [], "abTEM": []}
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        with threadpool_limits(
            limits=1, user_api="blas"
        ):  # as `simulate` has it: threads take slices
            specimen.build(
                atoms,
                grid,
                job["slice_thickness_angstrom"],
                sigma,
                "lobato",
                np.dtype(np.complex64),
                np,
            )
        times["namsa"].append(time.perf_counter() - begin)
        answer = frame.ask(abtem, job | atoms_of(atoms) | {"precision": "float32"})
        times["abTEM"].append(answer["potential_s"])
    return {name: statistics.median(seconds[1:]) for name, seconds in times.items()}


def show(errors: dict[str, dict[str, float]], costs: dict[str, dict[str, float]]) -> None:
    patterns = frame.table("error of the patterns", *errors)
    for program in next(iter(errors.values())):
        patterns.add_row(program, *(f"{case[program]:.1e}" for case in errors.values()))
    potentials = frame.table("potential, s", "namsa", "abTEM")
    for name, seconds in costs.items():
        potentials.add_row(name, f"{seconds['namsa']:.2f}", f"{seconds['abTEM']:.2f}")
    frame.show(patterns, potentials)


if __name__ == "__main__":
    sys.exit(main())
