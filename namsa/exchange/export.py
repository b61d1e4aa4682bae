"""Writes a scan, and a density as first object, in the form that programs for ptychography start from."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import h5py
import numpy as np

from namsa import sample_file
from namsa.errors import InputError
from namsa.exchange import phaser, ptyrad, py4dstem, quantem
from namsa.exchange.first_object import PhaseImage, conversion, phase_image, read_density
from namsa.exchange.task import SIMULATED_ELECTRONS, PtychographyTask, warn_beyond_limit
from namsa.files import check_outputs, make_folder, open_folder
from namsa.io.calibration import CalibrationOverrides, FourDData
from namsa.io.reading import open_patterns
from namsa.locks import exclusive
from namsa.physics.optics import probe_limit
from namsa.pixels import PixelGrid
from namsa.provenance_values import value

Program = Literal["ptyrad", "phaser", "py4dstem", "quantem"]
# Each has COMMAND, which starts the program in the folder, FILES, and `write(task, folder, phase)`, which writes them.
WRITERS: dict[Program, ModuleType] = {"ptyrad": ptyrad, "phaser": phaser, "py4dstem": py4dstem, "quantem": quantem}
PATTERNS = "patterns.h5"
READ_BYTES = 2**26  # of patterns at once


def export_ptychography(
    data: Path | str,
    program: Program,
    folder: Path | str,
    *,
    overrides: CalibrationOverrides | None = None,
    layout: Mapping[str, Any] | None = None,
    defocus_angstrom: float | None = None,
    thickness_angstrom: float | None = None,
    slices: int = 1,
    iterations: int = 50,
    density: Path | str | None = None,
    formula: str | None = None,
    inputs: Sequence[Path] = (),
) -> list[str]:
    """Writes a scan for a program, with a parameter file that is ready to run.

    Args:
        data: A file that `namsa.read` opens. Of a simulated one, aberrations and thickness are known.
        program: "ptyrad", "phaser", "py4dstem" or "quantem".
        folder: Where to write; created if it is missing. Its files of the same names are replaced when all are written.
        overrides: What the caller knows better than the file.
        layout: How the patterns lie in a file that does not say it, as arguments of `namsa.read`.
        defocus_angstrom: Underfocus at the entrance face, Å, in place of all aberrations of the file.
        thickness_angstrom: Thickness of the specimen, Å.
        slices: Slices of the object.
        iterations: Iterations that the parameter file asks for.
        density: A file of `reconstruct`, or a simulated one, whose density becomes the first object.
        formula: The specimen's formula, as SrTiO3, which the density's conversion needs.
        inputs: Other files that were read, which must not be replaced.

    Returns:
        The command to run in the folder, and the names of the files.

    Raises:
        InputError: If the data cannot be read, lack a number, or do not suit the program, if a file that is read would
            be replaced, or another process writes to the folder.
        WorkError: If a file cannot be written.

    Warns:
        SimulationWarning: If patterns have pixels beyond the band limit of their simulation.
    """
    data, folder = Path(data), Path(folder)
    if program not in WRITERS:
        raise InputError(f"--to {program} is not known: choose {', '.join(WRITERS)}")
    if density is not None and formula is None:
        raise InputError("a density becomes a phase by its elements: give --formula, as SrTiO3")
    for name, number in (("slices", slices), ("iterations", iterations)):
        if number < 1:
            raise InputError(f"{name} is {number}: give 1 or more")
    writer = WRITERS[program]
    check_outputs(folder, [PATTERNS, *writer.FILES], [data, *([Path(density)] if density else []), *inputs])
    with open_patterns(data, overrides, **(layout or {})) as scan:
        known = _simulated(data)
        aberrations = dict(value(known, "aberrations", {})) if known else {}
        if defocus_angstrom is not None:
            aberrations = {"C10": -defocus_angstrom}
        thickness = thickness_angstrom or (value(known, "thickness_angstrom") if known else None)
        electrons = SIMULATED_ELECTRONS if scan.normalised else 1.0
        name = re.sub(r"[^\w.-]+", "_", data.stem) or "scan"
        task = PtychographyTask(scan, name, aberrations, thickness, slices, iterations, electrons)
        warn_beyond_limit(scan)
        phase = None if density is None or formula is None else _first_phase(task, Path(density), formula)
        make_folder(folder)
        with (
            exclusive(folder / ".lock", folder, "wait until it ends, or name another folder"),
            open_folder(folder) as new,
        ):
            _write_patterns(scan, new / PATTERNS)
            writer.write(task, new, phase)
            files = sorted(file.name for file in new.iterdir())
    return [writer.COMMAND, *files]


def _simulated(path: Path) -> dict[str, object] | None:
    """Returns the provenance of the one sample in a file of namsa; `None` for other files."""
    try:
        with sample_file.open_samples(path) as samples:
            return next(iter(samples.values())).provenance() if len(samples) == 1 else None
    except InputError:
        return None


def _first_phase(task: PtychographyTask, path: Path, formula: str) -> PhaseImage:
    """Returns the phase of the density in a file, in the scan's frame from its first position."""
    density, pixels = read_density(path)
    known = _simulated(path) or {}
    of_probe = probe_limit(task.scan.energy_ev, task.scan.semiangle_mrad)
    limit = float(value(known, "density_max_q_per_angstrom", of_probe))
    first = task.scan.scan_origin_angstrom
    origin = [own - other for own, other in zip(pixels.origin, first, strict=True)]
    return phase_image(density, PixelGrid(pixels.step, origin), conversion(formula, limit), task.scan.energy_ev)


def _write_patterns(scan: FourDData, path: Path) -> None:
    """Copies the patterns, unchanged, to the dataset `patterns` (sy, sx, dy, dx), a few rows at a time."""
    rows = max(1, READ_BYTES // (int(np.prod(scan.shape[1:])) * scan.data.dtype.itemsize))
    with h5py.File(path, "w") as file:
        patterns = file.create_dataset("patterns", scan.shape, scan.data.dtype)
        for start in range(0, scan.shape[0], rows):
            part = slice(start, min(start + rows, scan.shape[0]))
            patterns[part] = scan.read(part, slice(0, scan.shape[1]))
