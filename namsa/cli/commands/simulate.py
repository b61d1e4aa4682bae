"""`namsa simulate`: one specimen to one HDF5 stack."""

import argparse
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

from namsa.base.errors import InputError, SimulationWarning
from namsa.base.memory import available_memory_bytes
from namsa.base.outputs import check_output
from namsa.base.text import plural
from namsa.cli.commands.output import (
    HDF5_SUFFIXES,
    print_estimate,
    print_json,
    print_line,
    print_table,
    stage_bars,
)
from namsa.config.simulation import SimulationConfig, load_config
from namsa.crystals.material import Material
from namsa.crystals.select import select_materials
from namsa.crystals.structure_files import read_crystal
from namsa.dataset import disk_space, estimate, one_specimen
from namsa.dataset.accuracy import check_entry
from namsa.dataset.entry import Entry
from namsa.dataset.estimate import check_machine
from namsa.dataset.simulate_entry import simulate_entry
from namsa.dataset.workload import count_workload, hdf5_bytes
from namsa.figures.sample_figure import show
from namsa.io.charge_density import ChargeDensity, read_charge_density
from namsa.io.stack_file import BATCH_BYTES, StackFile
from namsa.samples import sample_file
from namsa.sampling.convergence import Convergence

_MORE_ROOM = (
    "make room, name another folder with --out, or use fewer positions or a smaller detector"
)


def simulate(options: argparse.Namespace) -> None:
    """Simulates the configuration's first material (or --crystal), zone axis and thickness."""
    if options.json and not (options.dry_run or options.check):
        raise InputError(
            "--json goes with --dry-run or --check; `namsa info FILE.h5 --json` says what a stack "
            "holds"
        )
    specimen = _specimen(options)
    entry = specimen.entry
    if entry.skipped:
        raise InputError(f"{entry.id}: {entry.skipped}")
    if options.dry_run:
        batch_bytes = _batch_bytes(specimen.config)
        expected = estimate.estimate_stack(
            specimen.config, specimen.material, entry, batch_bytes, specimen.density
        )
        print_estimate(expected, options.json)
    elif options.check:
        convergence = check_entry(specimen.config, specimen.material, entry, specimen.density)
        _print_check(convergence, options.json)
    else:
        _simulate(specimen, options)


class _Specimen(NamedTuple):
    """A simulation to run."""

    config: SimulationConfig  # with one zone axis and one thickness
    material: Material
    entry: Entry
    density: ChargeDensity | None  # that of the crystal, if it is given


def _specimen(options: argparse.Namespace) -> _Specimen:
    """Returns the specimen that the options choose. Raises InputError."""
    if bool(options.vacuum) + bool(options.crystal) + bool(options.charge_density) > 1:
        raise InputError(
            "--vacuum, --crystal and --charge-density are mutually exclusive: give one of them"
        )
    config = load_config(options.config, options.overrides)
    density = None
    if options.charge_density:
        density = read_charge_density(*options.charge_density)
        config, material = one_specimen.of_density(config, density, options.charge_density[0])
    elif options.vacuum:
        config, material = one_specimen.vacuum(config)
    elif options.crystal:
        material = read_crystal(options.crystal, as_is=config.materials.as_is)
    else:
        material = select_materials(config.materials, run_generator=True)[0]
    config, entry = one_specimen.first_entry(config, material)
    return _Specimen(config, material, entry, density)


def _simulate(specimen: _Specimen, options: argparse.Namespace) -> None:
    """Simulates a specimen to a file and its preview, after all checks."""
    config = specimen.config
    entry = specimen.entry
    path = _output_path(options.out, entry.id)
    preview = path.with_suffix(".png")
    inputs = [options.config, *(options.charge_density or [])]
    if options.crystal:
        inputs.append(options.crystal)
    check_output(path, inputs)
    check_output(preview, inputs, f"--out {path}: the preview")
    workload = count_workload(config, specimen.material, entry)
    disk_space.check(path.parent, hdf5_bytes(workload), remedy=_MORE_ROOM)
    print_line(f"{entry.id}: {workload.specimen}", sys.stderr)
    if not options.force:
        check_machine(workload, 1, available_memory_bytes(), _batch_bytes(config))
    stack = StackFile(path, entry.id, compression=options.compression)
    try:
        with stack, stage_bars() as on_progress:
            sample = simulate_entry(
                config,
                specimen.material,
                entry,
                on_progress,
                stack,
                specimen.density,
                judged=True,
            )
            stack.complete(sample)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_interruption(stack)) from None
    if stack.continued:
        kept = plural(stack.continued, "pattern")
        print_line(f"{path}: {kept} of an interrupted run were kept", sys.stderr)
    if 2 * hdf5_bytes(workload) > available_memory_bytes():
        print_line(f"{path}  (larger than memory: no preview)")
        return
    show(sample_file.read_sample(path), preview)
    print_line(f"{path}  {preview}")


def _interruption(stack: StackFile) -> str:
    """Returns the line for an interrupted simulation: what is kept."""
    if not stack.unfinished.exists():
        return "interrupted before the first patterns were written: the same command begins anew"
    return (
        f"interrupted; what was computed of {plural(stack.written, 'pattern')} is kept in "
        f"{stack.unfinished}, and the same command continues from there"
    )


def _print_check(convergence: Convergence, as_json: bool) -> None:
    """Prints the error of a simulation by ring, and warns if it exceeds the accuracy."""
    if as_json:
        print_json(convergence.as_dict())
    else:
        print_table(_error_rows(convergence), ("", "relative error"))
    if convergence.problem:
        warnings.warn(convergence.problem, SimulationWarning, stacklevel=2)


def _error_rows(convergence: Convergence) -> list[tuple[str, str]]:
    """Returns what was compared, and the errors, as the rows of a table."""
    reference = f"{convergence.reference_pixel_angstrom:.4f} Å, {convergence.reference_slices}"
    lost = f"{convergence.lost:.2%} of the beam ({convergence.lost_in_reference:.2%} of the other)"
    rows = [
        ("pixel, slices", f"{convergence.pixel_angstrom:.4f} Å, {convergence.slices}"),
        ("compared with", reference),
        (f"patterns within {convergence.reach_mrad:.0f} mrad", f"{convergence.error:.3%}"),
    ]
    for ring in convergence.rings:
        limits = f"ring {ring.inner_mrad:.0f} to {ring.outer_mrad:.0f} mrad"
        rows.append((limits, f"{ring.error:+.2%} of {ring.fraction:.3g}"))
    rows.append(("beyond the band limit", lost))
    if convergence.statistical_error:
        configurations = plural(convergence.configurations, "configuration")
        rows.append((f"statistical, of {configurations}", f"{convergence.statistical_error:.2%}"))
    return rows


def _batch_bytes(config: SimulationConfig) -> int | None:
    """Returns the bytes of patterns in memory. `None` if it may be all: a source is averaged over
    the whole scan.
    """
    return None if config.microscope.source_size_angstrom else BATCH_BYTES


def _output_path(requested: Path | None, entry_id: str) -> Path:
    """Returns the HDF5 file to write, after checks that need no simulation."""
    path = requested or Path(f"{entry_id}.h5")
    if path.suffix not in HDF5_SUFFIXES:
        raise InputError(
            f"--out {path}: end it in .h5, .hdf5 or .emd; the preview becomes "
            f"{path.with_suffix('.png')}"
        )
    if not requested and path.exists():
        raise InputError(
            f"{path} exists already, perhaps of another microscope: name another file with --out"
        )
    return path
