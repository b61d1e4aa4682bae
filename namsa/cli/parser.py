# PYTHON_ARGCOMPLETE_OK
"""The `namsa` command: its arguments. What the commands do is in `namsa.cli.commands`."""

from collections.abc import Sequence
from pathlib import Path

from namsa.cli.calibration_options import add_calibration, add_layout_options, add_stated_numbers
from namsa.cli.command_line import COMPLETION, CommandParser, positive, run_command
from namsa.io.compression import COMPRESSIONS
from namsa.version import __version__

OF_NETWORKS = ("reconstruct", "live", "classify", "segment", "embed", "estimate", "models", "evaluate", "report")
INTERRUPTED = "interrupted; what was written is complete, and the same command continues from there"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0 done, 1 the work failed, 2 bad input, 130 interrupted.

    Args:
        arguments: The command's words; by default those of this process.
    """
    return run_command(build_parser(), arguments, INTERRUPTED)


def build_parser() -> CommandParser:
    """Returns the parser of all commands."""
    parser = CommandParser(
        prog="namsa",
        description="Multislice simulation of 4D-STEM and its datasets.",
        examples=(
            "namsa init first-hour",
            "namsa simulate first-hour/starter.yaml --crystal first-hour/SrTiO3.cif --out scan.h5",
            "namsa show scan.h5 --html",
        ),
        notes=COMPLETION,
        elsewhere=("namsa-train", OF_NETWORKS),
    )
    parser.add_argument("--version", action="version", version=f"namsa {__version__}")
    _add_simulation(parser)
    _add_integrity(parser)
    _add_views(parser)
    _add_inspect(parser)
    _add_crystals(parser)
    command = parser.add_command(
        "init",
        "namsa.cli.commands.starter:init",
        summary="make a folder to start in: a crystal, a configuration and a notebook",
        examples=("namsa init first-hour", "namsa init first-hour --simulate"),
    )
    command.add_argument("folder", type=Path, metavar="DIR", help="a new or empty folder")
    command.add_argument("--simulate", action="store_true", help="simulate the patterns of the crystal, too")
    command = parser.add_command(
        "examples",
        "namsa.cli.commands.examples:examples",
        summary="list measured scans to try things on, or fetch some",
        description="Each file is compared with its checksum; a file that is there is never replaced.",
        examples=("namsa examples", "namsa examples fetch rotavirus_4x4x256x256_crop_uint8.h5 --from URL"),
    )
    command.add_argument("action", nargs="?", choices=("fetch",), help="left out: print the list")
    command.add_argument("names", nargs="*", metavar="NAME", help="the files to fetch")
    command.add_argument(
        "--from", dest="source", metavar="URL|DIR", help="the folder with the files; default: NAMSA_EXAMPLES_URL"
    )
    command.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="where to, default: this folder")
    command.add_argument("--json", action="store_true", help="print the list as JSON, with sizes and checksums")
    add_schema(parser, "namsa.cli.commands.schema:schema")
    command = parser.add_command(
        "doctor",
        "namsa.cli.commands.machine:doctor",
        summary="report what this machine has and lacks",
        description="Lists libraries, devices, disks and ranks, and the command that installs what is missing.",
        examples=("namsa doctor", "namsa doctor --json", "namsa doctor --gpu"),
    )
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.add_argument("--gpu", action="store_true", help="count as missing what a job on GPUs needs")
    return parser


def add_schema(parser: CommandParser, run: str) -> None:
    """Adds the command `schema`, whose function `run` names."""
    command = parser.add_command(
        "schema",
        run,
        summary="print the keys of a configuration, with values, defaults and meaning",
        description="A JSON schema, as editors use it to complete and check YAML, or tables in Markdown.",
        examples=("%(prog)s", "%(prog)s --markdown"),
    )
    command.add_argument("--markdown", action="store_true", help="print tables in Markdown")


def _add_simulation(parser: CommandParser) -> None:
    command = parser.add_command(
        "simulate",
        "namsa.cli.commands.simulate:simulate",
        summary="simulate one specimen to an HDF5 stack with a preview picture",
        description="Takes the configuration's first material, zone axis and thickness. Patterns are written as they "
        "are simulated; run it again to continue an interrupted one.",
        examples=(
            "namsa simulate first-hour/starter.yaml --crystal first-hour/SrTiO3.cif --out scan.h5",
            "namsa simulate first-hour/starter.yaml --crystal my.cif --set microscope.energy_ev=80e3",
            "namsa simulate configs/quickstart.yaml --dry-run",
            "namsa simulate configs/quickstart.yaml --check",
        ),
    )
    command.add_config()
    _add_dry_run(command)
    command.add_argument(
        "--check",
        action="store_true",
        help="write nothing; compare a few probes with twice the resolution, and print the errors by ring",
    )
    command.add_argument(
        "--crystal", type=Path, metavar="FILE", help="CIF, POSCAR, xyz ... in place of the configuration's first"
    )
    command.add_argument(
        "--charge-density",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="all electrons of DFT in place of independent atoms, and the crystal: AECCAR0 AECCAR2, or a cube file",
    )
    command.add_argument(
        "--vacuum", action="store_true", help="no specimen: the probe alone, in a cell of specimen.lateral_angstrom"
    )
    command.add_argument("--out", type=Path, metavar="FILE.h5", help="default: the sample's name in this folder")
    _add_compression(command)

    command = parser.add_command(
        "dataset",
        "namsa.cli.commands.dataset:dataset",
        summary="simulate this rank's share of a dataset; run it again to continue",
        description="The last line on stdout is a summary in JSON.",
        examples=(
            "namsa dataset configs/quickstart.yaml --out data/quickstart",
            "namsa dataset configs/quickstart.yaml --out data/quickstart --limit 2 --time-limit 600",
            "mpirun -n 4 namsa dataset configs/quickstart.yaml --out data/quickstart",
            "namsa dataset configs/paper.yaml --out data/paper --manifest-only",
        ),
    )
    command.add_config()
    _add_dry_run(command)
    command.add_argument("--out", type=Path, required=True, metavar="DIR", help="the dataset's folder")
    command.add_argument(
        "--manifest-only",
        action="store_true",
        help="write the list of all samples and, to strata.json, what it consists of; simulate nothing",
    )
    command.add_argument("--rank", default="auto", help="auto (from the launcher's environment) or a number")
    command.add_argument("--size", default="auto", help="auto or the number of ranks")
    command.add_argument("--limit", type=int, metavar="N", help="simulate at most this many new samples")
    command.add_argument("--time-limit", type=float, metavar="SECONDS", help="start no sample after this time")

    command = parser.add_command(
        "merge",
        "namsa.cli.commands.dataset:merge",
        summary="join datasets of one configuration, each sample once; run it again to continue",
        description="The last line on stdout is a summary in JSON.",
        examples=("namsa merge data/monday data/tuesday --out data/all",),
    )
    command.add_argument("directories", type=Path, metavar="DIR", nargs="+", help="datasets of one configuration")
    command.add_argument("--out", type=Path, required=True, metavar="DIR", help="the joined dataset's folder")

    command = parser.add_command(
        "export",
        "namsa.cli.commands.dataset:export",
        summary="write a dataset as one HDF5 file, or a scan for another program",
        description="HDF5 files have the layout EMD 1.0, which py4DSTEM and HyperSpy open. With --to, the patterns and "
        "a parameter file that is ready to run are written to a folder; zspy writes a .zspy store.",
        examples=(
            "namsa export data/quickstart --out quickstart.h5",
            "namsa export data/tiled --tiles --out tiled.h5",
            "namsa export cell.h5 --to phaser --out phaser",
            "namsa export cell.h5 --to zspy --out cell.zspy",
            "namsa export data/quickstart --to stemdl --out batch_train_0.db",
            "namsa export batch_train_0.db --to npz --out arrays",
            "namsa export scan.h5 --to ptyrad --out ptyrad --density density.h5 --formula SrTiO3 --slices 4 "
            "--thickness-angstrom 80",
        ),
    )
    command.add_argument(
        "data", type=Path, metavar="DATA", help="a dataset's folder; with --to (but stemdl), a file of patterns"
    )
    command.add_argument(
        "--out", type=Path, required=True, metavar="FILE|DIR", help="the HDF5 file; with --to, a folder"
    )
    _add_compression(command)
    command.add_argument(
        "--tiles",
        action="store_true",
        help="write the tiles of a dataset as chunks, which ranks of a divided job read (data.source of kind slabs)",
    )
    command.add_argument(
        "--to",
        choices=("ptyrad", "phaser", "py4dstem", "quantem", "zspy", "stemdl", "npz"),
        help="the program; zspy is for HyperSpy; stemdl writes a dataset as batch_<mode>_<rank>.db, npz reads such "
        "files and STEMDL's",
    )
    group = command.add_argument_group("with --to")
    group.add_argument("--density", type=Path, metavar="FILE.h5", help="of `reconstruct`: becomes the first object")
    group.add_argument("--formula", help="of the specimen, such as SrTiO3; --density needs it")
    group.add_argument(
        "--defocus-angstrom", type=float, help="underfocus is positive; default: what the file says, or 0"
    )
    group.add_argument("--thickness-angstrom", type=float, help="of the specimen; default: what the file says")
    group.add_argument("--slices", type=positive, default=1, metavar="N", help="of the object, default 1")
    group.add_argument("--iterations", type=positive, default=50, metavar="N", help="in the parameter file, default 50")
    add_calibration(command)
    add_layout_options(command)


def _add_integrity(parser: CommandParser) -> None:
    command = parser.add_command(
        "verify",
        "namsa.cli.commands.integrity:verify",
        summary="compare every record's checksum; exit code 1 if one is corrupt",
        examples=("namsa verify data/quickstart", "namsa verify data/quickstart --json"),
    )
    _add_directory(command)
    command.add_argument("--json", action="store_true", help="print one JSON object")

    command = parser.add_command(
        "repair",
        "namsa.cli.commands.integrity:repair",
        summary="move damaged records aside and list them; the next run simulates them again",
        examples=("namsa repair data/quickstart",),
    )
    _add_directory(command)
    command.add_argument("--json", action="store_true", help="print one JSON object")


def _add_views(parser: CommandParser) -> None:
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
    command.add_argument("path", type=Path, metavar="DIR|FILE", help="a dataset, a file of namsa or of a microscope")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.add_argument("--ids", action="store_true", help="only the samples' names, one per line")
    command.add_argument("--dataset", metavar="NAME", help="which dataset of a file of patterns")
    add_layout_options(command)

    command = parser.add_command(
        "show",
        "namsa.cli.commands.view:show",
        summary="draw a sample or a density, or write an interactive page of the patterns in any file",
        description="Of a file that holds patterns alone, as a microscope writes it, the page is all that is written.",
        examples=(
            "namsa show cell.h5",
            "namsa show density.h5",
            "namsa show data/quickstart --out first.svg",
            "namsa show data/quickstart --out first.html",
            "namsa show scan.h5 --html --overlay density.h5",
        ),
    )
    command.add_argument(
        "sample", type=Path, metavar="DATA", help="FILE.h5, DIR (its first sample), DIR/ID, or any file of patterns"
    )
    command.add_argument(
        "--out",
        type=Path,
        metavar="PNG",
        help="or .pdf, .svg, .html; default: the name of file or sample, in this folder",
    )
    command.add_argument("--html", action="store_true", help="write the interactive page beside the picture")
    command.add_argument(
        "--overlay", type=Path, metavar="DENSITY.h5", help="what a reconstruction wrote, shown over the page's maps"
    )
    command.add_argument("--page-mb", type=positive, default=40, metavar="MB", help="largest page, default 40")
    add_calibration(command)
    add_layout_options(command)


def _add_inspect(parser: CommandParser) -> None:
    command = parser.add_command(
        "inspect",
        "namsa.cli.commands.inspect:inspect",
        summary="measure the calibration of a scan from its own patterns",
        description="Disk, centre, ellipse, rotation, mirror, focus, step: each with its error. See docs/inspect.md.",
        examples=(
            "namsa inspect scan.mib --energy-ev 300e3 --semiangle-mrad 21 --scan-step-angstrom 0.4 --out scan.json",
            "namsa inspect scan.h5 --crystal SrTiO3.cif --png scan.png --html scan.html",
        ),
    )
    command.add_argument("data", type=Path, metavar="DATA", help="any file of patterns")
    command.add_argument("--out", type=Path, metavar="FILE.json", help="the calibration file, for --calibration")
    command.add_argument("--png", type=Path, metavar="FILE.png", help="pictures; or .pdf, .svg")
    command.add_argument("--html", type=Path, metavar="FILE.html", help="the pictures and numbers as one page")
    command.add_argument("--images", type=Path, metavar="DIR", help="each image as a TIFF file of float32")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    group = command.add_argument_group("what is known of the specimen and the probe")
    group.add_argument("--crystal", type=Path, metavar="FILE.cif", help="whose lattice shows, for the scan's step")
    group.add_argument("--zone-axis", type=int, nargs=3, metavar=("U", "V", "W"), help="of the crystal, along the beam")
    group.add_argument(
        "--lattice-angstrom", type=float, metavar="D", help="a spacing that shows, in place of a crystal"
    )
    group.add_argument("--focus", choices=("under", "over"), help="of the probe; tells a rotation from 180° more")
    group = add_stated_numbers(command)
    group.add_argument("--rotation-deg", type=float, help="from the detector's y, x to the scan's, to 90° or better")
    add_layout_options(command)


def _add_crystals(parser: CommandParser) -> None:
    command = parser.add_command(
        "crystals",
        "namsa.cli.commands.crystals:crystals",
        summary="list the built-in crystals",
        examples=("namsa crystals", "namsa crystals --json"),
    )
    command.add_argument("--json", action="store_true", help="print one JSON list")

    command = parser.add_command(
        "fetch",
        "namsa.cli.commands.crystals:fetch",
        summary="fetch the configuration's query of the Materials Project to a file",
        description="Needs MP_API_KEY in the environment and a section materials.materials_project.",
        examples=("MP_API_KEY=... namsa fetch my.yaml",),
    )
    command.add_config()


def _add_compression(command: CommandParser) -> None:
    command.add_argument(
        "--compression",
        choices=COMPRESSIONS,
        default="none",
        help="of the patterns in the file; default: none. bitshuffle needs the package hdf5plugin",
    )


def _add_directory(command: CommandParser) -> None:
    command.add_argument("directory", type=Path, metavar="DIR", help="a dataset's folder")


def _add_dry_run(command: CommandParser) -> None:
    command.add_argument(
        "--dry-run", action="store_true", help="simulate and write nothing; print the expected time, memory and disk"
    )
    command.add_argument(
        "--json", action="store_true", help="with --dry-run (or --check, where it is): print one JSON object"
    )
    command.add_argument(
        "--force",
        action="store_true",
        help="start even if the simulation is expected to exceed this machine's memory, or to take over 30 days",
    )
