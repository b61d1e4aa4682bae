"""`namsa-train reconstruct` and `namsa-train live`."""

import argparse
from typing import TYPE_CHECKING

from namsa.base.errors import InputError
from namsa.cli.command_parser import CommandParser, positive

from ..scan_command import ScanCommand, commands_of, function_of

if TYPE_CHECKING:  # options are read before NumPy is imported
    from .trust.consistency import KnownSpecimen

REFINE_STEPS = 20  # of `--refine`


def known_specimen(options: argparse.Namespace) -> "KnownSpecimen | None":
    """Returns what the options say about the specimen."""
    from .trust.consistency import KnownSpecimen

    pacbed = getattr(options, "pacbed", False)
    vibration = getattr(options, "vibration_angstrom", None)
    if vibration is not None and not pacbed:
        raise InputError("--vibration-angstrom is for --pacbed")
    return KnownSpecimen(options.thickness_angstrom, options.formula, vibration)


def _add_specimen(parser: CommandParser) -> None:
    specimen = parser.add_argument_group("what is known of the specimen")
    specimen.add_argument(
        "--thickness-angstrom",
        type=float,
        help="of the specimen, for which trust is measured; without it that of the file, of "
        "--estimator or of --pacbed",
    )
    specimen.add_argument(
        "--formula", help="of the specimen, such as SrTiO3, for the same and for --pacbed"
    )
    parser.add_argument(
        "--no-trust", action="store_true", help="measure no trust, which takes most of the time"
    )
    parser.add_argument(
        "--passes", type=int, metavar="N", help="predictions with dropout, per symmetry"
    )


def _add_reconstruct(parser: CommandParser) -> None:
    _add_specimen(parser)
    measures = parser.add_argument_group("what is computed beside the density")
    measures.add_argument(
        "--estimator",
        metavar="NAME",
        help="a network of training.task estimate: its thickness, defocus and tilt of the scan "
        "are compared with what --checkpoint has learnt",
    )
    measures.add_argument(
        "--pacbed",
        action="store_true",
        help="scale the density by what the mean pattern says of its amount, and fit the "
        "thickness; give --formula",
    )
    measures.add_argument(
        "--halves",
        action="store_true",
        help="also reconstruct two halves of the scan, and compare them: Fourier ring "
        "correlation, errors of the columns and, if the thickness is known, the residual of "
        "patterns that were kept out",
    )
    measures.add_argument(
        "--vibration-angstrom",
        type=float,
        metavar="U",
        help="rms thermal displacement of the atoms along one axis, Å, for --pacbed; default "
        "0.075 ± 0.02",
    )
    measures.add_argument(
        "--refine",
        dest="refine_steps",
        action="store_const",
        const=REFINE_STEPS,
        default=0,
        help="fit lens, source, thickness and tilt to the patterns; the density stays; takes the "
        "thickness as trust does; give --formula, and --pacbed for an amount to begin with",
    )
    measures.add_argument(
        "--refine-steps",
        type=positive,
        default=0,
        metavar="N",
        help=f"the same in at most N steps; {REFINE_STEPS} by default",
    )
    measures.add_argument(
        "--refine-columns",
        action="store_true",
        help="with --refine, experimental, can make a density worse: fit the columns of atoms, too",
    )


def _add_live(parser: CommandParser) -> None:
    parser.add_argument(
        "--wait", type=float, default=60.0, metavar="S", help="give up after S s without a row; 60"
    )
    _add_specimen(parser)


def _settings(options: argparse.Namespace) -> dict[str, object]:
    """Returns the keywords of `train.reconstruct`. The estimate of `--estimator` is made before the
    density.
    """
    from ...apply.scan_result import scan_arguments
    from .scan.options import ReconstructionOptions

    estimated = None
    if options.estimator:
        estimate = function_of("estimate", commands_of("estimate")[0])
        estimated = estimate(options.data, options.estimator, **scan_arguments(options))
    if options.refine_columns and not options.refine_steps:
        raise InputError("--refine-columns is for --refine")
    how = ReconstructionOptions(
        passes=options.passes,
        refine_steps=options.refine_steps,
        refine_columns=options.refine_columns,
        pacbed=options.pacbed,
        halves=options.halves,
        trust=not options.no_trust,
    )
    return {"specimen": known_specimen(options), "options": how, "estimated": estimated}


COMMANDS = (
    ScanCommand(
        "reconstruct",
        "application:reconstruct",
        "a density is",
        summary="reconstruct the electron density in a 4D-STEM file with a trained network",
        examples=(
            "%(prog)s data.h5 --checkpoint 200kv-20mrad-reality --out density.h5",
            "%(prog)s data.h5 --checkpoint runs/own --out density.h5 --energy-ev 200e3 "
            "--semiangle-mrad 20",
            "%(prog)s data.h5 --checkpoint 200kv-20mrad-reality --out density.h5 "
            "--thickness-angstrom 80 --formula SrTiO3",
        ),
        add_options=_add_reconstruct,
        settings=_settings,
    ),
    ScanCommand(
        "live",
        "live:live",
        "a density is",
        summary="reconstruct a scan while its file is written",
        description="Follows a file that grows: Merlin, raw, or HDF5 in SWMR mode. The density "
        "is written after each\n"
        "strip of windows. Run it again to continue an interrupted one.",
        examples=(
            "%(prog)s scan.mib --checkpoint 200kv-20mrad-fast --out density.h5 --scan-shape "
            "256x256 --energy-ev 200e3 --semiangle-mrad 20 --scan-step-angstrom 0.4 --pixel-mrad "
            "1.1",
        ),
        add_options=_add_live,
        runs_itself=True,
        data="the file that grows",
    ),
)
