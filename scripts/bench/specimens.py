"""Specimens with defects, under faults of the instrument, by namsa and abTEM: what a network makes
of them alone, and with what `reconstruct` can add.

    scripts/uv run python scripts/bench/specimens.py [--seeds 1 2 ...] [--kinds NAME ...]
        [--physics namsa abtem] [--faults none detector ... together] [--ways pacbed columns]
        [--checkpoint NAME ...] [--work DIR] [--json]

`specimen_cases.py` draws the specimens: an edge over vacuum, a step, planted columns that the
formula does not have, antisites, a crystal on amorphous carbon, a tilted crystal, a boundary of any
angle, layers of low symmetry with vacancies, a bent crystal with relaxed faces; and two that are to
be flagged, amorphous carbon ("film") and crystals of 250 to 350 Å ("thick"). `specimen_scans.py`
simulates them once, with the beam of the network; the files stay in --work. The network is told the
beam, the step and the detector. No formula is one that it has learnt: such a draw ends the bench.

Ways:

network     The density as `reconstruct` makes it when nothing else is told.
pacbed      Formula and thickness are told, and `--pacbed` is given. `--refine` beside it fits the
            microscope alone, and leaves this density as it is.
columns     The same with `--refine-columns`, which is experimental.

"size" is the factor of the true density that fits best, "covers" the share of pixels whose error is
within the stated uncertainty. A specimen is worse by a way if its SSIM is less than the network's
by more than `WORSE`. "ratio" is the mean SSIM of the network alone over the specimens that are not
to be flagged.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import frame

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import h5py
import numpy as np
from reality_cases import PIXEL_MRAD, STEP
from specimen_cases import KINDS, OUTSIDE, Drawn, draw
from specimen_scans import PHYSICS, VARIANTS, path_of, write

import train
from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.io.calibration import CalibrationOverrides
from train.apply.learnt import learnt
from train.apply.models import Model
from train.measure.metrics import image_metrics

STEPS = 20
WORSE = 0.002  # of SSIM
WAYS = {
    "network": train.ReconstructionOptions(trust=False),
    "pacbed": train.ReconstructionOptions(pacbed=True, trust=False),
    "columns": train.ReconstructionOptions(
        refine_steps=STEPS, refine_columns=True, pacbed=True, trust=False
    ),
}
Row = dict[str, Any]


def main() -> int:
    parser = frame.parser(__doc__)
    parser.add_argument("--seeds", nargs="+", type=int, default=[5], help="of the draws")
    parser.add_argument(
        "--kinds", nargs="+", default=[*KINDS, *OUTSIDE], choices=[*KINDS, *OUTSIDE]
    )
    parser.add_argument("--physics", nargs="+", default=["namsa"], choices=PHYSICS)
    parser.add_argument("--faults", nargs="+", default=["none"], choices=VARIANTS)
    parser.add_argument("--ways", nargs="*", default=[], choices=[*WAYS][1:])
    parser.add_argument("--checkpoint", nargs="+", default=["200kv-20mrad-reality"], metavar="NAME")
    parser.add_argument("--work", type=Path, default=Path("data/specimens"))
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in options.checkpoint:
        model = train.load_model(name)
        for seed in options.seeds:
            for kind in options.kinds:
                conditions = model.conditions
                drawn = draw(seed, kind, conditions.energy_ev, conditions.semiangle_mrad)
                check_unlearnt(model, drawn, kind)
                for physics in options.physics:
                    for fault in options.faults:
                        path = path_of(drawn, physics, fault, options.work)
                        if not path.exists():
                            write(drawn, path, physics, fault)
                        row = {"kind": kind, "physics": physics, "fault": fault}
                        row |= evaluate(drawn, path, model, ["network", *options.ways])
                        print(line(row), flush=True)
                        rows.append(row)
    for table in tables(rows):
        frame.show(table)
    right = [row["network"]["ssim"] for row in rows if row["kind"] in KINDS]
    frame.finish(options, {"ratio": float(np.mean(right)) if right else 0.0, "rows": rows})
    return 0


def check_unlearnt(model: Model, drawn: Drawn, kind: str) -> None:
    """Raises InputError if a network has learnt the crystal of a specimen."""
    if kind != "film" and learnt(model).kinship(drawn.formula) == "formula":
        raise InputError(f"{model.name} has learnt {drawn.formula}: take another draw")


def evaluate(drawn: Drawn, path: Path, model: Model, ways: Sequence[str]) -> Row:
    """Returns the numbers of a scan by each way."""
    with h5py.File(path) as file:
        patterns = file["patterns"][()]
        truth = file["truth"][()]
    overrides = CalibrationOverrides(
        energy_ev=drawn.condition.energy_ev,
        semiangle_mrad=drawn.condition.semiangle_mrad,
        scan_step_angstrom=STEP,
        pixel_mrad=PIXEL_MRAD,
    )
    row: Row = {
        "case": path.stem,
        "checkpoint": model.name,
        "formula": drawn.formula,
        "thickness": drawn.thickness,
        "dose": drawn.condition.dose,
    }
    for way in ways:
        specimen = train.KnownSpecimen()
        if way != "network":
            specimen = train.KnownSpecimen(drawn.thickness, drawn.formula)
        result = train.reconstruct(
            patterns, model, overrides, beam_intensity=1.0, specimen=specimen, options=WAYS[way]
        )
        row[way] = numbers(result.density, result.uncertainty, truth)
        row[way]["flagged"] = bool(result.outside)
        row[way]["reason"] = " ".join(result.lines)
        row[way]["contrast"] = result.provenance.get("error_over_contrast")
        if way == "columns":
            row["blocks"] = result.provenance.get("refined", {}).get("blocks", [])
    return row


def numbers(density: Array, uncertainty: Array | None, truth: Array) -> Row:
    """Returns SSIM, size and coverage of a density."""
    measured: Row = {
        "ssim": float(image_metrics(density, truth, huber_delta=1.0)["ssim"] or 0.0),
        "size": float((density * truth).sum() / (truth**2).sum()),
    }
    if uncertainty is not None:
        measured["covers"] = float(np.mean(np.abs(density - truth) <= uncertainty))
    return measured


def line(row: Row) -> str:
    """Returns the line of a scan."""
    cells = [
        f"{row['checkpoint']:20s} {row['case']:26s} {row['formula']:7s} "
        f"{row['thickness']:4.0f} Å {row['dose']:8.0f} e/Å²"
    ]
    for way in WAYS:
        if way in row:
            measured = row[way]
            text = (
                f"{way} SSIM {measured['ssim']:.3f} size {measured['size']:.2f} covers "
                f"{measured.get('covers', np.nan):.2f}"
            )
            if measured["flagged"]:
                text += f" flagged ({measured['reason']})"
            cells.append(text)
    return "; ".join(cells)


def tables(rows: Sequence[Row]) -> list[Any]:
    """Returns a table a network: means over specimens, a row for each physics, fault and way."""
    made = []
    for checkpoint in dict.fromkeys(frame.column(rows, "checkpoint")):
        of_network = [row for row in rows if row["checkpoint"] == checkpoint]
        table = frame.table(
            *("physics", "fault", "way", "specimens", "mean SSIM", "a tenth below", "worst"),
            *("size, rms", "1σ covers: mean", "least, not flagged", "worse", "flagged"),
            title=checkpoint,
        )
        groups = dict.fromkeys((row["physics"], row["fault"]) for row in of_network)
        for physics, fault in groups:
            for way in WAYS:
                for which in (KINDS, OUTSIDE):
                    chosen = []
                    for row in of_network:
                        of_group = (row["physics"], row["fault"]) == (physics, fault)
                        if of_group and way in row and row["kind"] in which:
                            chosen.append(row)
                    if chosen:
                        name = way if which is KINDS else f"{way}, to be flagged"
                        table.add_row(physics, fault, name, *summary(chosen, way))
        made.append(table)
    return made


def summary(rows: Sequence[Row], way: str) -> list[str]:
    """Returns the cells of specimens by a way."""
    measured = frame.column(rows, way)
    ssim = np.array(frame.column(measured, "ssim"))
    size = np.array(frame.column(measured, "size"))
    covers = np.array([one.get("covers", np.nan) for one in measured])
    flagged = np.array(frame.column(measured, "flagged"))
    worse = sum(row[way]["ssim"] < row["network"]["ssim"] - WORSE for row in rows)
    return [
        str(len(rows)),
        f"{ssim.mean():.3f}",
        f"{np.quantile(ssim, 0.1):.3f}",
        f"{ssim.min():.3f}",
        f"{100 * np.sqrt(np.mean((size - 1) ** 2)):.0f} %",
        f"{np.mean(covers):.2f}",
        "–" if flagged.all() else f"{np.min(covers[~flagged]):.2f}",
        str(worse),
        str(int(flagged.sum())),
    ]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        sys.exit(f"error: {error}")
