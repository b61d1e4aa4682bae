"""How far samples of configurations are from three times the resolution.

    scripts/uv run python scripts/bench/convergence.py CONFIG... [--samples 2]
        [--crystals Pt-225-cF4 ZnO.cif] [--json]

It prints the errors of `namsa.check_convergence` of `--samples` samples of each configuration, from
the lightest elements to the heaviest. With `--crystals` it is the first sample of each of these
built-in crystals or CIF files. `--set key=value` overrides a value of all configurations. `--time`
also simulates all samples of the specimen that each is of, and prints the processor time per
sample, and the samples per hour of one core.

"ratio" is the largest error, divided by the accuracy.
"""

import argparse
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import frame

from namsa.config.simulation import SimulationConfig, load_config
from namsa.crystals.builtin import builtin_materials
from namsa.crystals.material import Material
from namsa.crystals.select import select_materials
from namsa.crystals.structure_files import read_crystal
from namsa.dataset.accuracy import check_entry, samples_to_check
from namsa.dataset.entries import build_entries
from namsa.dataset.entry import Entry, feasible_entries, material_of
from namsa.dataset.simulate_entry import prepare_samples


def main() -> None:
    parser = frame.parser(__doc__)
    parser.add_argument(
        "configs", nargs="+", type=Path, help="configurations whose samples are compared"
    )
    parser.add_argument(
        "--crystals",
        nargs="+",
        help="built-in crystals or CIF files, in place of the configurations'",
    )
    parser.add_argument("--samples", type=int, default=2, help="of each configuration")
    parser.add_argument("--time", action="store_true", help="the processor time of samples, too")
    frame.add_overrides(parser)
    options = parser.parse_args()
    compare_samples(options)


def compare_samples(options: argparse.Namespace) -> None:
    """Prints the error of samples of configurations, or of crystals made as these say."""
    rows: list[dict[str, Any]] = []
    for path in options.configs:
        config = load_config(path, options.overrides)
        for material, entry, specimen_entries in samples_of(
            config, options.crystals, options.samples
        ):
            start = time.perf_counter()
            found = check_entry(config, material, entry)
            row = {
                "configuration": path.name,
                "sample": entry.id,
                "seconds": time.perf_counter() - start,
            }
            rows.append(row | found.as_dict())
            if options.time:
                rows[-1]["processor_s"] = processor_seconds(config, material, specimen_entries)
            timed = f" {rows[-1]['processor_s']:.2f} s |" if options.time else ""
            ring = found.worst_ring
            print(
                f"| {path.stem} | {entry.id} | {found.pixel_angstrom:.4f} | {found.slices} | "
                f"{found.error:.2%} | {ring.error:+.1%}, "
                f"{ring.inner_mrad:.0f}–{ring.outer_mrad:.0f} mrad | {found.lost:.2%} "
                f"({found.lost_in_reference:.2%}) |{timed}",
                flush=True,
            )
    if options.time:
        mean = sum(frame.column(rows, "processor_s")) / len(rows)
        print(f"{3600 / mean:.0f} samples per hour of one core, in the mean of all specimens")
    frame.finish(
        options, {"ratio": max(row["error"] / row["accuracy"] for row in rows), "samples": rows}
    )


def processor_seconds(config: SimulationConfig, material: Material, entries: list[Entry]) -> float:
    """Returns the processor time per sample of one specimen, s."""
    start = time.process_time()
    simulate = prepare_samples(config, material, entries)
    for entry in entries:
        simulate(entry)
    return (time.process_time() - start) / len(entries)


def samples_of(
    config: SimulationConfig, crystals: list[str] | None, count: int
) -> list[tuple[Material, Entry, list[Entry]]]:
    """Returns samples with their crystals, and with all samples of their specimens."""
    if crystals:
        known = by_name(builtin_materials())
        given = []
        for name in crystals:
            given.append(known.get(name) or read_crystal(Path(name)))
        perfect = config.specimen.model_copy(update={"kinds": None})
        perfect_config = config.model_copy(update={"specimen": perfect})
        samples = []
        for material in given:
            entries = build_entries(perfect_config, [material])
            entry = next(entry for entry in entries if not entry.skipped)
            samples.append((material, entry, same_specimen(entry, entries)))
        return samples
    materials = by_name(select_materials(config.materials, run_generator=True))
    entries = build_entries(config, list(materials.values()))
    entries = feasible_entries(entries)
    samples = []
    for entry in samples_to_check(entries, materials, count):
        samples.append((material_of(entry, materials), entry, same_specimen(entry, entries)))
    return samples


def by_name(materials: Iterable[Material]) -> dict[str, Material]:
    return {material.name: material for material in materials}


def same_specimen(entry: Entry, entries: Sequence[Entry]) -> list[Entry]:
    named = []
    for other in entries:
        if entry.specimen and other.specimen == entry.specimen and not other.skipped:
            named.append(other)
    return named or [entry]


if __name__ == "__main__":
    main()
