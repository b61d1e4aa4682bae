"""Arguments of the commands that simulate specimens and datasets."""

from pathlib import Path

from namsa.cli.calibration_options import add_calibration, add_layout_options
from namsa.cli.command_parser import CommandParser, positive
from namsa.io.compression import COMPRESSIONS


def add_simulation(parser: CommandParser) -> None:
    """Adds the command `simulate`."""
    command = parser.add_command(
        "simulate",
        "namsa.cli.commands.simulate:simulate",
        summary="simulate one specimen to an HDF5 stack with a preview picture",
        description="Takes the configuration's first material, zone axis and thickness. Patterns "
        "are written as they are simulated; run it again to continue an interrupted one.",
        examples=(
            "namsa simulate first-hour/starter.yaml --crystal first-hour/SrTiO3.cif --out scan.h5",
            "namsa simulate first-hour/starter.yaml --crystal my.cif --set "
            "microscope.energy_ev=80e3",
            "namsa simulate configs/quickstart.yaml --dry-run",
            "namsa simulate configs/quickstart.yaml --check",
        ),
    )
    command.add_config()
    _add_dry_run(command)
    command.add_argument(
        "--check",
        action="store_true",
        help="write nothing; compare a few probes with three times the resolution, and print the "
        "errors by ring",
    )
    command.add_argument(
        "--crystal",
        type=Path,
        metavar="FILE",
        help="CIF, POSCAR, xyz ... in place of the configuration's first",
    )
    command.add_argument(
        "--charge-density",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="all electrons of DFT in place of independent atoms, and the crystal: AECCAR0 "
        "AECCAR2, or a cube file",
    )
    command.add_argument(
        "--vacuum",
        action="store_true",
        help="no specimen: the probe alone, in a cell of specimen.lateral_angstrom",
    )
    command.add_argument(
        "--out", type=Path, metavar="FILE.h5", help="default: the sample's name in this folder"
    )
    _add_compression(command)


def add_datasets(parser: CommandParser) -> None:
    """Adds the commands `dataset`, `merge` and `export`."""
    _add_dataset(parser)
    _add_merge(parser)
    _add_export(parser)


def _add_dataset(parser: CommandParser) -> None:
    command = parser.add_command(
        "dataset",
        "namsa.cli.commands.dataset:dataset",
        summary="simulate this rank's share of a dataset; run it again to continue",
        description="The last line on stdout is a summary in JSON.",
        examples=(
            "namsa dataset configs/quickstart.yaml --out data/quickstart",
            "namsa dataset configs/quickstart.yaml --out data/quickstart --limit 2 --time-limit "
            "600",
            "mpirun -n 4 namsa dataset configs/quickstart.yaml --out data/quickstart",
            "namsa dataset configs/paper.yaml --out data/paper --manifest-only",
        ),
    )
    command.add_config()
    _add_dry_run(command)
    command.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="the dataset's folder"
    )
    command.add_argument(
        "--manifest-only",
        action="store_true",
        help="write the list of all samples and, to strata.json, what it consists of; simulate "
        "nothing",
    )
    command.add_argument(
        "--rank", default="auto", help="auto (from the launcher's environment) or a number"
    )
    command.add_argument("--size", default="auto", help="auto or the number of ranks")
    command.add_argument(
        "--limit", type=int, metavar="N", help="simulate at most this many new samples"
    )
    command.add_argument(
        "--time-limit", type=float, metavar="SECONDS", help="start no sample after this time"
    )


def _add_merge(parser: CommandParser) -> None:
    command = parser.add_command(
        "merge",
        "namsa.cli.commands.dataset:merge",
        summary="join datasets of one configuration, each sample once; run it again to continue",
        description="The last line on stdout is a summary in JSON.",
        examples=("namsa merge data/monday data/tuesday --out data/all",),
    )
    command.add_argument(
        "directories", type=Path, metavar="DIR", nargs="+", help="datasets of one configuration"
    )
    command.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="the joined dataset's folder"
    )


def _add_export(parser: CommandParser) -> None:
    command = parser.add_command(
        "export",
        "namsa.cli.commands.dataset:export",
        summary="write a dataset as one HDF5 file, or a scan for another program",
        description="HDF5 files have the layout EMD 1.0, which py4DSTEM and HyperSpy open. With "
        "--to, the patterns and a parameter file that is ready to run are written to a folder; "
        "zspy writes a .zspy store.",
        examples=(
            "namsa export data/quickstart --out quickstart.h5",
            "namsa export data/tiled --tiles --out tiled.h5",
            "namsa export cell.h5 --to phaser --out phaser",
            "namsa export cell.h5 --to zspy --out cell.zspy",
            "namsa export data/quickstart --to stemdl --out batch_train_0.db",
            "namsa export batch_train_0.db --to npz --out arrays",
            "namsa export scan.h5 --to ptyrad --out ptyrad --density density.h5 --formula SrTiO3 "
            "--slices 4 --thickness-angstrom 80",
        ),
    )
    command.add_argument(
        "data",
        type=Path,
        nargs="+",
        metavar="DATA",
        help="a dataset's folder; with --to (but stemdl), a file of patterns, or several",
    )
    command.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE|DIR",
        help="the HDF5 file; with --to, a folder; of several scans a folder of such, in which "
        "scans that are done are skipped",
    )
    _add_compression(command)
    command.add_argument(
        "--tiles",
        action="store_true",
        help="write the tiles of a dataset as chunks, which ranks of a divided job read "
        "(data.source of kind slabs)",
    )
    command.add_argument(
        "--to",
        choices=("ptyrad", "phaser", "py4dstem", "quantem", "zspy", "stemdl", "npz"),
        help="the program; zspy is for HyperSpy; stemdl writes a dataset as "
        "batch_<mode>_<rank>.db, npz reads such files and STEMDL's",
    )
    _add_program_options(command)
    add_calibration(command)
    add_layout_options(command)


def _add_program_options(command: CommandParser) -> None:
    """Adds the options for the parameter file of another program."""
    group = command.add_argument_group("with --to")
    group.add_argument(
        "--density", type=Path, metavar="FILE.h5", help="of `reconstruct`: becomes the first object"
    )
    group.add_argument("--formula", help="of the specimen, such as SrTiO3; --density needs it")
    group.add_argument(
        "--defocus-angstrom",
        type=float,
        help="underfocus is positive; default: what the file says, or 0",
    )
    group.add_argument(
        "--thickness-angstrom", type=float, help="of the specimen; default: what the file says"
    )
    group.add_argument(
        "--slices", type=positive, default=1, metavar="N", help="of the object, default 1"
    )
    group.add_argument(
        "--iterations",
        type=positive,
        default=50,
        metavar="N",
        help="in the parameter file, default 50",
    )


def add_integrity(parser: CommandParser) -> None:
    """Adds the commands `verify` and `repair`."""
    _add_verify(parser)
    _add_repair(parser)


def _add_verify(parser: CommandParser) -> None:
    command = parser.add_command(
        "verify",
        "namsa.cli.commands.integrity:verify",
        summary="compare every record's checksum; exit code 1 if one is corrupt",
        examples=("namsa verify data/quickstart", "namsa verify data/quickstart --json"),
    )
    _add_directory(command)
    command.add_json()


def _add_repair(parser: CommandParser) -> None:
    command = parser.add_command(
        "repair",
        "namsa.cli.commands.integrity:repair",
        summary="move damaged records aside and list them; the next run simulates them again",
        examples=("namsa repair data/quickstart",),
    )
    _add_directory(command)
    command.add_json()


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
        "--dry-run",
        action="store_true",
        help="simulate and write nothing; print the expected time, memory and disk",
    )
    command.add_json("with --dry-run (or --check, where it is): print one JSON object")
    command.add_argument(
        "--force",
        action="store_true",
        help="start even if the simulation is expected to exceed this machine's memory, or to "
        "take over 30 days",
    )
