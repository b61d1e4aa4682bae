"""`namsa-train classify`."""

from ..scan_command import ScanCommand

COMMANDS = (
    ScanCommand(
        "classify",
        "application:classify",
        "classes are",
        summary="classify the patterns of a 4D-STEM file, and the scan by their vote",
        description="Takes a network of training.task classify. Writes the probability of each "
        "class and a map of the\n"
        "most probable one, and a picture beside them.",
        examples=(
            "%(prog)s data.h5 --checkpoint runs/classify --out classes.h5",
            "%(prog)s data.h5 --checkpoint runs/classify/best.npz --out classes.h5 --energy-ev "
            "200e3 --semiangle-mrad 5",
        ),
    ),
)
