"""Speed of namsa on a CPU against abTEM, and against the limit that the Fourier transforms alone
set.

    scripts/uv run python scripts/bench/simulate_vs_abtem.py [--repeats 5] [--probes 64] [--grid
    512] [--json]

The workload is SrTiO3, 50.8 x 50.8 x 199.2 Å, 100 slices, 200 keV, 20 mrad, full detector, float32.
abTEM and MKL run in an environment that uv creates. Every round runs all programs one after the
other, so that other work on the machine affects all alike; ratios are medians over the rounds.
abTEM runs with its default, FFTW, and with MKL through a small adapter, which is faster and which
the current mkl_fft otherwise refuses. Ratios are against the faster one.

The limit is the rate of MKL transforms alone, two per slice and probe. A multislice that computes
them in full cannot exceed it; one that leaves out what the band limit sets to zero can. "End to
end" is from atoms to patterns, with the potential.
"""

import argparse
import statistics
import sys
from typing import Any

import ase
import frame
import numpy as np

from namsa.physics.backend import available_cores

RIVALS = ("abtem==1.0.11", "pyfftw==0.15.1", "mkl_fft==2.3.2", "mkl==2026.2.0", "scipy")
LATTICE_ANGSTROM = 3.905


def main() -> None:
    options = parse()
    job = workload(options.grid, options.probes, options.threads)
    apart = frame.environment(RIVALS, "abtem")
    programs = {
        "namsa": frame.start([sys.executable, frame.WORKERS / "namsa_patterns.py"]),
        "namsa, plain": frame.start([sys.executable, frame.WORKERS / "namsa_patterns.py"]),
        "abTEM, FFTW": frame.start([*apart, frame.WORKERS / "abtem_patterns.py"]),
        "abTEM, MKL": frame.start([*apart, frame.WORKERS / "abtem_patterns.py"]),
    }
    choices = {
        "namsa": {"engine": "auto"},
        "namsa, plain": {"engine": "plain"},
        "abTEM, FFTW": {"fft": "fftw"},
        "abTEM, MKL": {"fft": "mkl"},
    }
    transforms = frame.start([*apart, frame.WORKERS / "bare_fft.py"])
    rounds = []
    for repeat in range(-1, options.repeats):  # the first round loads and plans, and is not counted
        results: dict[str, Any] = {}
        for name, program in programs.items():
            results[name] = frame.ask(program, job | choices[name])
        for library in ("mkl", "scipy"):
            shape = {"library": library, "shape": job["grid_shape"], "threads": options.threads}
            results[library] = frame.ask(transforms, shape)["transforms_per_s"]
        times = ", ".join(f"{name} {results[name]['total_s']:.2f} s" for name in programs)
        print(f"round {repeat + 1} of {options.repeats}: {times}", file=sys.stderr)
        rounds.append(results)
    for process in (*programs.values(), transforms):
        process.communicate()
    summary = summarise(rounds[1:], list(programs), options.probes)
    show(summary)
    frame.finish(
        options,
        summary | {"grid": options.grid, "probes": options.probes, "threads": options.threads},
    )


def parse() -> argparse.Namespace:
    parser = frame.parser(__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="rounds that are counted")
    parser.add_argument("--probes", type=int, default=64)
    parser.add_argument("--grid", type=int, default=512, help="pixels along each axis")
    parser.add_argument(
        "--threads", type=int, default=available_cores(), help="for abTEM and bare transforms"
    )
    return parser.parse_args()


def workload(grid: int, probes: int, threads: int) -> dict[str, Any]:
    """The request to both programs; probes lie in one unit cell and between."""
    a = LATTICE_ANGSTROM
    basis = [(0, 0, 0), (0.5, 0.5, 0.5), (0.5, 0.5, 0), (0.5, 0, 0.5), (0, 0.5, 0.5)]
    atoms = ase.Atoms("SrTiO3", scaled_positions=basis, cell=[a] * 3, pbc=True) * (13, 13, 51)
    return {
        "numbers": atoms.numbers.tolist(),
        "positions": atoms.positions.tolist(),
        "cell": atoms.cell.lengths().tolist(),
        "grid_shape": [grid, grid],
        "slice_thickness_angstrom": 2.0,
        "energy_ev": 200e3,
        "semiangle_mrad": 20.0,
        "probes_yx": (20 + np.random.default_rng(0).uniform(0, a, (probes, 2))).tolist(),
        "threads": threads,
    }


def summarise(rounds: list[dict[str, Any]], names: list[str], probes: int) -> dict[str, Any]:
    """Medians over the rounds, of times and of ratios within a round."""
    first = rounds[0]
    last = rounds[-1]
    programs = {}
    for name in names:
        of_program = frame.column(rounds, name)
        propagation_s = np.array(frame.column(of_program, "propagation_s"))
        programs[name] = {
            "propagation_patterns_per_s": float(np.median(probes / propagation_s)),
            "end_to_end_s": statistics.median(frame.column(of_program, "total_s")),
            "peak_mib": last[name]["peak_mib"],
            "transmitted": last[name]["transmitted"],
            "slices": last[name]["slices"],
        }
    stock, *others = (name for name in names if name.startswith("abTEM"))
    best = min((stock, *others), key=lambda name: programs[name]["end_to_end_s"])

    def ratio(rival: str, key: str) -> float:
        return statistics.median(r[rival][key] / r["namsa"][key] for r in rounds)

    transforms = 2 * first["namsa"]["slices"]  # a pattern
    patterns_per_s = {}
    for library in ("mkl", "scipy"):
        patterns_per_s[library] = statistics.median(frame.column(rounds, library)) / transforms
    memory_of_rivals = [last[name]["peak_mib"] for name in (stock, *others)]
    return {
        "ratio": ratio(best, "total_s"),
        "ratio_propagation": ratio(best, "propagation_s"),
        "ratio_stock": ratio(stock, "total_s"),
        "ratio_stock_propagation": ratio(stock, "propagation_s"),
        "memory_fraction": last["namsa"]["peak_mib"] / min(memory_of_rivals),
        "limit_fraction": statistics.median(
            probes / r["namsa"]["propagation_s"] / (r["mkl"] / transforms) for r in rounds
        ),
        "limit_patterns_per_s": patterns_per_s,
        "best_rival": best,
        "engine": first["namsa"]["engine"],
        "programs": programs,
    }


def show(summary: dict[str, Any]) -> None:
    print(f"{'':14} {'patterns/s':>11} {'end to end':>11} {'peak memory':>12} {'transmitted':>12}")
    for name, numbers in summary["programs"].items():
        print(
            f"{name:14} {numbers['propagation_patterns_per_s']:11.1f} "
            f"{numbers['end_to_end_s']:9.2f} s {numbers['peak_mib']:8.0f} MiB "
            f"{numbers['transmitted']:12.5f}"
        )
    for library, rate in summary["limit_patterns_per_s"].items():
        print(f"{'bare ' + library:14} {rate:11.1f}")
    print(
        f"\nnamsa ({summary['engine']} engine) against {summary['best_rival']}: propagation "
        f"{summary['ratio_propagation']:.2f} times, end to end {summary['ratio']:.2f} times, "
        f"memory {summary['memory_fraction']:.2f}; against abTEM as it comes "
        f"{summary['ratio_stock_propagation']:.2f} and {summary['ratio_stock']:.2f} times; "
        f"{summary['limit_fraction']:.2f} of what bare MKL transforms allow"
    )


if __name__ == "__main__":
    main()
