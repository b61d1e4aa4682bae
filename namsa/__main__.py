# PYTHON_ARGCOMPLETE_OK
"""Runs `namsa` as `python -m namsa`."""

import sys

from namsa.cli.parser import main

sys.exit(main())
