"""The commands of `python -m train` that apply a network to a scan, as a task describes them."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from namsa.cli.command_line import CommandParser

from . import registry


@dataclass(frozen=True)
class ScanCommand:
    """A command that applies a task's networks.

    Attributes:
        name: Of the command.
        function: Where its function is, as "application:classify", in the task's folder. It takes data, network and
            calibration, and by keyword `beam_intensity`, `layout` and `console`, as `train.reconstruct` does, and
            returns a `train.apply.scan_result.ScanResult`. Of a command that `runs_itself` it takes the options.
        asked: What is asked of a network, for the message that it is for another task: "classes are".
        summary: For the list of commands.
        examples: Command lines.
        description: What it does, after the summary.
        add_options: Adds options beside those of every such command, before those of the calibration.
        settings: Returns further keywords of the function, from the options.
        runs_itself: Whether the function reads and writes files itself.
        data: What the file is.
    """

    name: str
    function: str
    asked: str
    summary: str
    examples: Sequence[str]
    description: str = ""
    add_options: Callable[[CommandParser], None] = lambda parser: None
    settings: Callable[[argparse.Namespace], Mapping[str, Any]] = lambda options: {}
    runs_itself: bool = False
    data: str = "a file of a microscope or a program of 4D-STEM"


def commands_of(task: str) -> Sequence[ScanCommand]:
    """Returns the commands that apply the networks of a task, the usual one first."""
    commands: Sequence[ScanCommand] = registry.part(task, "command").COMMANDS
    return commands


def function_of(task: str, command: ScanCommand) -> Callable[..., Any]:
    """Returns the function of a task's command."""
    module, _, name = command.function.partition(":")
    found: Callable[..., Any] = getattr(registry.part(task, module), name)
    return found
