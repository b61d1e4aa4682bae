"""Samples per hour of the factory of datasets: one scattering per specimen, against a simulation of
each sample.

    scripts/uv run python scripts/bench/factory.py [--samples 12] [--rounds 2] [--no-source]
    [--json]

The list of samples is the same on both sides: two specimens at 200 kV, `--samples` of each with
thicknesses of 20 to 120 Å, defoci within ±100 Å, astigmatism up to 20 Å, a source up to 1 Å (with
`--no-source` none) and one tilt per specimen. "Scattered" is `simulation.method: scatter`. "Each"
simulates the atoms of every sample by `namsa.simulate`, which chooses multislice or PRISM by cost,
as the factory does without scattering. Both write records. They run in turn in every round, each in
an empty folder; ratios are within a round.

A part of a crystal whose last layer nearly meets the first of the next cell is no specimen for
`namsa.simulate`; such samples are left out of the rate of "each".

The time of the processor is that of all threads. It is given because it depends less on what else
the machine does. "Parts" are shares of the processor time of one more specimen without storing:
what its samples have in common, and the samples.
"""

import argparse
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import frame
from ase.spacegroup import crystal

import namsa
from namsa.config.simulation import SimulationConfig
from namsa.crystals.material import Material
from namsa.dataset import factory, listing
from namsa.dataset.entries import build_entries
from namsa.dataset.entry import Entry
from namsa.dataset.sample_setup import build_supercell, focal_spread_angstrom, make_sample_setup
from namsa.dataset.sharing import by_specimen
from namsa.dataset.simulate_entry import SimulateSample, prepare_samples
from namsa.samples.sample import Sample


def perovskite(a: str, b: str, side: float) -> Material:
    """Returns an ideal perovskite ABO3 with a cubic cell of `side` Å."""
    atoms = crystal(
        [a, b, "O"],
        [(0, 0, 0), (0.5, 0.5, 0.5), (0.5, 0.5, 0)],
        spacegroup=221,
        cellpar=[side] * 3 + [90] * 3,
    )
    return Material(f"{a}{b}O3", f"{a}{b}O3", "Pm-3m", atoms, "ideal perovskite")


MATERIALS = (perovskite("Sr", "Ti", 3.905), perovskite("Ba", "Zr", 4.19))
VARIATION = {
    "rule": "random",
    "thickness_angstrom": [20, 120],
    "defocus_angstrom": [-100, 100],
    "C12_angstrom": [0, 20],
    "specimen_tilt_mrad": [0, 5],
}


def main() -> None:
    options = parse()
    warnings.simplefilter("ignore", namsa.SimulationWarning)
    config = configuration(options)
    listing.select_materials = lambda *_, **__: MATERIALS
    rounds = []
    for number in range(options.rounds):
        row: dict[str, float] = {}
        ways: dict[str, Any] = {"each": each_alone, "scattered": prepare_samples}
        order = list(ways.items())
        if number % 2 == 0:
            order.reverse()
        for name, prepare in order:
            for unit, value in timed(config, prepare).items():
                row[f"{name}_{unit}"] = value
        rounds.append(row)
        print(f"round {number + 1}: {row}", file=sys.stderr)
    shares = parts(config)
    show(rounds, shares)
    ratio = frame.median_ratio(rounds, "each_processor_s", "scattered_processor_s")
    frame.finish(options, {"ratio": ratio, "rounds": rounds, "parts": shares})


def parse() -> argparse.Namespace:
    parser = frame.parser(__doc__)
    parser.add_argument("--samples", type=int, default=12, help="samples per specimen")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--no-source", action="store_true", help="a point source, as if training blurred the scan"
    )
    return parser.parse_args()


def configuration(options: argparse.Namespace) -> SimulationConfig:
    source = {} if options.no_source else {"source_size_angstrom": [0, 1]}
    return SimulationConfig.model_validate(
        {
            "split": {"train": 1, "dev": 0, "test": 0},
            "specimen": {"thickness_angstrom": [120], "lateral_angstrom": [16, 16]},
            "microscope": {"energy_ev": 200e3, "semiangle_mrad": 20},
            "variation": VARIATION | source | {"configurations": options.samples},
            "simulation": {"sampling_angstrom": 0.125, "backend": "cpu", "method": "scatter"},
            "scan": {"shape": [32, 32], "step_angstrom": [0.4, 0.4]},
            "detector": {"shape": [33, 33], "pixel_mrad": 3},
            "target": {"at": "scan"},
        }
    )


def timed(config: SimulationConfig, prepare: Any) -> dict[str, float]:
    """Runs the factory in an empty folder. Returns the seconds per sample that was made."""
    with tempfile.TemporaryDirectory() as folder:
        wall = time.perf_counter()
        processor = time.process_time()
        summary = factory.produce(config, Path(folder), prepare=prepare)
        wall = time.perf_counter() - wall
        processor = time.process_time() - processor
    return {"s": wall / summary["written"], "processor_s": processor / summary["written"]}


def each_alone(
    config: SimulationConfig, material: Material, entries: Sequence[Entry]
) -> SimulateSample:
    return partial(simulate_alone, config, material)


def simulate_alone(config: SimulationConfig, material: Material, entry: Entry) -> Sample:
    """The sample as `namsa.simulate` makes it of its atoms; its density is that of the whole
    grid.
    """
    setup = make_sample_setup(config, material, entry)
    config_of_sample = setup.config
    microscope = config_of_sample.microscope
    slices = config_of_sample.simulation.slice_thickness_angstrom
    sample = namsa.simulate(
        build_supercell(config, material, entry).atoms,
        energy_ev=microscope.energy_ev,
        semiangle_mrad=microscope.semiangle_mrad,
        grid_shape=setup.grid.shape,
        positions_angstrom=setup.positions_angstrom,
        scan_shape=config_of_sample.scan.shape,
        slice_thickness_angstrom=None if slices == "auto" else slices,
        aberrations=microscope.aberrations,
        beam_tilt_mrad=microscope.beam_tilt_mrad,
        specimen_tilt_mrad=microscope.specimen_tilt_mrad,
        source_size_angstrom=microscope.source_size_angstrom,
        focal_spread_angstrom=focal_spread_angstrom(microscope),
        detector=config_of_sample.detector,
        backend="cpu",
        seed=entry.seed,
    )
    sample.provenance.update(
        id=entry.id, material=entry.material, config_hash=config.samples_hash()
    )
    return sample


def parts(config: SimulationConfig) -> dict[str, float]:
    """Shares of the processor time of a specimen."""
    entries = by_specimen(build_entries(config, MATERIALS))[0]
    material = next(m for m in MATERIALS if m.name == entries[0].material)
    began = time.process_time()
    simulate = prepare_samples(config, material, entries)
    common = time.process_time() - began
    for entry in entries:
        simulate(entry)
    total = time.process_time() - began
    return {"scattering": common / total, "samples": 1 - common / total}


def show(rounds: list[dict[str, float]], shares: dict[str, float]) -> None:
    table = frame.table("time of", "each, samples/h", "scattered, samples/h", "ratio")
    for name, unit in (("clock", "s"), ("processor", "processor_s")):
        per_hour = []
        for way in ("each", "scattered"):
            per_hour.append(statistics.median(3600 / row[f"{way}_{unit}"] for row in rounds))
        ratio = frame.median_ratio(rounds, f"each_{unit}", f"scattered_{unit}")
        table.add_row(name, f"{per_hour[0]:.0f}", f"{per_hour[1]:.0f}", f"{ratio:.1f}")
    frame.show(table)
    print("parts: " + ", ".join(f"{name} {share:.0%}" for name, share in shares.items()))


if __name__ == "__main__":
    main()
