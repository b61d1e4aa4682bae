"""`namsa verify` and `repair`: checksums of a dataset, and what to do about damaged records."""

import argparse
import sys
from typing import Literal

from namsa.base.text import plural, shorten
from namsa.cli.commands.output import print_failures, print_json, print_line
from namsa.dataset.repair import repair as repair_dataset
from namsa.dataset.verify import Verification
from namsa.dataset.verify import verify as verify_dataset

LONGEST_ID = 600  # characters; a damaged shard may hold any key of up to 511
LISTS: tuple[Literal["corrupt", "missing", "repeated"], ...] = ("corrupt", "missing", "repeated")


def verify(options: argparse.Namespace) -> int:
    """Compares all checksums. Returns exit code 1 if a record is corrupt."""
    result = verify_dataset(options.directory)
    code = 1 if result["corrupt"] else 0
    if options.json:
        print_json(result)
    else:
        _print_lists(result)
    simulate = f"`namsa dataset CONFIG --out {options.directory}` simulates"
    if result["corrupt"]:
        print_line(
            f"`namsa repair {options.directory}` moves damaged records aside, {simulate} them "
            "again",
            file=sys.stderr,
        )
    elif result["missing"]:
        print_line(f"{simulate} what is missing", sys.stderr)
    if result["repeated"] and not result["corrupt"]:
        print_line(
            f"`namsa merge {options.directory} --out NEW` copies each sample once", sys.stderr
        )
    return code


def _print_lists(result: Verification) -> None:
    """Prints the counts, and each id that is corrupt, missing, repeated or failed."""
    counts = ", ".join(f"{len(result[kind])} {kind}" for kind in LISTS)
    failed = f"{result['failed']} failed, {result['skipped']} cannot be built"
    print_line(f"{plural(result['samples'], 'sample')}, {counts}, {failed}")
    for kind in LISTS:
        for sample_id in result[kind]:
            print_line(f"{kind} {shorten(sample_id, LONGEST_ID)}")
    print_failures(result["failures"])


def repair(options: argparse.Namespace) -> None:
    """Moves what is damaged into a folder of its own."""
    result = repair_dataset(options.directory)
    if options.json:
        print_json(result)
    elif not result["shards"]:
        print("nothing is damaged")
    else:
        for shard in result["shards"]:
            moved = (shorten(sample_id, LONGEST_ID) for sample_id in shard["moved"])
            damage = "the file is damaged" if shard["damaged"] else ", ".join(moved)
            print_line(
                f"{result['quarantine']}/{shard['shard']}: {damage}; {shard['kept']} whole samples "
                "kept"
            )
        print_line(f"`namsa dataset CONFIG --out {options.directory}` simulates what is missing")
