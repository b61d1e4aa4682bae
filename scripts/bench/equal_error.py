"""Speed of namsa against abTEM where the patterns of both have the same error.

    scripts/uv run python scripts/bench/equal_error.py [--repeats 3] [--probes 32] [--specimens
    SrTiO3 Pt ZnO] [--json]

The error is the relative L2 difference of all patterns within 52 mrad from a program's own patterns
on pixels of `FINE_ANGSTROM`. "chosen" is what a user of namsa gets, who asks for 1 % and knows no
pixels: it has a margin. All others get the largest pixels of a ladder at which their error is at
most 1 %: namsa with the whole band, namsa with the conventional band of 2/3, as it simulated before
it chose pixels, and abTEM. "ratio" is that of the first of these, and "ratio_chosen" that of the
chosen pixels. All have slices at the layers of atoms; abTEM gets those that namsa chooses. Then all
programs take turns, and ratios are medians over the rounds, from atoms to patterns. abTEM and MKL
run in an environment that uv creates. 200 keV, 20 mrad, specimens 80 Å thick, float32.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import ase
import frame
import numpy as np
from ase.build import bulk
from reality_specimens import perovskite, reordered

from namsa.physics.backend import available_cores
from namsa.physics.grid import fast_shape
from namsa.physics.optics import wavelength_angstrom
from namsa.physics.slice_plan import layer_slices
from namsa.sampling.resolution import Illumination, layer_extent

RIVALS = ("abtem==1.0.11", "pyfftw==0.15.1", "mkl_fft==2.3.2", "mkl==2026.2.0", "scipy")
ENERGY_EV = 200e3
SEMIANGLE_MRAD = 20.0
REACH_MRAD = 52.0
THICKNESS_ANGSTROM = 80.0
WIDTH_ANGSTROM = 20.0  # least width of the cell
ABTEM_BATCH = 16  # with which abTEM is fastest
LARGEST_ERROR = 0.01
FINE_ANGSTROM = 0.018
LADDER_ANGSTROM = 0.11 * 0.9 ** np.arange(17)  # 0.11 to 0.02
AUTO = "namsa, chosen"
WHOLE = "namsa, 1 %"
CONVENTIONAL = "namsa, band 2/3"
CHOICES: dict[str, dict[str, Any]] = {
    AUTO: {},
    WHOLE: {"band_fraction": 1.0},
    CONVENTIONAL: {"band_fraction": 2 / 3},
    "abTEM, FFTW": {"fft": "fftw"},
    "abTEM, MKL": {"fft": "mkl"},
}


def zinc_oxide() -> ase.Atoms:
    """Wurtzite along [100], in an orthogonal cell: c along x, a√3 along y, a along the beam."""
    a = 3.2495
    c = 5.2069
    u = 0.3819
    wurtzite = bulk("ZnO", "wurtzite", a=a, c=c, u=u)
    orthogonal = wurtzite * (1, 2, 1)
    orthogonal.set_cell([[a, 0, 0], [0, a * np.sqrt(3), 0], [0, 0, c]])
    orthogonal.wrap()
    return reordered(orthogonal, (2, 1, 0))


UNIT_CELLS = {
    "SrTiO3": lambda: perovskite("Sr", "Ti", "O", 3.905),
    "Pt": lambda: bulk("Pt", "fcc", a=3.924, cubic=True),
    "ZnO": zinc_oxide,
}


def main() -> None:
    options = parse()
    apart = frame.environment(RIVALS, "abtem")
    namsa_command = [sys.executable, frame.WORKERS / "namsa_patterns.py"]
    rival = [*apart, frame.WORKERS / "abtem_patterns.py"]
    programs = {}
    for name in CHOICES:
        programs[name] = frame.start(namsa_command if name.startswith("namsa") else rival)
    comparisons = {}
    with tempfile.TemporaryDirectory() as folder:
        for specimen in options.specimens:
            comparisons[specimen] = compare(
                specimen, programs, options, Path(folder) / "patterns.npy"
            )
            show(specimen, comparisons[specimen])
    for process in programs.values():
        process.communicate()
    frame.finish(
        options,
        {"ratio": min(row["ratio"] for row in comparisons.values()), "specimens": comparisons},
    )


def parse() -> argparse.Namespace:
    parser = frame.parser(__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="rounds that are counted")
    parser.add_argument("--probes", type=int, default=32)
    parser.add_argument(
        "--specimens", nargs="+", default=list(UNIT_CELLS), choices=list(UNIT_CELLS)
    )
    parser.add_argument("--threads", type=int, default=available_cores(), help="for abTEM")
    return parser.parse_args()


def workload(specimen: str, options: argparse.Namespace) -> dict[str, Any]:
    """Atoms, probes in one unit cell, and the slices that namsa would choose, as abTEM takes
    them.
    """
    unit = UNIT_CELLS[specimen]()
    lengths = unit.cell.lengths()
    times = [
        int(np.ceil(WIDTH_ANGSTROM / lengths[0])),
        int(np.ceil(WIDTH_ANGSTROM / lengths[1])),
        round(THICKNESS_ANGSTROM / lengths[2]),
    ]
    unit.pbc = True
    atoms = unit * times
    atoms.wrap(eps=1e-6)
    depth = float(atoms.cell.lengths()[2])
    beam = Illumination(ENERGY_EV, SEMIANGLE_MRAD)
    plan = layer_slices(atoms.positions[:, 2], depth, layer_extent(beam, REACH_MRAD))
    fronts = []
    for n in range(plan.count):
        fronts.append(atoms.positions[plan.slice_of_atom == n, 2].min())
    rng = np.random.default_rng(0)
    return {
        "numbers": atoms.numbers.tolist(),
        "positions": atoms.positions.tolist(),
        "cell": atoms.cell.lengths().tolist(),
        "energy_ev": ENERGY_EV,
        "semiangle_mrad": SEMIANGLE_MRAD,
        "reach_mrad": REACH_MRAD,
        "probes_yx": (8 + rng.uniform(0, 1, (options.probes, 2)) * lengths[[1, 0]]).tolist(),
        "threads": options.threads,
        "slices": np.diff([0.0, *fronts[1:], depth]).tolist(),
        "above_face_angstrom": 1e-6,
        "batch": ABTEM_BATCH,
    }


def compare(
    specimen: str, programs: dict[str, Any], options: argparse.Namespace, file: Path
) -> dict[str, Any]:
    """Finds the pixels of each program, then takes the times of all in turns."""
    base = workload(specimen, options)
    jobs = {}
    chosen = {}
    for name, choice in CHOICES.items():
        job = base | choice
        measure = Measurement(programs[name], job, file)
        chosen[name] = measure.automatic() if name == AUTO else measure.largest()
        jobs[name] = job | ({} if name == AUTO else {"grid_shape": chosen[name]["grid_shape"]})
        print(f"{specimen}, {name}: {chosen[name]}", file=sys.stderr)
    rounds = []
    for repeat in range(-1, options.repeats):  # the first round loads and plans, and is not counted
        seconds_of_round = {}
        for name in CHOICES:
            seconds_of_round[name] = frame.ask(programs[name], jobs[name])["total_s"]
        rounds.append(seconds_of_round)
        print(f"{specimen}, round {repeat + 1}: {rounds[-1]}", file=sys.stderr)
    del rounds[0]
    seconds = {}
    programs_measured = {}
    for name in CHOICES:
        seconds[name] = statistics.median(frame.column(rounds, name))
        programs_measured[name] = chosen[name] | {"total_s": seconds[name]}
    rival = min((name for name in CHOICES if name.startswith("abTEM")), key=seconds.__getitem__)
    return {
        "programs": programs_measured,
        "rival": rival,
        "ratio": frame.median_ratio(rounds, rival, WHOLE),
        "ratio_chosen": frame.median_ratio(rounds, rival, AUTO),
        "ratio_before": frame.median_ratio(rounds, CONVENTIONAL, WHOLE),
    }


class Measurement:
    """The error of one program's patterns, against its own on fine pixels."""

    def __init__(self, program: "subprocess.Popen[str]", job: dict[str, Any], file: Path) -> None:
        self.program = program
        self.job = job
        self.file = file
        self.reference = self.patterns(self.grid(FINE_ANGSTROM))

    def grid(self, pixel_angstrom: float) -> list[int]:
        lx, ly, _ = self.job["cell"]
        return list(fast_shape((ly, lx), pixel_angstrom))

    def patterns(self, shape: list[int] | None) -> Any:
        """Returns the patterns within the reach, fractions of the beam; `None` leaves the grid to
        namsa.
        """
        given = {"grid_shape": shape} if shape else {}
        self.answer = frame.ask(self.program, self.job | given | {"patterns": str(self.file)})
        patterns = np.load(self.file)
        lengths = np.array(self.job["cell"])[[1, 0]]
        half = np.floor(1e-3 * REACH_MRAD / wavelength_angstrom(ENERGY_EV) * lengths).astype(int)
        box = []
        for n, h in zip(patterns.shape[1:], half, strict=True):
            box.append(slice(n // 2 - h, n // 2 + h + 1))
        return patterns[(slice(None), *box)].astype(float)

    def error(self, shape: list[int] | None) -> float:
        patterns = self.patterns(shape)
        return float(np.linalg.norm(patterns - self.reference) / np.linalg.norm(self.reference))

    def automatic(self) -> dict[str, Any]:
        """Returns the grid that namsa chooses."""
        error = self.error(None)
        return self.chosen(self.answer["grid_shape"], error)

    def chosen(self, shape: list[int], error: float) -> dict[str, Any]:
        return {"grid_shape": shape, "slices": self.answer["slices"], "error": error}

    def largest(self) -> dict[str, Any]:
        """Returns the coarsest grid of the ladder whose error is at most the largest."""
        for pixel in LADDER_ANGSTROM:
            error = self.error(self.grid(pixel))
            if error <= LARGEST_ERROR:
                return self.chosen(self.grid(pixel), error)
        raise SystemExit(
            f"{self.job.get('fft', 'namsa')}: error {error:.2%} at pixels of {pixel:.3f} Å"
        )


def show(specimen: str, comparison: dict[str, Any]) -> None:
    for name, row in comparison["programs"].items():
        ny, nx = row["grid_shape"]
        print(
            f"{specimen:8} {name:16} {ny} × {nx} {row['slices']:4} slices {row['error']:7.2%} "
            f"{row['total_s']:8.2f} s"
        )
    print(
        f"{specimen}: {comparison['ratio']:.1f} times as fast as {comparison['rival']}, "
        f"{comparison['ratio_chosen']:.1f} times with chosen pixels, "
        f"{comparison['ratio_before']:.1f} times as fast as with the band of 2/3\n"
    )


if __name__ == "__main__":
    main()
