"""`namsa doctor`: what this machine has and lacks."""

import argparse

from namsa.base.console import output_console
from namsa.cli import doctor as checks
from namsa.cli.commands.output import print_json


def doctor(options: argparse.Namespace) -> int:
    """Prints the report. Returns exit code 1 if something that is needed is missing."""
    report = checks.report(gpu=options.gpu)
    if options.json:
        print_json(report.as_json())
    else:
        output_console().print(checks.table(report))
        if remedies := checks.remedies(report):
            print(f"\nto get what is not there:\n{remedies}")  # each on one line, to be copied
    return 0 if report.ok else 1
