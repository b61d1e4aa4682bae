"""The size of reconstructed densities, with and without the mean pattern (`reconstruct --pacbed`), and the thickness.

    scripts/uv run python scripts/bench/amount.py [--checkpoint NAME ...] [--list checks] [--truth] [--json]
        [--refine-steps N] [--pacbed] [--thickness-unknown]

`amount_cases.py` simulates crystals at converged pixels and slices, each under defocus, astigmatism, coma, spherical
aberration, tilt, thermal vibration, a source and a dose of its own. Networks are told nothing of these, and nothing of
the thickness. "network" is the size of their density: the factor of the true one that fits it best by least squares.
The columns after it are that size, its stated error, and the thickness over the true one in brackets, after the fit of
the amount with the formula, with formula and vibration, and with formula and thickness. "ratio" is the rms error of the
network's size over that with the formula. With `--truth` the true density takes the place of the network's. With
`--refine-steps` it is that of `reconstruct --refine`, which is told the formula and the nominal thickness; with
`--pacbed` of `reconstruct --refine --pacbed`, and with `--thickness-unknown` as well it is told the formula alone.
"SSIM" is that of densities as `reconstruct --pacbed` gives them, which are scaled where the rings determine the amount.
"""

import argparse
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import h5py
import numpy as np
from amount_cases import LISTS, Case, Optics, elements, write_case

import train
from namsa.inverse import amount
from namsa.physics.optics import BeamSettings
from train.apply.models import Model
from train.tasks.density import pacbed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", nargs="+", default=["200kv-20mrad-reality"], metavar="NAME")
    parser.add_argument("--list", choices=LISTS, default="checks")
    parser.add_argument("--cases", nargs="+", metavar="FORMULA", help="some cases; by default all of the list")
    parser.add_argument("--truth", action="store_true", help="the true density in place of the network's")
    parser.add_argument("--refine-steps", type=int, default=0, help="at most; 0 refines nothing")
    parser.add_argument("--pacbed", action="store_true", help="before it is refined")
    parser.add_argument("--thickness-unknown", action="store_true", help="refinement takes that of --pacbed")
    parser.add_argument("--work", type=Path, default=Path("data/amount-cases"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in options.checkpoint:
        model = train.load_model(name)
        print(f"{name}: size over the true one (thickness over the true one)")
        for case in LISTS[options.list]:
            if not options.cases or case.formula in options.cases:
                evaluated = evaluate(case, model, options)
                rows.append({"checkpoint": name} | evaluated)
                print(line(rows[-1]), flush=True)
        own = [row for row in rows if row["checkpoint"] == name]
        errors = {key: rms([row[key][0] for row in own]) for key in ("network", *KNOWN)}
        errors["told"] = rms([row["formula"][0] for row in own if row["formula"][2]])
        for key in ("network", *KNOWN):
            ssim = [row["ssim"][key] for row in own]
            tenth, least = np.quantile(ssim, 0.1), min(ssim)
            print(f"SSIM, {key}: mean {np.mean(ssim):.3f}, a tenth below {tenth:.3f}, least {least:.3f}")
        print("rms error of the size: " + ", ".join(f"{key} {100 * value:.1f} %" for key, value in errors.items()))
        print(f"rms error of the thickness, formula: {100 * rms([row['formula'][1] for row in own]):.1f} %")
    if options.json:
        print(json.dumps({"ratio": errors["network"] / errors["formula"], "rows": rows}))
    return 0


KNOWN = ("formula", "formula, vibration", "formula, thickness")


def rms(ratios: list[float]) -> float:
    return float(np.sqrt(np.mean((np.array(ratios) - 1) ** 2))) if ratios else float("nan")


def line(row: dict) -> str:
    parts = [f"{row['case']:18s} network {row['network'][0]:.3f} ssim {row['ssim']['network']:.3f}"]
    parts += [
        f"{key} {row[key][0]:.3f} ± {row[key][3]:.2f} ({row[key][1]:.2f})" + " told" * row[key][2] for key in KNOWN
    ]
    return "  ".join(parts)


def evaluate(case: Case, model: Model, options: argparse.Namespace) -> dict:
    """Returns the sizes of a case."""
    conditions, target = model.conditions, model.experiment.target
    optics = Optics(
        conditions.energy_ev,
        conditions.semiangle_mrad,
        conditions.detector_shape[0],
        conditions.pixel_mrad[0],
        target.max_q_per_angstrom or 1.25,
    )
    path = options.work / f"{case.formula}-{case.thickness:g}.h5"
    if not path.exists():
        write_case(case, optics, path)
    with h5py.File(path) as file:
        group = file[path.stem]
        truth, patterns = group["density/data"][()], group["cbed/data"][()]
    how = train.ReconstructionOptions(refine_steps=options.refine_steps, pacbed=options.pacbed, trust=False)
    told = None if options.thickness_unknown else case.thickness
    known = train.KnownSpecimen(told, case.formula) if options.refine_steps else None
    result = train.reconstruct(path, model, beam_intensity=1.0, specimen=known, options=how)
    density = truth if options.truth else result.density
    size = float((density * truth).sum() / (truth**2).sum())
    thickness = case.true_thickness()
    row = {"case": path.stem, "network": (size, None), "ssim": {"network": _ssim(density, truth)}}
    row["mean"] = float(density.mean() / truth.mean())
    masks, beam = pacbed.ring_masks(model), BeamSettings(optics.energy_ev, optics.semiangle_mrad, {})
    rings = patterns.reshape(*patterns.shape[:2], -1) @ masks
    composition = elements(case.formula)
    measurement = amount.Measurement(beam, model.experiment.detector, masks, optics.max_q)
    for key, told in (
        (KNOWN[0], amount.Known(composition)),
        (KNOWN[1], amount.Known(composition, None, 0.05, case.vibration(), 0.005)),
        (KNOWN[2], amount.Known(composition, thickness)),
    ):
        one = amount.fit_amount(density, rings, result.pixels, measurement, told)
        row[key] = (size * one.scale, one.thickness_angstrom / thickness, one.told, one.scale_error)
        row["ssim"][key] = _ssim(density * (one.scale if one.told else 1.0), truth)
    return row


def _ssim(density: np.ndarray, truth: np.ndarray) -> float:
    from train.measure.metrics import image_metrics

    return float(image_metrics(density, truth, huber_delta=1.0)["ssim"] or 0.0)


if __name__ == "__main__":
    sys.exit(main())
