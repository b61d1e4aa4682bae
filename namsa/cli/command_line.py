"""What all command lines of the project share: parsers with examples, completion, and how a command ends.

Exit codes: 0 done, 1 the work failed, 2 bad input or usage, 130 interrupted. Each fault is one line on stderr. An
exception that the program does not foresee is one line, too; its traceback goes to a file (`unforeseen_line`).

A parser names the function of each command as text, "module:function". The module is imported when the command runs, so
that `--help` and completion need neither TensorFlow nor Matplotlib nor pymatgen.
"""

import argparse
import difflib
import importlib
import os
import platform
import re
import shlex
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn, TextIO

from namsa.cli.start import ENDING, INTERRUPTED
from namsa.errors import InputError, WorkError
from namsa.installation import EXTRAS, command
from namsa.text import printable, shorten

DEBUG = "NAMSA_DEBUG"  # the environment variable that prints tracebacks when it is 1
LIBRARIES = (
    *("namsa", "numpy", "scipy", "h5py", "lmdb", "pydantic"),
    *("tensorflow", "tensorflow-cpu", "jax", "keras", "horovod"),
)
COMPLETION = (
    'Bash and zsh complete commands and options after `eval "$(register-python-argcomplete namsa)"`; for\n'
    "`python -m ...` too after `activate-global-python-argcomplete`."
)


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
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **settings)
        self.examples = tuple(line.replace("%(prog)s", self.prog) for line in examples)
        shown = "examples:\n" + "\n".join(f"  {line}" for line in self.examples) if examples else ""
        self.epilog = "\n\n".join(part for part in (shown, notes) if part) or None
        self.commands: dict[str, CommandParser] = {}
        self._default_command = default_command
        self._elsewhere = elsewhere
        self._subparsers_action: Any = None

    def add_command(
        self, name: str, run: str, *, summary: str, description: str = "", examples: Sequence[str] = (), **settings: Any
    ) -> "CommandParser":
        """Adds a command and returns its parser.

        Args:
            run: "module:function"; the function takes the parsed options and returns an exit code, or None for 0.
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

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses `args`, with the default command in front if they name no command."""
        words = list(sys.argv[1:] if args is None else args)
        if self._default_command and words and words[0] not in (*self.commands, "-h", "--help", "--version"):
            near = self._suggestion(words[0])
            if near and not os.path.exists(words[0]):
                self.error(f"no file and no command {words[0]}{near}")
            words = [self._default_command, *words]
        return super().parse_known_args(words, namespace)

    def complete_files_as_first_word(self, files: Callable[..., Any]) -> None:
        """Lets the shell complete file names as the first word if that may be an argument of the default command.

        Args:
            files: A completer of argcomplete.
        """
        if self._default_command:
            self._subparsers_action.completer = lambda prefix, **context: [*self.commands, *files(prefix, **context)]

    def _suggestion(self, word: str) -> str:
        """Returns the command that a word is probably meant to be, as a question; empty if there is none."""
        program, others = self._elsewhere
        near = difflib.get_close_matches(word, [*self.commands, *others], n=1, cutoff=0.75)
        if near and near[0] not in self.commands:
            return f"; did you mean `{program} {near[0]}`?"
        return f"; did you mean {near[0]}?" if near else ""

    def error(self, message: str) -> NoReturn:
        """Ends the process with exit code 2 and one line that names the fault."""
        unknown = re.fullmatch(r"argument COMMAND: invalid choice: '(.*)' \(choose from .*\)", message, re.DOTALL)
        if unknown:
            message = f"no command {shorten(unknown[1])}{self._suggestion(unknown[1])}"
        self.exit(2, f"error: {printable(message)}; see `{self.prog} --help`\n")


def parse(parser: CommandParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Returns the parsed options, or answers the shell's request for completions and ends the process."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        parser.complete_files_as_first_word(argcomplete.completers.FilesCompleter())
        argcomplete.autocomplete(parser)
    words = sys.argv[1:] if arguments is None else arguments
    if not words and parser.commands:
        parser.print_help()
        parser.exit()
    return parser.parse_args(words)


def command_function(reference: str) -> Callable[[argparse.Namespace], int | None]:
    """Returns the function that "module:function" names."""
    module, _, function = reference.partition(":")
    found: Callable[[argparse.Namespace], int | None] = getattr(importlib.import_module(module), function)
    return found


def run_command(parser: CommandParser, arguments: Sequence[str] | None, interrupted: str | None = "interrupted") -> int:
    """Parses the command line, runs its command and returns the exit code; see `exit_code`."""
    warn_in_one_line()
    options = parse(parser, arguments)
    return exit_code(lambda: command_function(options.run)(options), interrupted)


def exit_code(work: Callable[[], int | None], interrupted: str | None = "interrupted") -> int:
    """Runs `work` and returns its exit code; a fault becomes one line on stderr.

    SIGTERM, and SIGHUP if it is not ignored, interrupt the work as Ctrl-C does. The work goes on if a program that
    reads its output ends, as `head` does: what it writes to files is wanted all the same.

    Args:
        work: Returns an exit code, or None for 0.
        interrupted: The line for a `KeyboardInterrupt` that has no message of its own. None prints no line.
    """
    with _signals_interrupt(), _outputs_without_reader():
        return _exit_code(work, interrupted)


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Makes signals that end a process raise KeyboardInterrupt, so that unfinished files are removed."""
    in_main = threading.current_thread() is threading.main_thread()
    numbers = [each for each in ENDING if in_main and signal.getsignal(each) is not signal.SIG_IGN]
    previous = [(number, signal.signal(number, signal.default_int_handler)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in previous:
            signal.signal(number, handler)


@contextmanager
def _outputs_without_reader() -> Iterator[None]:
    """Lets stdout and stderr go nowhere from the moment that the program which reads them has ended."""
    outputs = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_Output(stream) for stream in outputs)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = outputs


class _Output:
    """A text stream that may lose its reader.

    Args:
        stream: The stream, which has a descriptor if it can lose a reader.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes text."""
        return self._call(lambda: self._stream.write(text))

    def flush(self) -> None:
        """Flushes what was written."""
        self._call(lambda: self._stream.flush() or 0)

    def _call(self, work: Callable[[], int]) -> int:
        try:
            return work()
        except BrokenPipeError:  # what is in the buffer goes nowhere, too
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
            return 0

    def __getattr__(self, name: str) -> Any:
        """Returns what else the stream has."""
        return getattr(self._stream, name)


def _exit_code(work: Callable[[], int | None], interrupted: str | None) -> int:
    fault: BaseException
    try:
        code = int(work() or 0)
        sys.stdout.flush()  # a full disk shows here, not when Python ends
        return code
    except (InputError, WorkError) as error:
        line, fault = f"error: {error}", error
    except OSError as error:
        line, fault = f"error: {error.filename or 'the system'}: {error.strerror or error}", error
    except KeyboardInterrupt as error:
        line, fault = str(error) or interrupted or "", error
    except MemoryError as error:
        line, fault = f"error: {_memory_line(error)}", error
    except ModuleNotFoundError as error:
        line, fault = f"error: {_missing_line(error)}", error
    except SystemExit:
        raise
    except BaseException as error:  # the last line of defence: a fault of the program itself
        line, fault = f"error: {unforeseen_line(error)}", error
    if line:
        print(printable(line), file=sys.stderr)
    return fault_code(fault)


def fault_code(fault: BaseException) -> int:
    """Returns the exit code for a fault: 2 for bad input, 130 for an interrupt, 1 for all others."""
    if isinstance(fault, KeyboardInterrupt):
        return INTERRUPTED
    return 2 if isinstance(fault, InputError) else 1


def unforeseen_line(error: BaseException) -> str:
    """Writes the traceback of an unforeseen exception to a file, and returns one line that says so.

    With `NAMSA_DEBUG=1` in the environment, the traceback is printed on stderr instead.
    """
    described = f"unexpected {type(error).__name__}: {_one_line(error) or 'without a message'}"
    if os.environ.get(DEBUG) == "1":
        traceback.print_exception(error)
        return described
    try:
        place = f"the traceback is in {_write_traceback(error)}; please report it with this file"
    except OSError as fault:
        place = f"its traceback could not be written ({fault.strerror}); {DEBUG}=1 prints it"
    return f"{described}; this is a fault of the program: {place}"


def _write_traceback(error: BaseException) -> Path:
    """Writes a traceback with the command, its folder and the versions to the system's temporary folder."""
    header = [
        f"command: {shlex.join([sys.executable, *sys.argv])}",
        f"folder: {Path.cwd()}",
        f"system: {platform.platform()}, Python {platform.python_version()}",
        f"versions: {', '.join(f'{name} {version}' for name, version in _installed_versions())}",
    ]
    text = "\n".join([*header, "", *traceback.format_exception(error)])
    with tempfile.NamedTemporaryFile("wb", prefix="namsa-error-", suffix=".txt", delete=False) as file:
        file.write(text.encode(errors="backslashreplace"))
        return Path(file.name)


def _installed_versions() -> list[tuple[str, str]]:
    """Returns the names and versions of those of `LIBRARIES` that are installed."""
    installed = {name: next(iter(metadata.distributions(name=name)), None) for name in LIBRARIES}
    return [(name, found.version) for name, found in installed.items() if found]


def _memory_line(error: MemoryError) -> str:
    """Returns the line for work that does not fit into the memory of this machine."""
    detail = _one_line(error)
    return (
        f"not enough memory{f' ({detail})' if detail else ''}: use a smaller grid, fewer probe positions or a smaller "
        "batch, fewer processes on this machine, or a machine with more memory"
    )


def _missing_line(error: ModuleNotFoundError) -> str:
    """Returns the line for a package that an installation without extras does not have."""
    package = (error.name or "").partition(".")[0]
    if package not in {*EXTRAS, "horovod"}:
        return unforeseen_line(error)
    return f"{package} is not installed: {command(package)}"


def _one_line(error: BaseException) -> str:
    """Returns an exception's message in one line of bounded length."""
    return shorten(" ".join(str(error).split()), 200)


def warn_in_one_line() -> None:
    """Makes Python's warnings one line each, without the line of code that they come from."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        print(f"warning: {shorten(' '.join(str(message).split()), 500)}", file=sys.stderr)

    warnings.showwarning = show


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
