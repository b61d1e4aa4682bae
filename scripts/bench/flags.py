"""Scans that a network cannot be relied on for, and right ones: which of them `reconstruct` flags.

    scripts/uv run python scripts/bench/flags.py [--checkpoint NAME ...] [--cases NAME ...]
        [--work DIR] [--json]

Each case is a file that `namsa-train reconstruct` is run on, as a user would: the command is told
the beam, the step and the detector, and what the case says. Right ones are SrTiO3 of 50 Å and the
specimens with defects of `specimen_cases.py`, draw 1. "flagged" is what the command says and
writes (`outside` in the file); "SSIM" and "size" are against the true density, "covers" the share
of pixels whose error is within the stated uncertainty.

"ratio" is the share of cases that are flagged as they should be.
"""

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import frame

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import ase
import ase.build
import h5py
import numpy as np
import reality_specimens
from ase.spacegroup import crystal
from reality_cases import PIXEL_MRAD, STEP, VIBRATION, Condition
from reality_specimens import reordered, repeated
from specimen_cases import KINDS, LATERAL, Drawn, draw, film
from specimen_scans import path_of, write
from specimens import numbers

from namsa.base.errors import InputError
from train.__main__ import main as command

DRAW = 1  # of the right specimens
CONDITION = Condition(source=0.6, vibration=VIBRATION, dose=1e5)
Row = dict[str, Any]


class Case(NamedTuple):
    """A file, the options that describe it, and whether it is to be flagged."""

    name: str
    make: Callable[[], Drawn]
    given: tuple[str, ...] = ()  # further options of the command
    scaled_each: bool = False  # whether each pattern is divided by its maximum
    wrong: bool = True
    checkpoint: str | None = None  # the network; `None` takes those of --checkpoint


def titanate(thickness: float) -> Drawn:
    """Returns SrTiO3 along [001]."""
    atoms = reality_specimens.titanate(thickness, LATERAL)
    return Drawn(f"titanate-{thickness:g}", "SrTiO3", atoms, atoms.cell.lengths()[2], CONDITION)


def orthorhombic(a: str, b: str, sides: tuple[float, ...], thickness: float) -> Drawn:
    """Returns an oxide ABO3 of the structure of GdFeO3 along [010] of Pnma."""
    places = [(0.053, 0.25, 0.989), (0, 0, 0.5), (0.475, 0.25, 0.088), (0.293, 0.045, 0.703)]
    cell = crystal([a, b, "O", "O"], places, spacegroup=62, cellpar=[*sides, 90, 90, 90])
    atoms = repeated(reordered(cell, (2, 0, 1)), thickness, LATERAL)
    name = f"{a}{b}O3"
    return Drawn(f"{name}-{thickness:g}", name, atoms, atoms.cell.lengths()[2], CONDITION)


def nitride() -> Drawn:
    """Returns GaN (wurtzite) along [11-20], 115 Å, at 300 kV and 21.4 mrad."""
    cell = ase.build.bulk("GaN", "wurtzite", a=3.19, c=5.19, u=0.377, orthorhombic=True)
    atoms = repeated(reordered(cell, (1, 2, 0)), 115, LATERAL)
    condition = replace(CONDITION, energy_ev=300e3, semiangle_mrad=21.4)
    return Drawn("nitride-300", "GaN", atoms, atoms.cell.lengths()[2], condition)


def carbon(thickness: float) -> Drawn:
    """Returns amorphous carbon."""
    atoms: ase.Atoms
    formula, atoms = film(np.random.default_rng(2), thickness)
    return Drawn(f"carbon-{thickness:g}", formula, atoms, thickness, CONDITION)


def cases() -> list[Case]:
    """Returns all cases."""
    pacbed = ("--pacbed", "--formula", "SrTiO3", "--no-trust")
    given = ("--thickness-angstrom", "250", "--no-trust")
    listed = [
        Case("carbon-50", lambda: carbon(50)),
        Case("scaled-each", lambda: titanate(50), scaled_each=True),
        Case("titanate-250", lambda: titanate(250)),
        Case("titanate-250-told", lambda: titanate(250), given),
        Case("titanate-250-pacbed", lambda: titanate(250), pacbed),
        Case("titanate-400", lambda: titanate(400)),
        Case("PrScO3-185", lambda: orthorhombic("Pr", "Sc", (5.78, 8.03, 5.61), 185)),
        Case("YAlO3-210", lambda: orthorhombic("Y", "Al", (5.33, 7.375, 5.18), 210)),
        Case("nitride-300", nitride, checkpoint="300kv-21mrad-reality"),
        Case("nitride-300-fast", nitride, wrong=False, checkpoint="300kv-21mrad-fast"),
        Case("titanate-50", lambda: titanate(50), wrong=False),
        Case("titanate-50-pacbed", lambda: titanate(50), pacbed, wrong=False),
    ]
    for kind in KINDS:
        listed.append(Case(kind, partial(draw, DRAW, kind), wrong=False))
    return listed


def main() -> int:
    names = [case.name for case in cases()]
    parser = frame.parser(__doc__)
    parser.add_argument("--checkpoint", nargs="+", default=["200kv-20mrad-fast"], metavar="NAME")
    parser.add_argument("--cases", nargs="+", default=names, choices=names, metavar="NAME")
    parser.add_argument("--work", type=Path, default=Path("data/flags"))
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    rows = []
    for case in cases():
        if case.name in options.cases:
            checkpoints = [case.checkpoint] if case.checkpoint else options.checkpoint
            for checkpoint in checkpoints:
                row = evaluate(case, checkpoint, options.work)
                print(line(row), flush=True)
                rows.append(row)
    right = [row["flagged"] == row["wrong"] for row in rows]
    print(f"{sum(right)} of {len(rows)} are flagged as they should be")
    frame.finish(options, {"ratio": sum(right) / len(rows), "rows": rows})
    return 0


def evaluate(case: Case, checkpoint: str, folder: Path) -> Row:
    """Runs the command on a case and returns what it says."""
    drawn = case.make()
    path = path_of(drawn, "namsa", "none", folder)
    if not path.exists():
        write(drawn, path)
    with h5py.File(path) as file:
        truth = file["truth"][()]
        patterns = file["patterns"][()]
    options = ["--beam-intensity", "1"]
    data = folder / f"{case.name}-data.h5"
    if case.scaled_each:
        patterns = patterns / patterns.max(axis=(2, 3), keepdims=True)
        options = []
    with h5py.File(data, "w") as file:
        file["patterns"] = patterns
    out = folder / f"{case.name}-{Path(checkpoint).name}.h5"
    condition = drawn.condition
    options += ["--energy-ev", str(condition.energy_ev)]
    options += ["--semiangle-mrad", str(condition.semiangle_mrad)]
    options += ["--scan-step-angstrom", str(STEP), "--pixel-mrad", str(PIXEL_MRAD), *case.given]
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        status = command(
            ["reconstruct", str(data), "--checkpoint", checkpoint, "--out", str(out), *options]
        )
    if status:
        raise InputError(f"{case.name}: {output.getvalue()}")
    with h5py.File(out) as file:
        group = file["reconstruction"]
        density = group["density/data"][()]
        uncertainty = group["uncertainty/data"][()]
        familiarity = float(np.median(group["familiarity/data"][()]))
        provenance = json.loads(group.attrs["provenance"])
    return {
        "case": case.name,
        "checkpoint": checkpoint,
        "wrong": case.wrong,
        "flagged": bool(provenance["outside"]),
        "reason": provenance["outside"],
        **numbers(density, uncertainty, truth),
        "familiarity": familiarity,
        "contrast": provenance.get("error_over_contrast"),
        "intensities": provenance.get("intensities"),
    }


def line(row: Row) -> str:
    """Returns the line of a case."""
    verdict = "flagged" if row["flagged"] else "not flagged"
    expected = "" if row["flagged"] == row["wrong"] else ", WRONG"
    varied = row["intensities"] or {}
    return (
        f"{row['checkpoint']:20s} {row['case']:20s} {verdict}{expected} ({row['reason']}); SSIM "
        f"{row['ssim']:.3f} size {row['size']:.2f} covers {row['covers']:.2f}; familiarity "
        f"{row['familiarity']:.2f}, error over contrast {row['contrast'] or np.nan:.2f}, sums vary "
        f"by {varied.get('sum_variation', np.nan):.3f}, maxima by "
        f"{varied.get('maximum_variation', np.nan):.3f}"
    )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        sys.exit(f"error: {error}")
