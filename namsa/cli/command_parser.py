"""Parsers with examples, suggestions and completion, which all command lines of the project share.

A parser names the function of each command as text, "module:function" (`namsa.base.registry`). The
module is imported when the command runs, so that `--help` and completion need neither TensorFlow
nor Matplotlib nor pymatgen.
"""

import argparse
import difflib
import itertools
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from namsa.base.text import printable, shorten

OTHER_NAMES = {"view": "show", "browse": "show", "convert": "export", "list": "info"}
MOST_IN_USAGE = 6  # options; those of longer commands are in their list alone
COMPLETION = (
    'Bash and zsh complete commands and options after `eval "$(register-python-argcomplete '
    'namsa namsa-train)"`.'
)


class HelpFormatter(argparse.HelpFormatter):
    """Wraps descriptions at the terminal's width, and examples where an option begins.

    The usage of a command with many options names those that are required.
    """

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None = None,
    ) -> None:
        """See `argparse`."""
        all_actions = list(actions)
        needed = [action for action in all_actions if _is_needed(action)]
        if usage is None and len(all_actions) - len(needed) > MOST_IN_USAGE:
            all_actions = [*needed, argparse.Action([], "options", metavar="[options]")]
            groups = []
        super().add_usage(usage, all_actions, groups, prefix)

    def start_section(self, heading: str | None) -> None:
        """See `argparse`."""
        lines = textwrap.wrap(heading or "", self._width - self._current_indent - 1)
        super().start_section("\n".join(lines) or heading)

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        """Returns the last word of an option, which is its unit: EV of --energy-ev."""
        return super()._get_default_metavar_for_optional(action).rpartition("_")[2]

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Returns paragraphs as lines; a line that begins with spaces is a command."""
        paragraphs = []
        for paragraph in text.split("\n\n"):
            lines: list[str] = []
            prose: list[str] = []
            for line in paragraph.splitlines():
                if line.startswith(" "):
                    lines += _wrapped(prose, width)
                    prose = []
                    lines += wrapped_command(line, width)
                else:
                    prose.append(line)
            lines += _wrapped(prose, width)
            paragraphs.append("\n".join(indent + line for line in lines))
        return "\n\n".join(paragraphs)


def _is_needed(action: argparse.Action) -> bool:
    """Returns whether a command does not run without the argument."""
    return action.required or not action.option_strings


def _wrapped(prose: Sequence[str], width: int) -> list[str]:
    """Returns lines of prose at a width; words with hyphens, as options have, stay whole."""
    return textwrap.wrap(" ".join(prose), width, break_on_hyphens=False, break_long_words=False)


def wrapped_command(command: str, width: int) -> list[str]:
    """Returns the lines of a shell command, which is broken in front of options.

    Args:
        command: The command, with its indent.
        width: Columns of the terminal.
    """
    indent = command[: len(command) - len(command.lstrip())]
    command, separator, launcher = command.partition(" -- ")
    pieces = re.split(r" (?=--?[a-z])", command)
    if separator:
        pieces.append(f"-- {launcher}")
    lines = [pieces[0]]
    for piece in pieces[1:]:
        if len(lines[-1]) + len(piece) + len("  \\") <= width:
            lines[-1] += f" {piece}"
        else:
            lines[-1] += " \\"
            lines.append(f"{indent}    {piece}")
    return lines


class CommandParser(argparse.ArgumentParser):
    """An argument parser for one command, or for a program of several commands.

    Args:
        examples: Command lines that the help shows; `%(prog)s` is the program with the command.
        default_command: The command that is meant if the first argument names none.
        elsewhere: Another program, and names of its commands that people expect of this one.
    """

    def __init__(
        self,
        *,
        examples: Sequence[str] = (),
        notes: str = "",
        default_command: str | None = None,
        elsewhere: tuple[str, Sequence[str]] = ("", ()),
        **settings: Any,
    ) -> None:
        super().__init__(formatter_class=HelpFormatter, **settings)
        self.examples = tuple(line.replace("%(prog)s", self.prog) for line in examples)
        paragraphs = []
        if self.examples:
            paragraphs.append("\n  ".join(("examples:", *self.examples)))
        if notes:
            paragraphs.append(notes)
        self.epilog = "\n\n".join(paragraphs) or None
        self.commands: dict[str, CommandParser] = {}
        self._default_command = default_command
        self._elsewhere = elsewhere
        self._words: list[str] = []  # that were parsed last
        self._subparsers_action: Any = None

    def add_command(
        self,
        name: str,
        run: str,
        *,
        summary: str,
        description: str = "",
        examples: Sequence[str] = (),
        **settings: Any,
    ) -> "CommandParser":
        """Adds a command and returns its parser.

        Args:
            run: "module:function"; the function takes the parsed options and returns an exit code,
                or None for 0.
            description: Text at the top of the command's own help, after the summary.
        """
        if self._subparsers_action is None:
            self._subparsers_action = self.add_subparsers(
                title="commands",
                required=True,
                metavar="CONFIG|COMMAND" if self._default_command else "COMMAND",
                parser_class=CommandParser,
                prog=self.prog,
            )
        full = f"{summary[0].upper()}{summary[1:]}." + (f"\n\n{description}" if description else "")
        command: CommandParser = self._subparsers_action.add_parser(
            name, help=summary, description=full, examples=examples, **settings
        )
        command.set_defaults(run=run)
        self.commands[name] = command
        return command

    def add_config(self) -> None:
        """Adds the arguments of a command that reads a configuration."""
        self.add_argument("config", type=Path, metavar="CONFIG", help="an experiment's YAML file")
        self.add_overrides()

    def add_overrides(self) -> None:
        """Adds the option that overrides values of a configuration."""
        self.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="section.key=value",
            dest="overrides",
            help="override one value",
        )

    def add_json(self, help: str = "print one JSON object") -> None:
        """Adds the option that prints JSON in place of text."""
        self.add_argument("--json", action="store_true", help=help)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses `args`, with the default command in front if they name no command."""
        words = list(sys.argv[1:] if args is None else args)
        self._words = words
        if (
            self._default_command
            and words
            and words[0] not in (*self.commands, "-h", "--help", "--version")
        ):
            near = self._suggestion(words[0])
            if near and not os.path.exists(words[0]):
                self.error(f"no file and no command {words[0]}{near}")
            words = [self._default_command, *words]
        options, unknown = super().parse_known_args(self._positionals_first(words), namespace)
        if unknown and not self.commands:  # an error here, where the command is known
            self.error(self._unknown_arguments(unknown))
        return options, unknown

    def _unknown_arguments(self, unknown: Sequence[str]) -> str:
        """Returns the message for words that the command does not take, with the option that the
        first one is probably meant to be.
        """
        message = f"unrecognized arguments: {' '.join(unknown)}"
        word = unknown[0].partition("=")[0]
        if not word.startswith("--"):
            return message
        (near, *_) = [*difflib.get_close_matches(word, self._option_string_actions, n=1), ""]
        return f"{message}; did you mean {near}?" if near else message

    def _positionals_first(self, words: list[str]) -> list[str]:
        """Returns the words with those in front that an option of several values would take from
        the command's own arguments, as in `--pixel-mrad 0.066 FILE`.
        """
        if self.commands or "--" in words:
            return words
        lacking = 0  # arguments of the command that are not given yet
        for argument in self._actions:
            lacking += not argument.option_strings and argument.nargs in (None, "+")
        parts: list[list[str]] = []  # an option with its values, or one argument
        of_texts: list[list[str]] = []  # those of options that take any number of texts
        surplus: list[str] = []
        position = 0
        while position < len(words):
            word = words[position]
            values = list(itertools.takewhile(_is_value, words[position + 1 :]))
            action = self._option_string_actions.get(word)
            taken = _values_taken(action, values)
            parts.append([word, *values[:taken]])
            position += 1 + taken
            if action is None:
                lacking -= _is_value(word)
            elif action.nargs == "+" and action.type in (int, float):
                surplus += values[taken:]
                lacking -= len(values) - taken
                position += len(values) - taken
            elif action.nargs == "+":
                of_texts.append(parts[-1])
        if lacking > 0 and of_texts and len(of_texts[-1]) > 1 + lacking:
            surplus += of_texts[-1][-lacking:]
            del of_texts[-1][-lacking:]
        return [*surplus, *itertools.chain(*parts)]

    def complete_files_as_first_word(self, files: Callable[..., Iterable[str]]) -> None:
        """Lets the shell complete file names as the first word if that may be an argument of the
        default command.

        Args:
            files: A completer of argcomplete.
        """
        if self._default_command:
            self._subparsers_action.completer = lambda prefix, **context: [
                *self.commands,
                *files(prefix, **context),
            ]

    def _suggestion(self, word: str) -> str:
        """Returns the command that a word is probably meant to be, as a question; empty if there is
        none.
        """
        program, others = self._elsewhere
        meant = OTHER_NAMES.get(word, word)
        near = difflib.get_close_matches(meant, [*self.commands, *others], n=1, cutoff=0.75)
        if near and near[0] not in self.commands:
            return f"; did you mean `{program} {near[0]}`?"
        return f"; did you mean {near[0]}?" if near else ""

    def _misspelt(self) -> str:
        """Returns the option that a required one was probably written as, as a question; empty if
        all words of the command are options that it has.
        """
        for word in self._words:
            option = word.partition("=")[0]
            names = self._option_string_actions
            if not option.startswith("--") or any(name.startswith(option) for name in names):
                continue
            near = difflib.get_close_matches(option, self._option_string_actions, n=1)
            if near:
                return f"; {shorten(option)} is unknown, did you mean {near[0]}?"
        return ""

    def error(self, message: str) -> NoReturn:
        """Ends the process with exit code 2 and one line that names the fault."""
        unknown = re.fullmatch(
            r"argument COMMAND: invalid choice: '(.*)' \(choose from .*\)", message, re.DOTALL
        )
        if unknown:
            message = f"no command {shorten(unknown[1])}{self._suggestion(unknown[1])}"
        elif message.startswith("the following arguments are required"):
            message += self._misspelt()
        self.exit(2, f"error: {printable(message)}; see `{self.prog} --help`\n")


def parse(parser: CommandParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Returns the parsed options, or answers the shell's request for completions and ends the
    process.
    """
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        parser.complete_files_as_first_word(argcomplete.completers.FilesCompleter())
        argcomplete.autocomplete(parser)
    words = sys.argv[1:] if arguments is None else arguments
    if not words and parser.commands:
        parser.print_help()
        parser.exit()
    return parser.parse_args(words)


def _values_taken(action: argparse.Action | None, values: Sequence[str]) -> int:
    """Returns how many of the values behind an option's name are its own."""
    if action is None or action.nargs == 0:
        return 0
    if action.nargs is None:
        return min(1, len(values))
    if isinstance(action.nargs, int):
        return min(action.nargs, len(values))
    if action.nargs == "+" and action.type in (int, float):
        numbers = len(list(itertools.takewhile(_is_number, values)))
        return max(numbers, min(1, len(values)))
    return len(values)


def _is_value(word: str) -> bool:
    """Returns whether a word is no name of an option."""
    return not word.startswith("-") or word == "-" or _is_number(word)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def positive(text: str) -> int:
    """Returns an argument as a whole number of 1 or more."""
    return _whole(text, least=1)


def not_negative(text: str) -> int:
    """Returns an argument as a whole number of 0 or more."""
    return _whole(text, least=0)


def _whole(text: str, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of {least} or more")
    return int(text)
