"""`python -m namsa` is `namsa`."""

import sys

from namsa.cli.parser import main

sys.exit(main())
