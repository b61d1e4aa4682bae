# PYTHON_ARGCOMPLETE_OK
"""The command `namsa`, and `python -m namsa`."""

import sys

from namsa.cli import start


def main() -> int:
    """Runs the command line of this process and returns its exit code."""
    start.prepare()
    from namsa.cli.parser import main

    return main()


if __name__ == "__main__":
    sys.exit(main())
