"""`namsa-train embed`."""

from namsa.cli.command_parser import CommandParser, positive

from ..scan_command import ScanCommand


def _add_clusters(parser: CommandParser) -> None:
    parser.add_argument(
        "--clusters", type=positive, default=4, metavar="N", help="number of clusters, default 4"
    )


COMMANDS = (
    ScanCommand(
        "embed",
        "application:embed",
        "latent numbers are",
        summary="embed the patterns of a 4D-STEM file: latent numbers, clusters and decoded "
        "patterns",
        description="Takes a network of training.task embed. Writes maps of the latent numbers, "
        "of clusters and of\n"
        "the error, the decoded patterns, and a picture of the latent space beside them.",
        examples=(
            "%(prog)s data.h5 --checkpoint runs/embed --out latents.h5",
            "%(prog)s data.h5 --checkpoint runs/embed --out latents.h5 --clusters 6 --energy-ev "
            "200e3 --semiangle-mrad 5",
        ),
        add_options=_add_clusters,
        settings=lambda options: {"clusters": options.clusters},
    ),
)
