"""The commands of `namsa-train` that apply a network to a scan, as a task describes them."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from namsa.cli.command_parser import CommandParser

from . import registry


@dataclass(frozen=True)
class ScanCommand:
    """A command that applies a task's networks."""

    name: str  # name of the command
    # Where its function is, as "application:classify", in the task's folder. It takes data, network
    # and calibration, and by keyword `beam_intensity`, `layout` and `console`, as
    # `train.reconstruct` does, and returns a `train.apply.scan_result.ScanResult`. Of a command
    # that `runs_itself` it takes the options.
    function: str
    # The question to a network, for the message that it is for another task: "classes are".
    asked: str
    summary: str  # for the list of commands
    examples: Sequence[str]  # command lines
    description: str = ""  # its description, after the summary
    # Adds options beside those of every such command, before those of the calibration.
    add_options: Callable[[CommandParser], None] = lambda parser: None
    # Returns further keywords of the function, from the options.
    settings: Callable[[argparse.Namespace], Mapping[str, object]] = lambda options: {}
    runs_itself: bool = False  # whether the function reads and writes files itself
    data: str = "a file of a microscope or a program of 4D-STEM"  # the kind of file


def commands_of(task: str) -> Sequence[ScanCommand]:
    """Returns the commands that apply the networks of a task, the usual one first; none if the task
    has no module of them.
    """
    module = registry.part(task, "command")
    commands: Sequence[ScanCommand] = module.COMMANDS if module else ()
    return commands


def function_of(task: str, command: ScanCommand) -> Callable[..., Any]:
    """Returns the function of a task's command."""
    module, _, name = command.function.partition(":")
    function: Callable[..., Any] = getattr(registry.part(task, module), name)
    return function
