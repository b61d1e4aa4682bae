"""Rehearsal of the work of rank 0 before, between and after the steps of a job, at emulated
numbers of ranks, on one machine.

    scripts/uv run python scripts/rehearse.py --ranks 1 96 1536 27600 --seconds 900

The code is that of the job. What the other ranks would send is made up: the reports of a preflight
as files, what a collective gathers as its result, heartbeats as datagrams (see
scripts/rehearsal). Times are of the processor; they leave out the network. A part whose time grows
faster than the number of ranks is named.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rehearsal import files, watchdog, words

Facts = dict[str, float | str]
CPU = "CPU s"
LEAST_S = 0.05  # shorter times are taken for this


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        parts = parts_of(Path(folder), options.seconds, options.warning_s)
        results: dict[str, dict[int, Facts]] = {}
        for name, part in parts.items():
            if is_chosen(name, options.parts):
                results[name] = {ranks: timed(part, ranks) for ranks in options.ranks}
    show(results)
    too_fast = [name for name, by_ranks in results.items() if grows_too_fast(by_ranks)]
    print(f"grows faster than the number of ranks: {', '.join(too_fast) or 'nothing'}")
    if options.json:
        print(json.dumps({"ratio": None, "results": results, "too_fast": too_fast}))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--ranks", type=int, nargs="+", default=[1, 96, 1536, 27_600], help="emulated numbers"
    )
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="time for which the watchdog sees a healthy job"
    )
    parser.add_argument(
        "--warning-s", type=float, default=60.0, help="training.ranks.stall_warning_s"
    )
    parser.add_argument(
        "--parts", nargs="+", default=[], help="words of the parts to rehearse; none: all"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object as the last line"
    )
    return parser.parse_args()


def parts_of(folder: Path, seconds: float, warning_s: float) -> dict[str, Callable[[int], Facts]]:
    """Returns the parts by name; each takes the number of ranks.

    Args:
        folder: Where files are written.
        seconds: Time for which the watchdog sees a healthy job.
        warning_s: training.ranks.stall_warning_s.
    """

    def preflight(ranks: int) -> Facts:
        return files.preflight(ranks, folder)

    def checkpoint(ranks: int) -> Facts:
        return files.checkpoint(folder)

    def heartbeats(ranks: int) -> Facts:
        return watchdog.rehearse(ranks, seconds, warning_s)

    return {
        "start: nodes and configuration agreed": words.start,
        "list of 435,702 samples: read, own share": files.share_of_list,
        "agreement on samples and their summaries": words.samples,
        "end by a signal to one rank": words.end_by_signal,
        "end by a failing rank": words.end_by_failure,
        "preflight: reports of all ranks": preflight,
        "checkpoint of 26 million parameters, behind the training": checkpoint,
        "watchdog": heartbeats,
    }


def is_chosen(name: str, words: Sequence[str]) -> bool:
    return not words or any(word in name for word in words)


def timed(part: Callable[[int], Facts], ranks: int) -> Facts:
    """Returns the facts of a part with its processor time, unless the part measures that itself."""
    began = time.process_time()
    facts = part(ranks)
    return {CPU: time.process_time() - began} | facts


def show(results: Mapping[str, Mapping[int, Facts]]) -> None:
    print("| part | ranks | CPU, s | more |\n|---|---:|---:|---|")
    for name, by_ranks in results.items():
        for ranks, facts in by_ranks.items():
            cells = []
            for key, value in facts.items():
                if key != CPU:
                    cells.append(
                        f"{key} {value}" if isinstance(value, str) else f"{key} {value:,.4g}"
                    )
            print(f"| {name} | {ranks:,} | {facts[CPU]:.3f} | {', '.join(cells)} |")


def grows_too_fast(by_ranks: Mapping[int, Facts]) -> bool:
    """Returns whether the time of the most ranks over that of a tenth or less of them exceeds the
    ratio of the numbers.
    """
    most = max(by_ranks)
    for ranks, facts in by_ranks.items():
        if 10 * ranks <= most:
            growth = float(by_ranks[most][CPU]) / max(float(facts[CPU]), LEAST_S)
            if growth > 1.5 * most / ranks:
                return True
    return False


if __name__ == "__main__":
    main()
