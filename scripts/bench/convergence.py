"""Convergence of namsa's patterns with slice thickness and pixel size, by energy and specimen thickness.

    scripts/uv run python scripts/bench/convergence.py [--json]
    scripts/uv run python scripts/bench/convergence.py CONFIG... [--samples 2] [--crystals Pt-225-cF4 ZnO.cif] [--json]

With configurations, it prints how far their samples are from twice the resolution (`namsa.check_convergence`): of
`--samples` samples of each, from the lightest elements to the heaviest. With `--crystals` it is the first sample of
each of these built-in crystals or CIF files. `--set key=value` overrides a value of all configurations. `--time` also
simulates all samples of the specimen that each is of, and prints the processor time per sample, and the samples per
hour of one core.

Without, the specimen is GaAs [001]. Every atom is displaced by 0.08 Å rms along each axis, so that no two slices are
alike. There are four probes of 20 mrad, and the precision is float64. An error is the largest relative L2 difference
between a probe's pattern and that of the finest calculation. Atomic planes are 1.41 Å apart and fall anywhere in slices
of about 2 Å.

The atoms of a slice act at its front, on average half a slice too early. A probe that is focused half a slice deeper,
C10 = Δz/2, compensates for the average, and leaves each atom's own deviation. The finest slices are focused in this
way. The table shows the results with and without it.

"ratio" is the factor by which halving the slice thickness reduces the error, on average from 2 Å to 0.25 Å. It is 2 for
a first-order error.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ase
import numpy as np
import numpy.typing as npt
from ase.build import bulk
from rich.console import Console
from rich.table import Table

import namsa
from namsa.config.simulation import SimulationConfig, load_config
from namsa.crystals.builtin import builtin_materials
from namsa.crystals.material import Material
from namsa.crystals.select import select_materials
from namsa.crystals.structure_files import read_crystal
from namsa.dataset.accuracy import check_entry, samples_to_check
from namsa.dataset.entries import build_entries
from namsa.dataset.entry import Entry, material_of
from namsa.dataset.simulate_entry import prepare_samples
from namsa.physics.grid import Grid
from namsa.physics.optics import wavelength_angstrom

Patterns = npt.NDArray[np.float64]
LATTICE_ANGSTROM = 5.653
LATERAL = (3, 4)  # cells along y and x
SHAPE = (144, 192)
CELLS = 8  # along the beam
SLICES = (23, 46, 92, 184)  # 2 Å, and halved
FINEST = 368
SHAPES = ((72, 96), (84, 112), (108, 144), (144, 192), (180, 240))
FINEST_SHAPE = (252, 336)
ENERGIES_EV = (80e3, 200e3, 300e3)
DEPTHS = (4, 9, 18, 36)  # cells along the beam


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", type=Path, help="configurations whose samples are compared")
    parser.add_argument("--crystals", nargs="+", help="built-in crystals or CIF files, in place of the configurations'")
    parser.add_argument("--samples", type=int, default=2, help="of each configuration")
    parser.add_argument("--time", action="store_true", help="the processor time of samples, too")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args()
    if options.configs:
        compare_samples(options)
        return
    start = time.perf_counter()
    slices, pixels, energies = slice_thickness(), pixel_size(), energy_and_thickness()
    console = Console(width=110)
    for title, rows in (
        ("Slice thickness, 200 keV, 45 Å thick", slices),
        ("Pixel size, 200 keV, 45 Å thick, 2 Å slices", pixels),
        ("2 Å slices against 0.25 Å slices", energies),
    ):
        table = Table(*rows[0], title=title, title_justify="left", box=None)
        for row in rows:
            table.add_row(*(f"{value:.4g}" for value in row.values()))
        console.print(table, "")
    ratio = (slices[0]["error"] / slices[-1]["error"]) ** (1 / (len(slices) - 1))
    print(f"halving the slices divides their error by {ratio:.2f} on average; {time.perf_counter() - start:.0f} s")
    if options.json:
        print(json.dumps({"ratio": ratio, "slices": slices, "pixels": pixels, "energies": energies}))


def compare_samples(options: argparse.Namespace) -> None:
    """Prints the error of samples of configurations, or of crystals made as these say."""
    rows: list[dict[str, Any]] = []
    for path in options.configs:
        config = load_config(path, options.overrides)
        for material, entry, specimen_entries in samples_of(config, options.crystals, options.samples):
            start = time.perf_counter()
            found = check_entry(config, material, entry)
            row = {"configuration": path.name, "sample": entry.id, "seconds": time.perf_counter() - start}
            rows.append(row | found.as_dict())
            if options.time:
                rows[-1]["processor_s"] = processor_seconds(config, material, specimen_entries)
            timed = f" {rows[-1]['processor_s']:.2f} s |" if options.time else ""
            ring = found.worst_ring
            print(
                f"| {path.stem} | {entry.id} | {found.pixel_angstrom:.4f} | {found.slices} | {found.error:.2%} "
                f"| {ring.error:+.1%}, {ring.inner_mrad:.0f}–{ring.outer_mrad:.0f} mrad "
                f"| {found.lost:.2%} ({found.lost_in_reference:.2%}) |{timed}",
                flush=True,
            )
    if options.time:
        mean = sum(row["processor_s"] for row in rows) / len(rows)
        print(f"{3600 / mean:.0f} samples per hour of one core, in the mean of all specimens")
    if options.json:
        print(json.dumps({"ratio": max(row["error"] / row["accuracy"] for row in rows), "samples": rows}))


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
        known = {material.name: material for material in builtin_materials()}
        given = [known.get(name) or read_crystal(Path(name)) for name in crystals]
        perfect = config.specimen.model_copy(update={"kinds": None})
        perfect_config = config.model_copy(update={"specimen": perfect})
        listed = [(material, build_entries(perfect_config, [material])) for material in given]
        first = [
            (material, next(entry for entry in entries if not entry.skipped), entries) for material, entries in listed
        ]
        return [(material, entry, same_specimen(entry, entries)) for material, entry, entries in first]
    materials = {material.name: material for material in select_materials(config.materials, run_generator=True)}
    entries = [entry for entry in build_entries(config, list(materials.values())) if not entry.skipped]
    chosen = samples_to_check(entries, materials, count)
    return [(material_of(entry, materials), entry, same_specimen(entry, entries)) for entry in chosen]


def same_specimen(entry: Entry, entries: Sequence[Entry]) -> list[Entry]:
    named = [other for other in entries if entry.specimen and other.specimen == entry.specimen and not other.skipped]
    return named or [entry]


def slice_thickness() -> list[dict[str, float]]:
    atoms = specimen(CELLS)
    depth = atoms.cell.lengths()[2]
    finest = patterns(atoms, depth / FINEST, focus=depth / FINEST / 2)
    rows = []
    for count in SLICES:
        thickness = depth / count
        as_it_comes, focused = patterns(atoms, thickness), patterns(atoms, thickness, focus=thickness / 2)
        rows.append(
            {
                "slice, Å": thickness,
                "error": error(as_it_comes, finest),
                "error, C10 = Δz/2": error(focused, finest),
            }
        )
    return rows


def pixel_size() -> list[dict[str, float]]:
    """Against the finest grid's pattern, and against what of it the coarser grid's band limit lets through."""
    atoms = specimen(CELLS)
    thickness = atoms.cell.lengths()[2] / SLICES[0]
    finest = patterns(atoms, thickness, shape=FINEST_SHAPE)
    rows = []
    for shape in SHAPES:
        coarse = patterns(atoms, thickness, shape=shape)
        lx, ly, _ = (float(length) for length in atoms.cell.lengths())
        grid = Grid(shape, (ly, lx))
        passed = np.fft.fftshift(grid.antialias()) == 1
        rows.append(
            {
                "pixel, Å": max(grid.sampling_angstrom),
                "band limit, mrad": 1e3 * wavelength_angstrom(200e3) / (3 * max(grid.sampling_angstrom)),
                "error": error(padded(coarse, FINEST_SHAPE), finest),
                "error inside the band": error(coarse * passed, cropped(finest, shape) * passed),
                "transmitted": float(coarse.sum() / len(coarse)),
            }
        )
    return rows


def energy_and_thickness() -> list[dict[str, float]]:
    rows = []
    for cells in DEPTHS:
        atoms = specimen(cells)
        row = {"thickness, Å": float(atoms.cell.lengths()[2])}
        for energy in ENERGIES_EV:
            coarse, fine = (patterns(atoms, wanted, energy) for wanted in (2.0, 0.25))
            row[f"{energy / 1e3:.0f} keV"] = error(coarse, fine)
        rows.append(row)
    return rows


def specimen(cells: int) -> ase.Atoms:
    atoms = bulk("GaAs", "zincblende", a=LATTICE_ANGSTROM, cubic=True) * (*LATERAL[::-1], cells)
    atoms.positions += np.random.default_rng(0).normal(0, 0.08, atoms.positions.shape)
    atoms.wrap()
    return atoms


def patterns(
    atoms: ase.Atoms,
    slice_angstrom: float,
    energy_ev: float = 200e3,
    shape: tuple[int, int] = SHAPE,
    focus: float = 0.0,
) -> Patterns:
    """Of four probes in a cell amid the specimen."""
    inside = np.random.default_rng(1).uniform(0, 1, (4, 2))
    sample = namsa.simulate(
        atoms,
        energy_ev=energy_ev,
        semiangle_mrad=20.0,
        grid_shape=shape,
        positions_angstrom=LATTICE_ANGSTROM * (1 + inside),
        slice_thickness_angstrom=slice_angstrom,
        aberrations={"C10": focus},
        precision="float64",
        backend="cpu",
    )
    return sample.cbed


def error(found: Patterns, wanted: Patterns) -> float:
    """The worst pattern's relative L2 difference."""
    difference: Any = np.linalg.norm(found - wanted, axis=(1, 2)) / np.linalg.norm(wanted, axis=(1, 2))
    return float(difference.max())


def box(inner: tuple[int, ...], outer: tuple[int, ...]) -> tuple[slice, slice]:
    """Where an even grid's frequencies lie among a finer one's, zero in the centre of both."""
    y, x = ((large - small) // 2 for small, large in zip(inner, outer, strict=True))
    return slice(y, y + inner[0]), slice(x, x + inner[1])


def padded(found: Patterns, shape: tuple[int, int]) -> Patterns:
    full = np.zeros((len(found), *shape))
    full[(slice(None), *box(found.shape[1:], shape))] = found
    return full


def cropped(found: Patterns, shape: tuple[int, int]) -> Patterns:
    return found[(slice(None), *box(shape, found.shape[1:]))]


if __name__ == "__main__":
    main()
