"""Refinement on specimens that are no perfect crystals: better or worse than the network alone.

    scripts/uv run python scripts/bench/refinement_specimens.py [--seeds 1 2 ...] [--kinds NAME ...]
        [--checkpoint NAME] [--pacbed] [--work DIR] [--json]

`refinement_cases.py` draws and simulates them (once; the files stay in --work): an edge over
vacuum, a step, planted columns that the formula does not have, antisites, a crystal on amorphous
carbon, a tilted crystal, a boundary of any angle, layers of low symmetry with vacancies. The
network is told the beam, the step, the detector, the formula and the thickness.

"size" is the factor of the true density that fits best. "covers" is the share of pixels whose error
is within the stated uncertainty. "thickness" is as told and as refined, "source" (FWHM, Å) and
"tilt" (mrad) true and refined. "worse" counts specimens whose SSIM falls by more than `WORSE` by
refinement. With the kind "film" amorphous carbon is added, which is to be flagged; it counts in no
mean.

"ratio" is the share of specimens that refinement makes worse.
"""

import os
import sys
from pathlib import Path
from typing import Any

import frame

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import h5py
import numpy as np
from reality_cases import ENERGY_EV, SEMIANGLE_MRAD, STEP
from refinement_cases import KINDS, OUTSIDE, draw, write

import train
from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.io.calibration import CalibrationOverrides
from train.apply.learnt import learnt
from train.apply.models import Model
from train.measure.metrics import image_metrics

STEPS = 20
PIXEL_MRAD = 3.0
WORSE = 0.002  # of SSIM
Row = dict[str, Any]


def main() -> int:
    parser = frame.parser(__doc__)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=[*KINDS, *OUTSIDE])
    parser.add_argument("--checkpoint", default="200kv-20mrad-reality", metavar="NAME")
    parser.add_argument("--pacbed", action="store_true", help="scale the density before")
    parser.add_argument("--work", type=Path, default=Path("data/refinement-specimens"))
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    model = train.load_model(options.checkpoint)
    rows = []
    for seed in options.seeds:
        for kind in options.kinds:
            row = evaluate(seed, kind, model, options.work, options.pacbed)
            print(line(row), flush=True)
            rows.append(row)
    inside = [row for row in rows if row["kind"] in KINDS]
    share = summarise(inside) if inside else 0.0
    frame.finish(options, {"ratio": share, "rows": rows})
    return 0


def evaluate(seed: int, kind: str, model: Model, folder: Path, pacbed: bool) -> Row:
    """Returns the numbers of a specimen, by the network alone and refined."""
    drawn = draw(seed, kind)
    if learnt(model).kinship(drawn.formula) == "formula" and kind in KINDS:
        raise InputError(f"{model.name} has learnt {drawn.formula}: take another crystal")
    path = folder / f"{drawn.name}.h5"
    if not path.exists():
        write(drawn, path)
    with h5py.File(path) as file:
        patterns = file["patterns"][()]
        truth = file["truth"][()]
    told = CalibrationOverrides(
        energy_ev=ENERGY_EV,
        semiangle_mrad=SEMIANGLE_MRAD,
        scan_step_angstrom=STEP,
        pixel_mrad=PIXEL_MRAD,
    )
    results = []
    for steps in (0, STEPS):
        result = train.reconstruct(
            patterns,
            model,
            told,
            beam_intensity=1.0,
            specimen=train.KnownSpecimen(drawn.thickness, drawn.formula),
            options=train.ReconstructionOptions(
                refine_steps=steps,
                refine_columns=steps > 0,
                pacbed=pacbed and steps > 0,
                trust=False,
            ),
        )
        results.append(result)
    network, refined = results
    (block,) = refined.provenance["refined"]["blocks"]
    condition = drawn.condition
    return {
        "case": drawn.name,
        "kind": kind,
        "formula": drawn.formula,
        "dose": condition.dose,
        "outside": network.outside,
        "network": numbers(network.density, network.uncertainty, truth),
        "refined": numbers(refined.density, refined.uncertainty, truth),
        "taken": block.get("taken", 0.0),
        "gain": block.get("gain_of_columns", 0.0),
        "thickness": [drawn.thickness, block.get("thickness_angstrom")],
        "source": [condition.source, block.get("source_size_angstrom")],
        "tilt": [
            float(np.hypot(*condition.tilt)),
            float(np.hypot(*block.get("tilt_mrad", [0, 0]))),
        ],
    }


def numbers(density: Array, uncertainty: Array | None, truth: Array) -> dict[str, float]:
    """Returns SSIM, size and coverage of a density."""
    found = {
        "ssim": float(image_metrics(density, truth, huber_delta=1.0)["ssim"] or 0.0),
        "size": float((density * truth).sum() / (truth**2).sum()),
    }
    if uncertainty is not None:
        found["covers"] = float(np.mean(np.abs(density - truth) <= uncertainty))
    return found


def line(row: Row) -> str:
    """Returns the line of a specimen."""
    cells = [f"{row['case']:12s} {row['formula']:7s} {row['dose']:8.0f} e/Å²"]
    for name in ("network", "refined"):
        found = row[name]
        cells.append(
            f"{name} SSIM {found['ssim']:.3f} size {found['size']:.2f} covers "
            f"{found.get('covers', np.nan):.2f}"
        )
    for name in ("thickness", "source", "tilt"):
        known, fitted = row[name]
        cells.append(f"{name} {known:.3g} → {'–' if fitted is None else format(fitted, '.3g')}")
    cells.append(f"taken {row['taken']:.2f}, gain {row['gain']:.2f}")
    if row["outside"]:
        cells.append("outside")
    return "; ".join(cells)


def summarise(rows: list[Row]) -> float:
    """Prints means of both; returns the share of specimens that refinement makes worse."""
    for name in ("network", "refined"):
        ssim = [row[name]["ssim"] for row in rows]
        size = np.array([row[name]["size"] for row in rows])
        covers = [row[name].get("covers", np.nan) for row in rows]
        print(
            f"{name}: SSIM mean {np.mean(ssim):.3f}, worst {min(ssim):.3f}; size off by "
            f"{100 * np.sqrt(np.mean((size - 1) ** 2)):.0f} % (rms); 1σ covers "
            f"{np.mean(covers):.2f}, least {min(covers):.2f}"
        )
    worse = 0
    better = 0
    for row in rows:
        change = row["refined"]["ssim"] - row["network"]["ssim"]
        worse += change < -WORSE
        better += change > WORSE
    print(f"of {len(rows)} specimens refinement makes {worse} worse and {better} better")
    flagged = sum(frame.column(rows, "outside"))
    print(f"flagged as outside: {flagged}")
    return worse / len(rows)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        sys.exit(f"error: {error}")
