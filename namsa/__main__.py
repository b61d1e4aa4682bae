# PYTHON_ARGCOMPLETE_OK
"""The command `namsa`, and `python -m namsa`."""

import sys

from namsa.cli import start  # noqa: F401 - before anything that takes time to import


def main() -> int:
    """Runs the command line of this process and returns its exit code."""
    from namsa.cli.parser import main

    return main()


if __name__ == "__main__":
    sys.exit(main())
