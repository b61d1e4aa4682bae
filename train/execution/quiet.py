"""TensorFlow without what its C++ code writes to stderr that means nothing to a user, in programs
and notebooks.

Its own setting leaves errors that are none: a build for GPUs registers its libraries twice while it
is imported.
"""

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

LEVEL = "TF_CPP_MIN_LOG_LEVEL"
NOTES = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog\(\)|.*Unable to register cu\w+ factory|"
    rb"I\d{4} \d\d:\d\d:"  # absl's own format, which the setting does not reach
)


def install() -> None:
    """Takes effect when TensorFlow is imported, unless the environment asks for its messages.

    Of what TensorFlow writes later, level 3 keeps fatal errors. Its other errors become exceptions,
    while level 2 also prints notes that depend on the processor, such as oneDNN's about DT_HALF.
    """
    if os.environ.setdefault(LEVEL, "3") == "3" and "tensorflow" not in sys.modules:
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds TensorFlow as Python does, and imports it without notes."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `importlib.abc`."""
        spec = PathFinder.find_spec(name, path) if name == "tensorflow" else None
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def execute_without_notes(module: ModuleType) -> None:
                with without_notes():
                    execute(module)

            spec.loader.exec_module = execute_without_notes  # type: ignore[method-assign]
        return spec


@contextmanager
def without_notes() -> Iterator[None]:
    """Leaves out `NOTES` of what is written to stderr in the context; the rest is written at its
    end.
    """
    try:
        stderr = os.dup(2)
    except OSError:  # there is none
        yield
        return
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            written.seek(0)
            if rest := b"".join(line for line in written if not NOTES.match(line)):
                os.write(2, rest)
