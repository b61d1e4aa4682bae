"""`namsa-train estimate`."""

from ..scan_command import ScanCommand

COMMANDS = (
    ScanCommand(
        "estimate",
        "application:estimate",
        "estimates are",
        summary="estimate thickness, defocus and tilt of a 4D-STEM file with a trained network",
        description="Takes a network of training.task estimate. Prints each quantity with its "
        "error, and writes maps\n"
        "over the scan's windows and a picture beside them.",
        examples=(
            "%(prog)s data.h5 --checkpoint runs/estimate --out estimates.h5",
            "%(prog)s data.h5 --checkpoint runs/estimate/best.npz --out estimates.h5 --energy-ev "
            "200e3 --semiangle-mrad 20",
        ),
    ),
)
