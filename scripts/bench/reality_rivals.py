"""Ptychography and learned networks on scans with imperfections that they are not given: quality, time, failures.

    nice scripts/uv run python scripts/bench/reality_rivals.py --cases FILE ... [--dev DIR] [--work DIR] [--methods ...]
        [--checkpoint NAME] [--learned FILE] [--iterations 3 6 12 24 50] [--axes rate update modes] [--kept-out]
        [--json]
    nice scripts/uv run python scripts/bench/reality_rivals.py --cases FILE ... --methods network --checkpoint NAME
    nice scripts/uv run python scripts/bench/reality_rivals.py --cases FILE ... --show

A case is an HDF5 file of `namsa simulate` or `Sample.save`, on a raster, whose density is the truth: band-limited, at
the positions of the scan, with `density_max_q_per_angstrom` in its provenance. `reality_cases.py` makes such files. All
methods are told the energy, the semiangle, the positions and the detector's pixels, and no more: `TOLD` in
rivals/stacks.py. `--told thickness_angstrom` tells the thickness, too. Without it, one thickness is assumed of all
specimens; it is one of the settings. The defocus of the first probe is that of `--focuses` (C10) under which py4DSTEM
fits the case's patterns best after the first of the iterations; all of ptychography begin with it. On the development
cases they begin in focus.

Ptychography's settings, its number of iterations and the line from phase to density are searched for on the cases of
--dev, by default those of rivals/development.py, as in reconstruct_vs_rivals.py. Then they are applied to all of
--cases. "SSIM" is under that line, "own fit" under the line that fits this very case best. A border of 2 Å is left out.
"Failed": no finite image, or an own fit below 0.5. Networks are judged as they are. A network of ours goes through
`train.reconstruct`, as a user's would; where that refuses a file, it has failed. "network, refined" is the same with
--refine-steps; it alone is told the nominal thickness and the formula.

With --kept-out PtyRAD and phaser fit each case once more without the positions that refinement has kept out, and their
own forward models make the patterns there. The table has the residual R = Σ|√I_sim − √I|/Σ√I of these, of all three,
and the rows the divergence, too. It takes rows of "network, refined".

"CPU s" is the time of all threads, from reading the patterns to the image, without imports and without the estimate of
the defocus; of a network of ours without its first call, which traces it.

Every reconstruction is kept in --work, and every row in --results, so that a run that was stopped goes on; cases are
finished one after the other. A method's rows are made anew when its settings have changed, a network's whenever it is
among --methods. The table has all methods whose rows of --cases are in --results; cells that are missing are named.
`--show` prints it and measures nothing. "ratio" is the mean SSIM of the best method of ptychography over that of the
best network.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from reality_cases import LISTS
from reality_specimens import SPECIMENS
from rivals.methods import SEARCH, Programs, images, install, program_of
from rivals.results import Results, Row, ratio, show
from rivals.search import FOCUS_BY, Choice, at, focused, judge, search
from rivals.stacks import TOLD, Image, Stack, case

from namsa.errors import InputError, WorkError
from namsa.inverse.refinement import KEPT_OUT
from namsa.inverse.scan_model import divergences
from train.tasks.density.halves import column_errors

FAILED = 0.5  # own fit
NETWORK, REFINED, LEARNED = "network", "network, refined", "PtychoNN's kind"
KEPT = ("kept_out_divergence", "kept_out_residual")
METHODS = (NETWORK, REFINED, LEARNED, *SEARCH)
MADE_WITH = ("iterations", "focuses", "begin", "told")  # options that a row of ptychography depends on


def main() -> None:
    options = parse()
    paths = files(options.cases)
    cases = [case(path, (*TOLD, *options.told)) for path in paths]
    results = Results(options.results or options.work / "results.json")
    if not options.show:
        measure(options, paths, cases, results)
    names = [stack.id for stack in cases]
    rows = results.of([m for m in METHODS if any(results.row(name, m) for name in names)], names)
    show(rows)
    if options.json:
        print(json.dumps({"ratio": ratio(rows), "load": os.getloadavg()[1], "rows": rows}))


def measure(options: argparse.Namespace, paths: list[Path], cases: list[Stack], results: Results) -> None:
    """Adds the rows of all of the methods that are asked for, networks first."""
    for method, steps in ((NETWORK, 0), (REFINED, options.refine_steps)):
        if method in options.methods:
            for stack, (image, seconds, facts) in zip(cases, through_network(options, paths, steps), strict=True):
                made = {"checkpoint": options.checkpoint, "steps": steps}
                results.add(judged(method, stack, image, seconds) | facts | {"made": made})
    if LEARNED in options.methods:
        from learned_rival import load, reconstruct

        model = load(options.learned)
        for stack in cases:
            found = reconstruct(model, stack)
            results.add(judged(LEARNED, stack, *found) | {"made": {"learned": str(options.learned)}})
    ptychography = [method for method in options.methods if method in SEARCH]
    if ptychography:
        options.programs = Programs(options.work, options.workers, options.threads)
        through_ptychography(ptychography, cases, options, results)
        options.programs.stop()


def through_ptychography(methods: list[str], cases: list[Stack], options: argparse.Namespace, results: Results) -> None:
    """Adds the rows of all cases, one case after the other; a program that ends without an answer leaves none."""
    for program in {program_of(method) for method in (*methods, FOCUS_BY)}:
        install(program, options.work)
    if not options.dev:
        from rivals.development import write_development

        options.dev = [options.work / "development"]
        write_development(options.dev[0])
    dev = [case(path, (*TOLD, *options.told)) for path in files(options.dev)]
    choices = {method: search(method, dev, "density", options) for method in methods}
    for method, choice in choices.items():
        log(json.dumps({"method": method, "dev_ssim": choice.ssim, "settings": settings(choice, options)}))
    for stack in cases:
        for method, choice in choices.items():
            made = json.loads(json.dumps(asdict(choice) | {name: getattr(options, name) for name in MADE_WITH}))
            old = results.row(stack.id, method)
            if old and old["made"] == made and (KEPT[0] in old or not options.keep_out):
                continue
            try:
                refined = results.row(stack.id, REFINED)
                results.add(through_program(method, choice, stack, refined, options) | {"made": made})
            except WorkError as error:
                log(str(error))


def through_program(method: str, choice: Choice, stack: Stack, refined: Row | None, options: argparse.Namespace) -> Row:
    """The row of a case, with what fewer iterations reach; `refined` is that of `REFINED`."""
    begun, seconds = focused(stack, options.focuses, options)
    legs = options.iterations[: choice.leg + 1]
    answer = images(method, begun, choice.settings, argparse.Namespace(**vars(options) | {"iterations": legs}))
    row = judged(method, begun, at(choice, answer), answer["cpu_seconds"][choice.leg], choice.line)
    pictures = [leg[int(choice.windowed)] for leg in answer["images"]]
    own = {
        count: judge(image, begun, "density", choice.line)["own_ssim"] if np.isfinite(image).all() else None
        for count, image in zip(legs, pictures, strict=True)
    }
    log(f"{stack.id}, {method}: own fit {own}")
    if options.keep_out:
        row |= kept_out(method, choice, begun, refined, options)
    return row | {"c10": begun.c10, "focus_seconds": seconds, "own_ssim_by_iterations": own}


def kept_out(method: str, choice: Choice, stack: Stack, refined: Row | None, options: argparse.Namespace) -> Row:
    """Residual and divergence at the positions that refinement keeps out, of a fit that has not seen them."""
    if not refined:
        raise InputError(f"--kept-out takes the row of {REFINED!r} of {stack.id}: measure it first")
    shape, margin = stack.provenance["scan_shape"], refined["refined"]["left_out_at_edges"]
    row, column = (np.arange(n)[m : n - m] for n, m in zip(shape, margin, strict=True))
    used = (3 * (row - margin[0])[:, None] + column - margin[1]) % KEPT_OUT != 0
    positions = (row[:, None] * shape[1] + column)[~used].tolist()
    once = argparse.Namespace(**vars(options) | {"iterations": [options.iterations[choice.leg]], "kept_out": positions})
    measured, simulated = images(method, stack, choice.settings, once)["kept_out"]
    known, patterns = np.ones(len(positions), bool), stack.patterns[positions]
    found = divergences(simulated * (patterns.sum() / measured.sum()), patterns, ~known, known)
    return dict(zip(KEPT, found[1:], strict=True))


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, nargs="+", required=True, help="files, or folders of *.h5, to judge on")
    parser.add_argument("--dev", type=Path, nargs="+", help="files, or folders of *.h5, to search settings on")
    parser.add_argument("--work", type=Path, default=Path("data/rivals"), help="environments, reconstructions")
    parser.add_argument("--results", type=Path, help="rows that were measured; results.json in --work by default")
    parser.add_argument("--show", action="store_true", help="print what --results has, and measure nothing")
    parser.add_argument("--methods", nargs="+", choices=METHODS, help="all; networks where they are given")
    parser.add_argument("--kept-out", dest="keep_out", action="store_true", help="the residual at positions kept out")
    parser.add_argument("--told", nargs="+", default=[], metavar="NAME", help="what else of the provenance is told")
    parser.add_argument("--checkpoint", help="a network of ours: a run directory, a checkpoint or a name")
    parser.add_argument("--refine-steps", type=int, default=20, help=f"of {REFINED!r}, at most")
    parser.add_argument("--learned", type=Path, help="a network of learned_rival.py")
    parser.add_argument("--iterations", type=int, nargs="+", default=[3, 6, 12, 24, 50])
    parser.add_argument("--axes", nargs="*", help="search these settings only (`SEARCH` has their names)")
    parser.add_argument("--begin", type=json.loads, default={}, help='where the search begins, as {"rate": 0.5}')
    parser.add_argument("--focuses", type=float, nargs="+", default=[-50.0, 0.0, 50.0], help="C10 to begin with, Å")
    parser.add_argument("--workers", type=int, default=2, help="reconstructions side by side")
    parser.add_argument("--threads", type=int, default=1, help="of each")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args()
    given = [*([NETWORK] if options.checkpoint else []), *([LEARNED] if options.learned else [])]
    options.methods = options.methods or [*given, *SEARCH]
    for method, needed, flag in (
        (NETWORK, options.checkpoint, "--checkpoint"),
        (REFINED, options.checkpoint, "--checkpoint"),
        (LEARNED, options.learned, "--learned"),
    ):
        if method in options.methods and not needed and not options.show:
            parser.error(f"{method} takes {flag}")
    return options


def files(paths: Iterable[Path]) -> list[Path]:
    """The files that are named, and those of the folders."""
    found = [file for path in paths for file in (sorted(path.glob("*.h5")) if path.is_dir() else [path])]
    if not found:
        raise InputError(f"{', '.join(map(str, paths))}: no *.h5")
    return found


def through_network(
    options: argparse.Namespace, paths: Iterable[Path], steps: int
) -> Iterator[tuple[Image, float, dict[str, Any]]]:
    """Yields the density of each file, NaN where it is refused, the CPU seconds, and facts of refinement."""
    import train

    model = train.load_model(options.checkpoint)
    train.reconstruct(next(iter(paths)), model, beam_intensity=1.0)  # TensorFlow traces the network
    how = train.ReconstructionOptions(refine_steps=steps, trust=False)
    for path in paths:
        known = specimen(path) if steps else None
        started, facts = time.process_time(), {}
        try:
            result = train.reconstruct(path, model, beam_intensity=1.0, specimen=known, options=how)
            density, blocks = result.density, result.provenance.get("refined", {"blocks": []})["blocks"]
            if blocks:
                facts = {"refined": blocks[0]} | {key: value for key, value in blocks[0].items() if key in KEPT}
        except InputError as refused:
            log(str(refused))
            density = np.full_like(case(path).truth["density"], np.nan)
        yield density.astype(np.float64), time.process_time() - started, facts


def specimen(path: Path) -> Any:
    """What refinement is told of a case: its nominal thickness and its formula."""
    import train

    known = {each.name: each for cases in LISTS.values() for each in cases}[path.stem]
    formula = SPECIMENS[known.specimen](known.thickness).get_chemical_formula()
    return train.KnownSpecimen(known.thickness, formula)


def judged(method: str, stack: Stack, image: Image, seconds: float, line: tuple[float, float] = (1.0, 0.0)) -> Row:
    """The row of an image that took so many CPU seconds."""
    finite = bool(np.isfinite(image).all() and np.ptp(image))
    numbers = judge(image if finite else np.zeros_like(image), stack, "density", line)
    errors = column_errors(image, stack.truth["density"], stack.frame) if finite else None
    # `column_errors` has the error of the mean of two independent images; the truth has none.
    numbers["column_rms_angstrom"] = 2 * errors.position_angstrom if errors else None
    failed = not finite or (numbers["own_ssim"] or 0.0) < FAILED
    return {"method": method, "case": stack.id, **numbers, "cpu_seconds": seconds, "failed": failed}


def settings(choice: Choice, options: argparse.Namespace) -> dict[str, Any]:
    return choice.settings | {"iterations": options.iterations[choice.leg], "windowed": choice.windowed}


if __name__ == "__main__":
    try:
        main()
    except (InputError, WorkError) as error:
        sys.exit(f"error: {error}")
