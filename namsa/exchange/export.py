"""Writes a scan, and a density as first object, in the form that programs for ptychography start
from.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Literal

import numpy as np

from namsa.base.errors import InputError
from namsa.base.folders import open_folder
from namsa.base.outputs import check_outputs
from namsa.base.pixels import PixelGrid
from namsa.base.provenance_values import value
from namsa.exchange import phaser, ptyrad, py4dstem, quantem
from namsa.exchange.first_object import PhaseImage, conversion, phase_image, read_density
from namsa.exchange.patterns import copy_patterns
from namsa.exchange.preparation import (
    OnNote,
    note_assumptions,
    with_one_step,
    with_square_patterns,
)
from namsa.exchange.task import SIMULATED_ELECTRONS, PtychographyTask, warn_beyond_limit
from namsa.io.calibration import CalibrationOverrides, FourDData
from namsa.io.reading import open_patterns
from namsa.io.unfailing_file import create_hdf5
from namsa.physics.optics import probe_limit
from namsa.samples import sample_file

Program = Literal["ptyrad", "phaser", "py4dstem", "quantem"]
# Each has COMMAND, which starts the program in the folder, FILES, `write(task, folder, phase)`,
# which writes them, and KEY_FILE, that one of them which names the others.
WRITERS: dict[Program, ModuleType] = {
    "ptyrad": ptyrad,
    "phaser": phaser,
    "py4dstem": py4dstem,
    "quantem": quantem,
}
PATTERNS = "patterns.h5"


def export_ptychography(
    data: Path | str,
    program: Program,
    folder: Path | str,
    *,
    overrides: CalibrationOverrides | None = None,
    layout: Mapping[str, object] | None = None,
    defocus_angstrom: float | None = None,
    thickness_angstrom: float | None = None,
    slices: int = 1,
    iterations: int = 50,
    density: Path | str | None = None,
    formula: str | None = None,
    inputs: Sequence[Path] = (),
    on_note: OnNote = lambda line: None,
) -> list[str]:
    """Writes a scan for a program, with a parameter file that is ready to run.

    Args:
        data: A file that `namsa.read` opens. Of a simulated one, aberrations and thickness are
            known.
        program: "ptyrad", "phaser", "py4dstem" or "quantem".
        folder: Where to write; created if it is missing. Its files of the same names are replaced
            when all are written.
        overrides: What the caller knows better than the file.
        layout: How the patterns lie in a file that does not say it, as arguments of `namsa.read`.
        defocus_angstrom: Underfocus at the entrance face, Å, in place of all aberrations of the
            file.
        thickness_angstrom: Thickness of the specimen, Å.
        slices: Slices of the object.
        iterations: Iterations that the parameter file asks for.
        density: A file of `reconstruct`, or a simulated one, whose density becomes the first
            object.
        formula: The specimen's formula, as SrTiO3, which the density's conversion needs.
        inputs: Other files that were read, which must not be replaced.
        on_note: Called with a line about each thing that was assumed or changed.

    Returns:
        The command to run in the folder, and the names of the files.

    Raises:
        InputError: If the data cannot be read, lack a number, or do not suit the program, if a file
            that is read would be replaced, or another process writes to the folder.
        WorkError: If a file cannot be written.

    Warns:
        SimulationWarning: If patterns have pixels beyond the band limit of their simulation.

    Example:
        >>> sample.save("scan.h5")
        >>> command, *files = namsa.export_ptychography("scan.h5", "ptyrad", "for_ptyrad")
    """
    data = Path(data)
    folder = Path(folder)
    if program not in WRITERS:
        raise InputError(f"--to {program} is not known: choose {', '.join(WRITERS)}")
    if density is not None and formula is None:
        raise InputError("a density becomes a phase by its elements: give --formula, as SrTiO3")
    _check_count("slices", slices)
    _check_count("iterations", iterations)
    writer = WRITERS[program]
    inputs = [data, *inputs]
    if density is not None:
        inputs.append(Path(density))
    check_outputs(folder, [PATTERNS, *writer.FILES], inputs)
    _refuse_other_exports(folder, program)
    with open_patterns(data, overrides, **(layout or {})) as measured:
        scan = _suitable_for(program, measured, on_note)
        aberrations, known_thickness = _specimen_and_lens(data)
        if defocus_angstrom is not None:
            aberrations = {"C10": -defocus_angstrom}
        task = PtychographyTask(
            scan=scan,
            name=re.sub(r"[^\w.-]+", "_", data.stem) or "scan",
            aberrations=aberrations,
            thickness_angstrom=thickness_angstrom or known_thickness,
            slices=slices,
            iterations=iterations,
            electrons=SIMULATED_ELECTRONS if scan.normalised else 1.0,
        )
        warn_beyond_limit(scan)
        phase = None
        if density is not None and formula is not None:
            phase = _first_phase(task, Path(density), formula)
        with open_folder(folder, key_file=writer.KEY_FILE, obsolete=writer.FILES) as new:
            _refuse_other_exports(folder, program)  # one that was just completed by another command
            _write_patterns(scan, new / PATTERNS)
            writer.write(task, new, phase)
            files = sorted(file.name for file in new.iterdir())
    return [writer.COMMAND, *files]


def _check_count(name: str, count: int) -> None:
    if count < 1:
        raise InputError(f"{name} is {count}: give 1 or more")


def _suitable_for(program: Program, scan: FourDData, on_note: OnNote) -> FourDData:
    """Returns a scan as a program takes it; notes what was assumed or changed."""
    for line in scan.notes:
        on_note(line)
    note_assumptions(scan, on_note)
    if program == "py4dstem":
        return with_one_step(scan, "py4DSTEM", on_note)
    if program == "ptyrad":
        return with_square_patterns(scan, "PtyRAD", on_note)
    return scan


def _specimen_and_lens(path: Path) -> tuple[dict[str, float], float | None]:
    """Returns aberrations and thickness of a simulated scan; none for other files."""
    provenance = _simulated(path)
    if not provenance:
        return {}, None
    aberrations = dict(value(provenance, "aberrations", {}))
    return aberrations, value(provenance, "thickness_angstrom")


def _refuse_other_exports(folder: Path, program: Program) -> None:
    """Raises InputError if a folder has an export for another program, which shares file names."""
    for other, writer in WRITERS.items():
        is_replaced = writer.KEY_FILE in WRITERS[program].FILES
        if not is_replaced and (folder / writer.KEY_FILE).exists():
            raise InputError(
                f"--out {folder} holds an export for {other}, whose {PATTERNS} would be replaced: "
                "name another folder"
            )


def _simulated(path: Path) -> dict[str, object] | None:
    """Returns the provenance of the one sample in a file of namsa; `None` for other files."""
    try:
        with sample_file.open_samples(path) as samples:
            if len(samples) == 1:
                return next(iter(samples.values())).provenance()
            return None
    except InputError:
        return None


def _first_phase(task: PtychographyTask, path: Path, formula: str) -> PhaseImage:
    """Returns the phase of the density in a file, in the scan's frame from its first position."""
    density, pixels = read_density(path)
    known = _simulated(path) or {}
    of_probe = probe_limit(task.scan.energy_ev, task.scan.semiangle_mrad)
    limit = float(value(known, "density_max_q_per_angstrom", of_probe))
    origin = np.subtract(pixels.origin, task.scan.scan_origin_angstrom).tolist()
    return phase_image(
        density, PixelGrid(pixels.step, origin), conversion(formula, limit), task.scan.energy_ev
    )


def _write_patterns(scan: FourDData, path: Path) -> None:
    """Copies the patterns to the dataset `patterns` (sy, sx, dy, dx)."""
    with create_hdf5(path) as (file, target):
        patterns = file.create_dataset("patterns", scan.shape, scan.data.dtype)
        copy_patterns(scan, patterns, target.check)
