"""`namsa-train segment`."""

from ..scan_command import ScanCommand

COMMANDS = (
    ScanCommand(
        "segment",
        "application:segment",
        "classes of positions are",
        summary="label the positions of a 4D-STEM file as matrix, grain or phase with a trained "
        "network",
        examples=(
            "%(prog)s data.h5 --checkpoint runs/segment --out labels.h5",
            "%(prog)s data.h5 --checkpoint runs/segment --out labels.h5 --energy-ev 200e3 "
            "--semiangle-mrad 5",
        ),
    ),
)
