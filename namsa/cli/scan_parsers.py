"""Arguments of the commands that describe, draw and measure files of patterns."""

from pathlib import Path

from namsa.cli.calibration_options import (
    add_calibration,
    add_layout_options,
    add_mirrored,
    add_stated_numbers,
)
from namsa.cli.command_parser import CommandParser, positive


def add_views(parser: CommandParser) -> None:
    """Adds the commands `info` and `show`."""
    _add_info(parser)
    _add_show(parser)


def _add_info(parser: CommandParser) -> None:
    command = parser.add_command(
        "info",
        "namsa.cli.commands.view:info",
        summary="describe a dataset, a file of namsa or any file of patterns, with axes and units",
        examples=(
            "namsa info data/quickstart",
            "namsa info cell.h5 --json",
            "namsa info data/quickstart --ids",
            "namsa info scan.mib --scan-shape 128x128",
        ),
    )
    command.add_argument(
        "path", type=Path, metavar="DIR|FILE", help="a dataset, a file of namsa or of a microscope"
    )
    command.add_json("print JSON")
    command.add_argument("--ids", action="store_true", help="only the samples' names, one per line")
    command.add_argument("--dataset", metavar="NAME", help="which dataset of a file of patterns")
    add_layout_options(command)


def _add_show(parser: CommandParser) -> None:
    command = parser.add_command(
        "show",
        "namsa.cli.commands.view:show",
        summary="draw a sample or a density, or write an interactive page of the patterns in any "
        "file",
        description="Of a file that holds patterns alone, as a microscope writes it, the page is "
        "all that is written.",
        examples=(
            "namsa show cell.h5",
            "namsa show density.h5",
            "namsa show data/quickstart --out first.svg",
            "namsa show data/quickstart --out first.html",
            "namsa show scan.h5 --html --overlay density.h5",
        ),
    )
    command.add_argument(
        "sample",
        type=Path,
        metavar="DATA",
        help="FILE.h5, DIR (its first sample), DIR/ID, or any file of patterns",
    )
    command.add_argument(
        "--out",
        type=Path,
        metavar="PNG",
        help="or .pdf, .svg, .html; default: the name of file or sample, in this folder",
    )
    command.add_argument(
        "--html", action="store_true", help="write the interactive page beside the picture"
    )
    command.add_argument(
        "--overlay",
        type=Path,
        metavar="DENSITY.h5",
        help="what a reconstruction wrote, shown over the page's maps",
    )
    command.add_argument(
        "--page-mb", type=positive, default=40, metavar="MB", help="largest page, default 40"
    )
    add_calibration(command)
    add_layout_options(command)


def add_inspect(parser: CommandParser) -> None:
    """Adds the command `inspect`."""
    command = parser.add_command(
        "inspect",
        "namsa.cli.commands.inspect:inspect",
        summary="measure the calibration of a scan from its own patterns",
        description="Disk, centre, ellipse, rotation, mirror, focus, step: each with its error. "
        "See docs/inspect.md.",
        examples=(
            "namsa inspect scan.mib --energy-ev 300e3 --semiangle-mrad 21 --scan-step-angstrom "
            "0.4 --out scan.json",
            "namsa inspect scan.h5 --crystal SrTiO3.cif --png scan.png --html scan.html",
            "namsa inspect *.mib --energy-ev 300e3 --semiangle-mrad 21 --out calibrations",
        ),
        notes="The density of the same file: `namsa-train reconstruct`.",
    )
    _add_inspected_files(command)
    command.add_json()
    _add_known_specimen(command)
    group = add_stated_numbers(command)
    group.add_argument(
        "--rotation-deg",
        type=float,
        help="from the detector's y, x to the scan's, to 90° or better",
    )
    add_mirrored(group)
    add_layout_options(command)


def _add_inspected_files(command: CommandParser) -> None:
    """Adds the arguments that name the files to read and to write."""
    command.add_argument(
        "data", type=Path, nargs="+", metavar="DATA", help="any file of patterns, or several"
    )
    command.add_argument(
        "--out",
        type=Path,
        metavar="FILE.json|DIR",
        help="the calibration file, for --calibration; of several scans a folder, in which scans "
        "that are done are skipped",
    )
    command.add_argument("--png", type=Path, metavar="FILE.png", help="pictures; or .pdf, .svg")
    command.add_argument(
        "--html", type=Path, metavar="FILE.html", help="the pictures and numbers as one page"
    )
    command.add_argument(
        "--images", type=Path, metavar="DIR", help="each image as a TIFF file of float32"
    )


def _add_known_specimen(command: CommandParser) -> None:
    """Adds the options for what is known of the specimen and the probe."""
    group = command.add_argument_group("what is known of the specimen and the probe")
    group.add_argument(
        "--crystal", type=Path, metavar="FILE.cif", help="whose lattice shows, for the scan's step"
    )
    group.add_argument(
        "--zone-axis",
        type=int,
        nargs=3,
        metavar=("U", "V", "W"),
        help="of the crystal, along the beam",
    )
    group.add_argument(
        "--lattice-angstrom",
        type=float,
        metavar="D",
        help="a spacing that shows, in place of a crystal",
    )
    group.add_argument(
        "--focus", choices=("under", "over"), help="of the probe; tells a rotation from 180° more"
    )


def add_parallax(parser: CommandParser) -> None:
    """Adds the command `parallax`."""
    command = parser.add_command(
        "parallax",
        "namsa.cli.commands.parallax:parallax",
        summary="align the bright-field images of a defocused scan on finer pixels",
        description="Tilt-corrected bright field (tcBF), and the same with reversals of contrast "
        "undone. Without --calibration the scan is inspected first. See docs/parallax.md.",
        examples=(
            "namsa parallax scan.h5 --upsampling 4 --out parallax.tif",
            "namsa parallax scan.mib --calibration scan.json --out parallax.png",
        ),
        notes="Calibration of the same file: `namsa inspect`.",
    )
    command.add_argument("data", type=Path, metavar="DATA", help="any file of patterns")
    command.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE.tif",
        help="both images as a stack with their pixels' size; or .npy, .png, .pdf, .svg",
    )
    command.add_argument(
        "--upsampling",
        type=int,
        default=2,
        metavar="N",
        help="pixels of the image per step of the scan, default 2",
    )
    command.add_json()
    group = add_calibration(command)
    group.add_argument(
        "--defocus-angstrom",
        type=float,
        help="of the specimen's middle, underfocus positive, in place of all measured aberrations",
    )
    add_layout_options(command)
