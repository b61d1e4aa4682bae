"""`python -m namsa` is `namsa`."""

import sys

from namsa.cli import main

sys.exit(main())
