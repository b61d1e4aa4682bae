"""py4DSTEM 0.14: patterns.h5, first_phase.npz and reconstruct.py, a script that can be changed.

py4DSTEM's angle from the detector's frame to the scan's is namsa's, as is its exchange of axes. Its
azimuths begin at the rows of the patterns as recorded (`ComplexProbe.polar_coordinates`), so that
those of aberrations are turned.
"""

import json
from pathlib import Path

import numpy as np

from namsa.exchange.first_object import PhaseImage
from namsa.exchange.task import PtychographyTask

COMMAND = "python reconstruct.py"
FILES = ("parameters.json", "reconstruct.py", "first_phase.npz")
KEY_FILE = "parameters.json"
SCRIPT = Path(__file__).with_name("py4dstem_script.txt")


def write(
    task: PtychographyTask, folder: Path, phase: PhaseImage | None, script: Path = SCRIPT
) -> None:
    """Writes what py4DSTEM starts from, beside patterns.h5.

    Args:
        phase: The first object. `None` leaves an empty one.
        script: Becomes reconstruct.py.
    """
    parameters = {
        "energy_ev": task.scan.energy_ev,
        "semiangle_mrad": task.scan.semiangle_mrad,
        "scan_step_angstrom": list(task.scan.scan_step_angstrom),
        "pixel_mrad": task.pixel_mrad,
        "centre_pixels": list(
            task.scan.centre_pixels or [(n - 1) / 2 for n in task.scan.shape[2:]]
        ),
        "rotation_deg": task.scan.rotation_deg,
        "transpose": task.scan.flip,
        "aberrations": aberrations(task),
        "slices": task.slices,
        "slice_thickness_angstrom": task.slice_thickness_angstrom,
        "iterations": task.iterations,
        "step_size": 0.5,
        "batch": 64,
        "first_phase": phase is not None,  # a file of an earlier export may be there
    }
    (folder / "parameters.json").write_text(
        json.dumps(parameters, indent=1) + "\n", encoding="utf-8"
    )
    (folder / "reconstruct.py").write_text(script.read_text(encoding="utf-8"), encoding="utf-8")
    if phase is not None:
        np.savez(
            folder / "first_phase.npz",
            phase=phase.phase.astype(np.float32),
            step=np.asarray(phase.pixels.step),
            origin=np.asarray(phase.pixels.origin),
        )


def aberrations(task: PtychographyTask) -> dict[str, float]:
    """Returns Krivanek coefficients, Å and rad, with azimuths from the rows of the patterns as
    recorded.
    """

    def turned(azimuth: float) -> float:
        return azimuth if task.scan.flip else np.pi / 2 - azimuth

    return {
        name: turned(value) if name.startswith("phi") else value
        for name, value in task.detector_aberrations.items()
    }
