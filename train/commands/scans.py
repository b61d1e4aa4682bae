"""The commands that apply a network to the file of a scan: their arguments, and what they do."""

import argparse
from pathlib import Path

from namsa.cli.calibration_options import add_calibration, add_layout_options
from namsa.cli.command_line import CommandParser

from ..execution import backend
from ..tasks.registry import TASKS
from ..tasks.scan_command import commands_of, function_of


def add_scan_commands(parser: CommandParser) -> None:
    """Adds the commands of all tasks."""
    for task in TASKS:
        for number, spec in enumerate(commands_of(task)):
            command = parser.add_command(
                spec.name,
                f"{__name__}:apply",
                summary=spec.summary,
                description=spec.description,
                examples=spec.examples,
            )
            command.set_defaults(scan_command=(task, number))
            command.add_argument("data", type=Path, metavar="DATA", help=spec.data)
            command.add_argument(
                "--checkpoint", required=True, metavar="NAME", help="a model, a run directory or a checkpoint"
            )
            command.add_argument(
                "--out", type=Path, required=True, metavar="OUT.h5", help="a picture is written beside it"
            )
            spec.add_options(command)
            add_calibration(command).add_argument(
                "--beam-intensity", type=float, help="sum of a pattern without specimen, in the file's units"
            )
            add_layout_options(command)


def apply(options: argparse.Namespace) -> None:
    """Applies a network to a scan."""
    from ..apply.scan_result import write_result

    backend.choose()
    task, number = options.scan_command
    spec = commands_of(task)[number]
    if spec.runs_itself:
        function_of(task, spec)(options)
    else:
        write_result(options, function_of(task, spec), **spec.settings(options))
