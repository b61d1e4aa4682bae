"""The commands that apply a network to the file of a scan: their arguments, and what they do."""

import argparse
from pathlib import Path

from namsa.cli.calibration_options import add_calibration, add_layout_options
from namsa.cli.command_parser import CommandParser

from ..execution import backend
from ..tasks import registry
from ..tasks.scan_command import commands_of, function_of


def add_scan_commands(parser: CommandParser) -> None:
    """Adds the commands of all tasks."""
    for task in registry.names():
        for index, spec in enumerate(commands_of(task)):
            command = parser.add_command(
                spec.name,
                f"{__name__}:apply",
                summary=spec.summary,
                description=spec.description,
                examples=spec.examples,
                notes="Other programs on the same file: `namsa inspect` measures its calibration, "
                "for --calibration; `namsa show --html` makes a page of its patterns.",
            )
            command.set_defaults(scan_command=(task, index))
            count = None if spec.runs_itself else "+"
            command.add_argument("data", type=Path, nargs=count, metavar="DATA", help=spec.data)
            command.add_argument(
                "--checkpoint",
                required=True,
                metavar="NAME",
                help="a model, a run directory or a checkpoint",
            )
            command.add_argument(
                "--out",
                type=Path,
                required=True,
                metavar="OUT.h5" if spec.runs_itself else "OUT.h5|DIR",
                help="a picture is written beside it"
                if spec.runs_itself
                else "a picture is written beside it; of several scans a folder, in which scans "
                "that are done are skipped",
            )
            spec.add_options(command)
            add_calibration(command).add_argument(
                "--beam-intensity",
                type=float,
                help="sum of a pattern without specimen, in the units of the file (such as counts)",
            )
            add_layout_options(command)


def apply(options: argparse.Namespace) -> int | None:
    """Applies a network to a scan, or to several, one after the other."""
    from namsa.cli.many_scans import is_for_many, treat_scans

    from ..apply.identity import network_identity
    from ..apply.models import load_model
    from ..apply.scan_result import write_result

    backend.choose()
    task, index = options.scan_command
    spec = commands_of(task)[index]
    function = function_of(task, spec)
    if spec.runs_itself:
        function(options)
        return None

    def apply_to_one(one: argparse.Namespace) -> None:
        write_result(one, function, **spec.settings(one))

    if is_for_many(options.data, options.out):
        networks = [options.checkpoint, getattr(options, "estimator", None)]
        made_of = [network_identity(load_model(name)) for name in networks if name]
        return treat_scans(options, options.data, ".h5", apply_to_one, {"networks": made_of})
    apply_to_one(argparse.Namespace(**vars(options) | {"data": options.data[0]}))
    return None
