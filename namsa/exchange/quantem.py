"""quantem 0.1: patterns.h5, first_phase.npz and reconstruct.py, a script that can be changed.

quantem's angle from the detector's frame to the scan's is namsa's, as is its exchange of axes, but
its object lies in the detector's frame as recorded: `namsa.exchange.task` exchanges the axes
before.
"""

from functools import partial
from pathlib import Path

from namsa.exchange import py4dstem

COMMAND = py4dstem.COMMAND
FILES = py4dstem.FILES
KEY_FILE = py4dstem.KEY_FILE
write = partial(py4dstem.write, script=Path(__file__).with_name("quantem_script.txt"))
