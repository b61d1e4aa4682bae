"""The end of a command, for all command lines of the project.

Exit codes: 0 done, 1 the work failed, 2 bad input or usage, 130 interrupted. Each problem is one
line on stderr. An exception that the program does not foresee is one line, too; its traceback goes
to a file (`unforeseen_line`).
"""

import os
import platform
import shlex
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

from namsa.base.errors import DifferentError, InputError, WorkError
from namsa.base.installation import EXTRAS, command
from namsa.base.interrupts import is_interrupt, signals_interrupt
from namsa.base.registry import function_named
from namsa.base.text import printable, shorten
from namsa.cli.command_parser import CommandParser, parse
from namsa.cli.start import ENDING, INTERRUPTED

DEBUG = "NAMSA_DEBUG"  # the environment variable that prints tracebacks when it is 1
LIBRARIES = (
    *("namsa", "numpy", "scipy", "h5py", "lmdb", "pydantic"),
    *("tensorflow", "tensorflow-cpu", "jax", "keras", "horovod"),
)


def run_command(
    parser: CommandParser, arguments: Sequence[str] | None, interrupted: str | None = "interrupted"
) -> int:
    """Parses the command line, runs its command and returns the exit code; see `exit_code`."""
    warn_in_one_line()
    options = parse(parser, arguments)
    return exit_code(lambda: function_named(options.run)(options), interrupted)


def exit_code(work: Callable[[], int | None], interrupted: str | None = "interrupted") -> int:
    """Runs `work` and returns its exit code; a fault becomes one line on stderr.

    SIGTERM, and SIGHUP if it is not ignored, interrupt the work as Ctrl-C does. The work goes on if
    a program that reads its output ends, as `head` does: what it writes to files is wanted all the
    same.

    Args:
        work: Returns an exit code, or None for 0.
        interrupted: The line for a `KeyboardInterrupt` that has no message of its own. None prints
            no line.
    """
    with signals_interrupt(ENDING), _outputs_without_reader():
        return _exit_code(work, interrupted)


@contextmanager
def _outputs_without_reader() -> Iterator[None]:
    """Lets stdout and stderr go nowhere from the moment that the program which reads them has
    ended.
    """
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
    except KeyboardInterrupt as error:
        line = str(error) or interrupted or ""
        fault = error
    except SystemExit:
        raise
    except BaseException as error:
        fault = error
        message = fault_line(error)
        if message is None:
            fault = KeyboardInterrupt()
            message = interrupted
        line = message or ""
    if isinstance(fault, DifferentError):  # whose differences have a line each
        print(*map(printable, line.splitlines()), sep="\n", file=sys.stderr)
    elif line:
        print(printable(line), file=sys.stderr)
    return fault_code(fault)


def fault_line(fault: BaseException) -> str | None:
    """Returns the line about a fault, "error: ..."; `None` for an interrupt and the program's end.

    Lines of a `DifferentError` are several.
    """
    if isinstance(fault, SystemExit) or is_interrupt(fault):
        return None
    if isinstance(fault, InputError | WorkError):
        return f"error: {fault}"
    if isinstance(fault, OSError):
        return f"error: {fault.filename or 'the system'}: {fault.strerror or fault}"
    if isinstance(fault, MemoryError):
        return f"error: {_memory_line(fault)}"
    if isinstance(fault, ModuleNotFoundError):
        return f"error: {_missing_line(fault)}"
    # the last line of defence: a fault of the program itself
    return f"error: {unforeseen_line(fault)}"


def fault_code(fault: BaseException) -> int:
    """Returns the exit code for a fault: 2 for bad input, 130 for an interrupt, 1 for all
    others.
    """
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
    """Writes a traceback with the command, its folder and the versions to the system's temporary
    folder.
    """
    header = [
        f"command: {shlex.join([sys.executable, *sys.argv])}",
        f"folder: {Path.cwd()}",
        f"system: {platform.platform()}, Python {platform.python_version()}",
        f"versions: {', '.join(f'{name} {version}' for name, version in _installed_versions())}",
    ]
    text = "\n".join([*header, "", *traceback.format_exception(error)])
    with tempfile.NamedTemporaryFile(
        "wb", prefix="namsa-error-", suffix=".txt", delete=False
    ) as file:
        file.write(text.encode(errors="backslashreplace"))
        return Path(file.name)


def _installed_versions() -> list[tuple[str, str]]:
    """Returns the names and versions of those of `LIBRARIES` that are installed."""
    installed = {name: next(iter(metadata.distributions(name=name)), None) for name in LIBRARIES}
    return [
        (name, distribution.version) for name, distribution in installed.items() if distribution
    ]


def _memory_line(error: MemoryError) -> str:
    """Returns the line for work that does not fit into the memory of this machine."""
    detail = _one_line(error)
    return (
        f"not enough memory{f' ({detail})' if detail else ''}: use a smaller grid, fewer probe "
        "positions or a smaller batch, fewer processes on this machine, or a machine with more "
        "memory"
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
