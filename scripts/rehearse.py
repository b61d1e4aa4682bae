"""What rank 0 of a job does before, between and after its steps, at pretended numbers of ranks, on one machine.

    scripts/uv run python scripts/rehearse.py --ranks 1 96 1536 27600 --seconds 900

The code is that of the job. What the other ranks would send is made up: the reports of a preflight as files, the words
of a collective as its result, signs of life as datagrams (see scripts/rehearsal). Times are of the processor; they
leave out the network. A part whose time grows faster than the number of ranks is named.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rehearsal import files, words

Found = dict[str, float | str]
PARTS: dict[str, Callable[[int], Found]] = {
    "start: nodes and configuration agreed": words.start,
    "list of 435,702 samples: read, own share": files.share_of_list,
    "agreement on samples and their summaries": words.samples,
    "end by a signal to one rank": words.end_by_signal,
    "end by a failing rank": words.end_by_failure,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 96, 1536, 27_600], help="pretended numbers")
    parser.add_argument("--seconds", type=float, default=30.0, help="time for which the watchdog sees a healthy job")
    parser.add_argument("--warning-s", type=float, default=60.0, help="training.ranks.stall_warning_s")
    parser.add_argument("--parts", nargs="+", default=[], help="words of the parts to rehearse; none: all")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        parts = PARTS | {
            "preflight: reports of all ranks": lambda ranks: files.preflight(ranks, Path(folder)),
            "checkpoint of 26 million parameters, behind the training": lambda ranks: files.checkpoint(Path(folder)),
            "watchdog": lambda ranks: _watchdog(ranks, options.seconds, options.warning_s),
        }
        chosen = {name: part for name, part in parts.items() if _is_chosen(name, options.parts)}
        found = {name: {ranks: _timed(part, ranks) for ranks in options.ranks} for name, part in chosen.items()}
    print("| part | ranks | CPU, s | more |\n|---|---:|---:|---|")
    for name, by_ranks in found.items():
        for ranks, row in by_ranks.items():
            more = ", ".join(f"{key} {value:,.4g}" if isinstance(value, float | int) else f"{key} {value}"
                             for key, value in row.items() if key != "CPU s")  # fmt: skip
            print(f"| {name} | {ranks:,} | {row['CPU s']:.3f} | {more} |")
    fast = [
        name for name, by_ranks in found.items() if _grows_too_fast({n: row["CPU s"] for n, row in by_ranks.items()})
    ]
    print(f"grows faster than the number of ranks: {', '.join(fast) or 'nothing'}")
    if options.json:
        print(json.dumps({"ratio": None, "results": found, "too_fast": fast}))


def _is_chosen(name: str, words: Sequence[str]) -> bool:
    return not words or any(word in name for word in words)


def _timed(part: Callable[[int], Found], ranks: int) -> Found:
    began = time.process_time()
    found = part(ranks)
    return {"CPU s": time.process_time() - began} | found


def _watchdog(ranks: int, seconds: float, warning_s: float) -> Found:
    from rehearsal import watchdog

    found = watchdog.rehearse(ranks, seconds, warning_s)
    return {"CPU s": found.pop("CPU") * seconds} | found


def _grows_too_fast(seconds: dict[int, float]) -> bool:
    """Whether the time of the most ranks over that of a tenth or less of them exceeds the ratio of the numbers."""
    most = max(seconds)
    return any(
        seconds[most] / max(spent, 0.05) > 1.5 * most / ranks for ranks, spent in seconds.items() if 10 * ranks <= most
    )


if __name__ == "__main__":
    main()
