"""quantem 0.1: patterns.h5, first_phase.npz and reconstruct.py, a script that can be changed.

quantem's angle from the detector's frame to the scan's is namsa's, as is its exchange of axes, but its object lies in
the detector's frame as recorded: `namsa.exchange.task` exchanges the axes before.
"""

from pathlib import Path

from namsa.exchange import py4dstem
from namsa.exchange.first_object import PhaseImage
from namsa.exchange.task import PtychographyTask

COMMAND, FILES = py4dstem.COMMAND, py4dstem.FILES
SCRIPT = Path(__file__).with_name("quantem_script.txt")


def write(task: PtychographyTask, folder: Path, phase: PhaseImage | None) -> None:
    """Writes what quantem starts from, beside patterns.h5.

    Args:
        phase: The first object. `None` leaves an empty one.
    """
    py4dstem.write(task, folder, phase, SCRIPT)
