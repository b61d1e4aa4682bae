"""`namsa simulate`: one specimen to one HDF5 stack."""

import argparse
import math
import sys
import warnings
from pathlib import Path

import ase

from namsa import sample_file
from namsa.cli.commands.output import HDF5_SUFFIXES, print_estimate, print_json, print_line, print_table, stage_bars
from namsa.config.simulation import SimulationConfig, load_config
from namsa.convergence import Convergence
from namsa.crystals.cif import to_material
from namsa.crystals.material import Material
from namsa.crystals.select import select_materials
from namsa.crystals.structure_files import read_crystal
from namsa.dataset import disk_space, estimate
from namsa.dataset.accuracy import check_entry
from namsa.dataset.entries import build_entries
from namsa.dataset.entry import Entry
from namsa.dataset.estimate import check_machine
from namsa.dataset.simulate_entry import simulate_entry
from namsa.dataset.workload import count_workload, hdf5_bytes
from namsa.errors import InputError, SimulationWarning
from namsa.figures.sample_figure import show
from namsa.files import check_output
from namsa.io.charge_density import ChargeDensity, read_charge_density
from namsa.io.stack_file import BATCH_BYTES, StackFile
from namsa.memory import available_memory_bytes
from namsa.text import plural

_VACUUM_ANGSTROM = 2.0  # thickness, which changes no pattern
_ROUNDING = 1e-6  # relative
_MORE_ROOM = "make room, name another folder with --out, or use fewer positions or a smaller detector"


def simulate(options: argparse.Namespace) -> None:
    """Simulates the configuration's first material (or --crystal), zone axis and thickness."""
    if options.json and not (options.dry_run or options.check):
        raise InputError("--json goes with --dry-run or --check; `namsa info FILE.h5 --json` says what a stack holds")
    config = load_config(options.config, options.overrides)
    if bool(options.vacuum) + bool(options.crystal) + bool(options.charge_density) > 1:
        raise InputError("--vacuum, --crystal and --charge-density each say what the specimen is: give one of them")
    density = read_charge_density(*options.charge_density) if options.charge_density else None
    if density:
        config, material = _of_density(config, density, options.charge_density[0])
    elif options.vacuum:
        config, material = _vacuum(config)
    elif options.crystal:
        material = read_crystal(options.crystal, as_is=config.materials.as_is)
    else:
        material = select_materials(config.materials, run_generator=True)[0]
    config, entry = _first_entry(config, material)
    if entry.skipped:
        raise InputError(f"{entry.id}: {entry.skipped}")
    if options.dry_run:
        print_estimate(estimate.estimate_stack(config, material, entry, _batch_bytes(config), density), options.json)
        return
    if options.check:
        _print_check(check_entry(config, material, entry, density), options.json)
        return
    path = _output_path(options.out, entry.id)
    inputs = [options.config, *([options.crystal] if options.crystal else []), *(options.charge_density or [])]
    check_output(path, inputs)
    check_output(path.with_suffix(".png"), inputs, f"--out {path}: the preview")
    workload = count_workload(config, material, entry)
    disk_space.check(path.parent, hdf5_bytes(workload), remedy=_MORE_ROOM)
    print_line(f"{entry.id}: {workload.specimen}", sys.stderr)
    if not options.force:
        check_machine(workload, 1, available_memory_bytes(), _batch_bytes(config))
    with StackFile(path, entry.id, compression=options.compression) as stack, stage_bars() as on_progress:
        stack.complete(simulate_entry(config, material, entry, on_progress, stack, density, judged=True))
    if stack.continued:
        print_line(f"{path}: {plural(stack.continued, 'pattern')} of an interrupted run were kept", sys.stderr)
    if 2 * hdf5_bytes(workload) > available_memory_bytes():
        print_line(f"{path}  (larger than memory: no preview)")
        return
    preview = path.with_suffix(".png")
    show(sample_file.read_sample(path), preview)
    print_line(f"{path}  {preview}")


def _of_density(config: SimulationConfig, density: ChargeDensity, path: Path) -> tuple[SimulationConfig, Material]:
    """Returns the configuration of whole cells of a density, and its crystal."""
    a, b, _ = density.atoms.cell.lengths().tolist()
    y, x = (
        side * math.ceil(least / side - _ROUNDING) * (1 - _ROUNDING)
        for least, side in zip(config.specimen.lateral_angstrom, (b, a), strict=True)
    )
    specimen = config.specimen.model_copy(update={"lateral_angstrom": (y, x)})  # a stays along x, b along y
    material = to_material(density.atoms, [], "P1", path, "file", as_is=True)
    return config.model_copy(update={"specimen": specimen}), material


def _vacuum(config: SimulationConfig) -> tuple[SimulationConfig, Material]:
    """Returns the configuration of an empty cell, and this."""
    y, x = config.specimen.lateral_angstrom
    specimen = config.specimen.model_copy(
        update={"zone_axes": ((0, 0, 1),), "simplest_zone_axes": None, "kinds": None, "frozen_phonons": None}
    )
    empty = ase.Atoms(cell=(x, y, min(config.specimen.thickness_angstrom[0], _VACUUM_ANGSTROM)), pbc=True)
    specimen = specimen.model_copy(update={"thickness_angstrom": (float(empty.cell[2, 2]),)})
    return config.model_copy(update={"specimen": specimen}), Material("vacuum", "vacuum", "P1", empty, "--vacuum")


def _print_check(found: Convergence, as_json: bool) -> None:
    """Prints the error of a simulation by ring, and warns if it exceeds the accuracy."""
    if as_json:
        print_json(found.as_dict())
    else:
        random = (f"statistical, of {plural(found.configurations, 'configuration')}", f"{found.statistical_error:.2%}")
        print_table(
            [
                ("pixel, slices", f"{found.pixel_angstrom:.4f} Å, {found.slices}"),
                ("compared with", f"{found.reference_pixel_angstrom:.4f} Å, {found.reference_slices}"),
                (f"patterns within {found.reach_mrad:.0f} mrad", f"{found.error:.3%}"),
                *(
                    (
                        f"ring {ring.inner_mrad:.0f} to {ring.outer_mrad:.0f} mrad",
                        f"{ring.error:+.2%} of {ring.fraction:.3g}",
                    )
                    for ring in found.rings
                ),
                ("beyond the band limit", f"{found.lost:.2%} of the beam ({found.lost_in_reference:.2%} of the other)"),
                *([random] if found.statistical_error else []),
            ],
            ("", "relative error"),
        )
    if found.fault:
        warnings.warn(found.fault, SimulationWarning, stacklevel=2)


def _batch_bytes(config: SimulationConfig) -> int | None:
    """Returns the bytes of patterns in memory. `None` if it may be all: a source is averaged over the whole scan."""
    return None if config.microscope.source_size_angstrom else BATCH_BYTES


def _first_entry(config: SimulationConfig, material: Material) -> tuple[SimulationConfig, Entry]:
    """Returns the configuration with its first zone axis and thickness only, and its one manifest entry."""
    specimen = config.specimen
    first = specimen.model_copy(
        update={
            "zone_axes": specimen.zone_axes[:1],
            "simplest_zone_axes": specimen.simplest_zone_axes and 1,
            "thickness_angstrom": specimen.thickness_angstrom[:1],
        }
    )
    config = config.model_copy(update={"specimen": first})
    return config, build_entries(config, (material,))[0]


def _output_path(requested: Path | None, entry_id: str) -> Path:
    """Returns the HDF5 file to write, after checks that need no simulation."""
    path = requested or Path(f"{entry_id}.h5")
    if path.suffix not in HDF5_SUFFIXES:
        raise InputError(f"--out {path}: end it in .h5, .hdf5 or .emd; the preview becomes {path.with_suffix('.png')}")
    if not requested and path.exists():
        raise InputError(f"{path} exists already, perhaps of another microscope: name another file with --out")
    return path
