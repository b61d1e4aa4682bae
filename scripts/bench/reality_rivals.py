"""Ptychography and learned networks on scans with imperfections that nobody tells them: quality, time, failures.

    nice scripts/uv run python scripts/bench/reality_rivals.py --cases DIR [--dev DIR] [--work DIR] [--methods ...]
        [--checkpoint NAME] [--learned FILE] [--iterations 3 6 12 24 50] [--axes rate update modes] [--json]

A case is an HDF5 file of `namsa simulate` or `Sample.save`, on a raster, whose density is the truth: band-limited, at
the positions of the scan, with `density_max_q_per_angstrom` in its provenance. `reality_cases.py` makes such files. All
methods are told the energy, the semiangle, the positions and the detector's pixels, and no more: `TOLD` in
rivals/stacks.py. `--told thickness_angstrom` tells the thickness, too. Without it, one thickness is assumed of all
specimens; it is one of the settings. So is whether a case is reconstructed from probes of several defocus values, of
which that counts whose loss is least: `--begin '{"focuses_angstrom": [-50, 0, 50]}'` without a search.

Ptychography's settings, its number of iterations and the line from phase to density are searched for on the cases of
--dev, by default those of rivals/development.py, as in reconstruct_vs_rivals.py. Then they are applied to all of
--cases. "SSIM" is under that line, "own fit" under the line that fits this very case best. A border of 2 Å is left out.
"Failed": no finite image, or an own fit below 0.5. Networks are judged as they are. A network of ours goes through
`train.reconstruct`, as a user's would; where that refuses a file, it has failed.

"CPU s" is the time of all threads, from reading the patterns to the image, without imports; of a network of ours
without its first call, which traces it. Every reconstruction is kept in --work, so that a run that was stopped goes on.
"ratio" is the mean SSIM of the best method of ptychography over that of the best network.
"""

import argparse
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import mean
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from rich.console import Console
from rich.table import Table
from rivals.methods import SEARCH, Programs, install, program_of
from rivals.report import number
from rivals.search import Choice, at, everywhere, judge, search
from rivals.stacks import TOLD, Image, Stack, case

from namsa.errors import InputError

FAILED = 0.5  # own fit
NETWORK, LEARNED = "network", "PtychoNN's kind"
Row = dict[str, Any]


def main() -> None:
    options = parse()
    told = (*TOLD, *options.told)
    cases = [case(path, told) for path in files(options.cases)]
    rows: list[Row] = []
    ptychography = [method for method in options.methods if method in SEARCH]
    if ptychography:
        options.programs = Programs(options.work, options.workers, options.threads)
        if not options.dev:
            from rivals.development import write_development

            options.dev = [options.work / "development"]
            write_development(options.dev[0])
        dev = [case(path, told) for path in files(options.dev)]
        for method in ptychography:
            install(program_of(method), options.work)
            choice = search(method, dev, "density", options)
            print(json.dumps({"method": method, "dev_ssim": choice.ssim, "settings": settings(choice, options)}))
            answers = everywhere(method, cases, choice.settings, options)
            found = [(at(choice, answer), answer["cpu_seconds"][choice.leg]) for answer in answers]
            rows += judged(method, cases, found, choice.line)
        options.programs.stop()
    if LEARNED in options.methods:
        from learned_rival import load, reconstruct

        model = load(options.learned)
        rows += judged(LEARNED, cases, [reconstruct(model, stack) for stack in cases])
    if NETWORK in options.methods:
        rows += judged(NETWORK, cases, through_network(options.checkpoint, files(options.cases)))
    show(rows)
    if options.json:
        print(json.dumps({"ratio": ratio(rows), "load": os.getloadavg()[1], "rows": rows}))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, nargs="+", required=True, help="files, or folders of *.h5, to judge on")
    parser.add_argument("--dev", type=Path, nargs="+", help="files, or folders of *.h5, to search settings on")
    parser.add_argument("--work", type=Path, default=Path("data/rivals"), help="environments, reconstructions")
    parser.add_argument(
        "--methods", nargs="+", choices=(*SEARCH, NETWORK, LEARNED), help="all; networks where they are given"
    )
    parser.add_argument("--told", nargs="+", default=[], metavar="NAME", help="what else of the provenance is told")
    parser.add_argument("--checkpoint", help="a network of ours: a run directory, a checkpoint or a name")
    parser.add_argument("--learned", type=Path, help="a network of learned_rival.py")
    parser.add_argument("--iterations", type=int, nargs="+", default=[3, 6, 12, 24, 50])
    parser.add_argument("--axes", nargs="*", help="search these settings only (`SEARCH` has their names)")
    parser.add_argument("--begin", type=json.loads, default={}, help='where the search begins, as {"rate": 0.5}')
    parser.add_argument("--workers", type=int, default=2, help="reconstructions side by side")
    parser.add_argument("--threads", type=int, default=1, help="of each")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args()
    given = [*([NETWORK] if options.checkpoint else []), *([LEARNED] if options.learned else [])]
    options.methods = options.methods or [*SEARCH, *given]
    for method, needed, flag in (
        (NETWORK, options.checkpoint, "--checkpoint"),
        (LEARNED, options.learned, "--learned"),
    ):
        if method in options.methods and not needed:
            parser.error(f"{method} takes {flag}")
    return options


def files(paths: Iterable[Path]) -> list[Path]:
    """The files that are named, and those of the folders."""
    found = [file for path in paths for file in (sorted(path.glob("*.h5")) if path.is_dir() else [path])]
    if not found:
        raise InputError(f"{', '.join(map(str, paths))}: no *.h5")
    return found


def through_network(checkpoint: str, paths: Iterable[Path]) -> list[tuple[Image, float]]:
    """A network's density of each file, NaN where it refuses the file, and its CPU seconds."""
    import train

    model, found = train.load_model(checkpoint), []
    for path in [next(iter(paths)), *paths]:  # the first one twice: TensorFlow traces the network
        started = time.process_time()
        try:
            density = train.reconstruct(path, model, beam_intensity=1.0).density
        except InputError as refused:
            print(refused)
            density = np.full_like(case(path).truth["density"], np.nan)
        found.append((density.astype(np.float64), time.process_time() - started))
    return found[1:]


def judged(
    method: str, cases: list[Stack], found: list[tuple[Image, float]], line: tuple[float, float] = (1.0, 0.0)
) -> list[Row]:
    """A row for each case, of its image and its CPU seconds."""
    rows = []
    for stack, (image, seconds) in zip(cases, found, strict=True):
        finite = bool(np.isfinite(image).all() and np.ptp(image))
        numbers = judge(image if finite else np.zeros_like(image), stack, "density", line)
        failed = not finite or (numbers["own_ssim"] or 0.0) < FAILED
        rows.append({"method": method, "case": stack.id, **numbers, "cpu_seconds": seconds, "failed": failed})
    return rows


def settings(choice: Choice, options: argparse.Namespace) -> dict[str, Any]:
    return choice.settings | {"iterations": options.iterations[choice.leg], "windowed": choice.windowed}


def show(rows: list[Row]) -> None:
    table = Table("case", "method", "SSIM", "own fit", "Pearson", "CPU s", "", box=None)
    for row in sorted(rows, key=lambda row: row["case"]):
        quality = [number(row[key]) for key in ("ssim", "own_ssim", "pearson")]
        table.add_row(row["case"], row["method"], *quality, f"{row['cpu_seconds']:.3g}", "failed" * row["failed"])
    for method in dict.fromkeys(row["method"] for row in rows):
        of = [row for row in rows if row["method"] == method]
        quality = [number(mean(row[key] or 0.0 for row in of)) for key in ("ssim", "own_ssim", "pearson")]
        failures = sum(row["failed"] for row in of)
        seconds = f"{mean(row['cpu_seconds'] for row in of):.3g}"
        table.add_row("mean", method, *quality, seconds, f"{failures} of {len(of)} failed" if failures else "")
    Console(width=120).print(table)


def ratio(rows: list[Row]) -> float | None:
    by_method: dict[str, list[float]] = {}
    for row in rows:
        by_method.setdefault(row["method"], []).append(row["ssim"] or 0.0)
    ptychography = [mean(values) for method, values in by_method.items() if method in SEARCH]
    networks = [mean(values) for method, values in by_method.items() if method not in SEARCH]
    return max(ptychography) / max(networks) if ptychography and networks else None


if __name__ == "__main__":
    main()
