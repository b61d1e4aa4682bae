"""Ptychography, the classical images and a network of ours on the benchmark's stacks: quality and time, by thickness.

    nice scripts/uv run python scripts/bench/reconstruct_vs_rivals.py --data data/benchmark \
        --checkpoint runs/benchmark [--dev 2] [--test 5] [--thickness 20 100] [--dose 0 1e5 1e4]
        [--axes rate update slice_angstrom]

quantem (MIT), py4DSTEM (GPL), PtyRAD (LGPL) and phaser (MPL), each single-slice and multislice, run in environments of
their own that pip makes; iCoM and the mean image are namsa's. All see the same patterns and are told the axis, the
probe and the thickness. They are searched alike: on samples of the development split, setting by setting (`SEARCH`),
for the best mean SSIM ("own fit" below) of the density; the number of iterations is one of the settings, looked at
along the way. A search begins with what was best in the one before, in the order in which thicknesses and doses are
given. What is best there is applied to the test split, to different materials, without the one on which the search's
first values were tried.

A phase is no density. So a rival's image is windowed as the target is, or not, sampled at the target's pixels, and
mapped by the scale and offset that fit the development samples best, those left out where it failed ("SSIM"), or this
very sample ("own fit": more than anybody could know). It is judged as projected electron density and, from the same
reconstruction with an iteration and a line of its own, as projected potential, its own quantity. A network is judged as
it is ("SSIM"). A border of 2 Å is left out. "Loss" is by how much of itself it still fell in the last leg.

Time is CPU time of all threads, for others may work on the machine: of ptychography without imports, from reading the
stack to the best image; of the network from reading the record to the density, once TensorFlow has been warmed up.

Every reconstruction is kept in --work, so that a run that was stopped goes on, and so is a picture for every dose.
"ratio" is the best ptychography's mean SSIM over iCoM's, density.
"""

import argparse
import json
import os
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

from rivals.methods import PERFECT, SEARCH, Programs, Settings, install, program_of
from rivals.network import NETWORKS, Network
from rivals.report import draw, ratio, show
from rivals.search import (
    QUALITY,
    Choice,
    at,
    chosen,
    everywhere,
    falling,
    fitted,
    judge,
    means,
    search,
    standard_errors,
)
from rivals.stacks import TARGETS, Image, Samples, Stack, choose

from namsa.config.simulation import load_config

MEAN, TRUTH = "mean image", "the target itself"
METHODS = (*SEARCH, "iCoM", PERFECT, MEAN, TRUTH, *NETWORKS)


def main() -> None:
    options = parse()
    samples = Samples(load_config(options.config), options.work / "samples", options.data)
    for program in {program_of(method) for method in options.methods if method in SEARCH}:
        install(program, options.work)
    options.programs = Programs(options.work, options.workers, options.threads)
    options.network = Network(options.checkpoint, options.threads) if options.checkpoint else None
    rows: list[dict[str, Any]] = []
    pictures: dict[tuple[float, float], dict[str, Image]] = {}
    begin: dict[str, Settings] = {}
    for thickness, dose in product(options.thickness, options.dose):
        dev, test = (
            [samples.stack(entry, dose) for entry in choose(samples.entries, split, thickness, getattr(options, split))]
            for split in ("dev", "test")
        )
        if MEAN in options.methods:
            options.mean_image, options.averaged = samples.mean_image(thickness)
        pictures[thickness, dose] = {"truth": test[0].truth["density"]}
        for method in options.methods:
            row, pictures[thickness, dose][method] = compare(method, dev, test, options, begin)
            rows.append({"method": method, "thickness_angstrom": thickness, "dose": dose, **row})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    options.programs.stop()
    draw(pictures, test[0].frame.step, options.work)
    show(rows)
    if options.json:
        print(json.dumps({"ratio": ratio(rows), "load": os.getloadavg()[1], "rows": rows}))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=Path(__file__).parents[2] / "configs/benchmark.yaml")
    parser.add_argument("--data", type=Path, help="a dataset with the samples; what it lacks is simulated")
    parser.add_argument("--checkpoint", help="a network of ours: a run directory, a checkpoint or a name")
    parser.add_argument(
        "--work", type=Path, default=Path("data/rivals"), help="environments, reconstructions, pictures"
    )
    parser.add_argument("--thickness", type=float, nargs="+", default=[100, 200, 50, 20], help="Å")
    parser.add_argument("--dose", type=float, nargs="+", default=[0, 1e5, 1e4], help="electrons/Å²; 0 is noiseless")
    parser.add_argument("--dev", type=int, default=2, help="samples of each thickness to search settings on")
    parser.add_argument("--test", type=int, default=1000, help="samples of each thickness to judge on, at most")
    parser.add_argument("--methods", nargs="+", choices=METHODS, help="all, the networks where there is a checkpoint")
    parser.add_argument("--iterations", type=int, nargs="+", default=[3, 6, 12, 24, 50, 100, 200])
    parser.add_argument("--axes", nargs="*", help="search these settings only (`SEARCH` has their names)")
    parser.add_argument("--begin", type=json.loads, default={}, help='where the search begins, as {"rate": 0.5}')
    parser.add_argument("--workers", type=int, default=2, help="reconstructions side by side")
    parser.add_argument("--threads", type=int, default=1, help="of each")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args()
    options.methods = options.methods or [m for m in METHODS if options.checkpoint or m not in NETWORKS]
    if not options.checkpoint and set(options.methods) & set(NETWORKS):
        parser.error("a network's row takes --checkpoint")
    return options


def compare(
    method: str, dev: list[Stack], test: list[Stack], options: argparse.Namespace, begin: dict[str, Settings]
) -> tuple[dict[str, Any], Image]:
    """The method's row, means over `test` for both targets, and its density of the first of `test` at its own fit."""
    row: dict[str, Any] = {"samples": [stack.id for stack in test]}
    if method in (MEAN, TRUTH, *NETWORKS):
        for wanted in TARGETS[: 1 if method in NETWORKS else None]:
            found = [as_it_is(method, stack, wanted, options) for stack in test]
            row[wanted] = judged(found, Choice({}, 0, False, (1, 0), 0), test, wanted)
        if method == MEAN:
            row["averaged"] = options.averaged
        return row, as_it_is(method, test[0], "density", options)["images"][0][0]

    begin[method] = settings = search(method, dev, "density", options, begin.get(method)).settings
    choices = {wanted: chosen(method, dev, settings, wanted, options) for wanted in TARGETS}
    found = everywhere(method, test, settings, options)
    for wanted, choice in choices.items():
        row[wanted] = judged(found, choice, test, wanted)
        row[wanted] |= {"settings": choice.settings, "windowed": choice.windowed, "dev_ssim": choice.ssim}
        if method in SEARCH:
            row[wanted] |= {
                "iterations": options.iterations[choice.leg],
                "loss_still_falls": mean(falling(answer["losses"], options.iterations) for answer in found),
                "along": along(found, choice, test, wanted, options.iterations),
            }
    best = choices["density"]
    image = at(best, found[0])
    scale, offset = fitted(image, test[0].truth["density"])
    return row, scale * image + offset


def as_it_is(method: str, stack: Stack, wanted: str, options: argparse.Namespace) -> dict[str, Any]:
    """An answer, as of `images`, of what needs neither settings nor a line."""
    if method in NETWORKS:
        image, seconds = options.network.density(method, stack)
    else:
        image, seconds = (options.mean_image if method == MEAN else stack.truth)[wanted], 0.0
    return {"images": [[image]], "cpu_seconds": [seconds]}


def judged(found: list[dict[str, Any]], choice: Choice, test: list[Stack], wanted: str) -> dict[str, Any]:
    """Means over `test`, and each sample's numbers."""
    pictures = [at(choice, answer) for answer in found]
    each = [judge(image, stack, wanted, choice.line) for image, stack in zip(pictures, test, strict=True)]
    seconds = mean(answer["cpu_seconds"][choice.leg] for answer in found)
    return means(each) | {"standard_error": standard_errors(each), "each": each, "cpu_seconds": seconds}


def along(
    found: list[dict[str, Any]], choice: Choice, test: list[Stack], wanted: str, iterations: list[int]
) -> list[dict[str, Any]]:
    """What more iterations bring: the mean numbers after each leg, under the choice's window and line."""
    rows = []
    for leg, count in enumerate(iterations):
        numbers = judged(found, replace(choice, leg=leg), test, wanted)
        rows.append({"iterations": count} | {name: numbers[name] for name in (*QUALITY, "cpu_seconds")})
    return rows


if __name__ == "__main__":
    main()
