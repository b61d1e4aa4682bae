"""The size of reconstructed densities, with and without the mean pattern (`reconstruct --pacbed`),
and the thickness.

    scripts/uv run python scripts/bench/amount.py [--checkpoint NAME ...] [--list checks] [--truth]
        [--refine-steps N] [--pacbed] [--thickness-unknown]

`amount_cases.py` simulates crystals at converged pixels and slices, each under defocus,
astigmatism, coma, spherical aberration, tilt, thermal vibration, a source and a dose of its own.
Networks are given none of these, nor the thickness. "network" is the size of their density: the
factor of the true one that fits it best by least squares. The columns after it are that size, its
stated error, and the thickness over the true one in brackets, after the fit of the amount with the
formula, with formula and vibration, and with formula and thickness. "ratio" is the rms error of the
network's size over that with the formula. With `--truth` the true density takes the place of the
network's. "learnt" is whether the network has learnt a crystal of this formula, or one of this
structure ("prototype"). With `--refine-steps` it is that of `reconstruct --refine`, which is given
the formula and the nominal thickness; with `--pacbed` of `reconstruct --refine --pacbed`, and with
`--thickness-unknown` as well it is given the formula alone. "SSIM" is that of densities as
`reconstruct --pacbed` gives them, which are scaled where the rings determine the amount.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import frame

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import h5py
import numpy as np
import numpy.typing as npt
from amount_cases import LISTS, Case, Optics, elements, write_case

import train
from namsa.inverse.amount import fit_amount
from namsa.inverse.rings import Known, RingMeasurement
from namsa.physics.optics import BeamSettings
from train.apply.learnt import learnt, prototype_of
from train.apply.models import Model
from train.measure.metrics import image_metrics
from train.tasks.density.scan import pacbed

Floats = npt.NDArray[np.floating[Any]]
Row = dict[str, Any]
KNOWN = ("formula", "formula, vibration", "formula, thickness")


def main() -> int:
    options = parse()
    options.work.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for name in options.checkpoint:
        model = train.load_model(name)
        print(f"{name}: size over the true one (thickness over the true one)")
        rows_of_model = []
        for case in LISTS[options.list]:
            if not options.cases or case.formula in options.cases:
                row = {"checkpoint": name} | evaluate(case, model, options)
                print(line(row), flush=True)
                rows_of_model.append(row)
        errors = summarise(rows_of_model)
        rows += rows_of_model
    frame.finish(options, {"ratio": errors["network"] / errors["formula"], "rows": rows})
    return 0


def parse() -> argparse.Namespace:
    parser = frame.parser(__doc__)
    parser.add_argument("--checkpoint", nargs="+", default=["200kv-20mrad-reality"], metavar="NAME")
    parser.add_argument("--list", choices=LISTS, default="checks")
    parser.add_argument(
        "--cases", nargs="+", metavar="FORMULA", help="some cases; by default all of the list"
    )
    parser.add_argument(
        "--truth", action="store_true", help="the true density in place of the network's"
    )
    parser.add_argument("--refine-steps", type=int, default=0, help="at most; 0 refines nothing")
    parser.add_argument("--pacbed", action="store_true", help="before it is refined")
    parser.add_argument(
        "--thickness-unknown", action="store_true", help="refinement takes that of --pacbed"
    )
    parser.add_argument("--work", type=Path, default=Path("data/amount-cases"))
    return parser.parse_args()


def evaluate(case: Case, model: Model, options: argparse.Namespace) -> Row:
    """Returns the sizes of a case."""
    optics = optics_of(model)
    path = options.work / f"{case.formula}-{case.thickness:g}.h5"
    if not path.exists():
        write_case(case, optics, path)
    with h5py.File(path) as file:
        group = file[path.stem]
        truth = group["density/data"][()]
        patterns = group["cbed/data"][()]
    known = None
    if options.refine_steps:
        nominal = None if options.thickness_unknown else case.thickness
        known = train.KnownSpecimen(nominal, case.formula)
    result = train.reconstruct(
        path,
        model,
        beam_intensity=1.0,
        specimen=known,
        options=train.ReconstructionOptions(
            refine_steps=options.refine_steps,
            refine_columns=options.refine_steps > 0,
            pacbed=options.pacbed,
            trust=False,
        ),
    )
    density = truth if options.truth else result.density
    size = float((density * truth).sum() / (truth**2).sum())
    thickness = case.true_thickness()
    row: Row = {
        "case": path.stem,
        "network": (size, None),
        "ssim": {"network": ssim_of(density, truth)},
        "mean": float(density.mean() / truth.mean()),
        "learnt": learnt(model).kinship(case.formula, prototype_of(case.make())),
    }
    masks = pacbed.ring_masks(model)
    rings = patterns.reshape(*patterns.shape[:2], -1) @ masks
    detector = model.experiment.detector
    assert detector is not None
    beam = BeamSettings(optics.energy_ev, optics.semiangle_mrad, {})
    measurement = RingMeasurement(beam, detector, masks, optics.max_q)
    for key, knowledge in knowledge_of(case).items():
        fit = fit_amount(density, rings, result.pixels, measurement, knowledge)
        relative_thickness = fit.thickness_angstrom / thickness
        row[key] = (size * fit.scale, relative_thickness, fit.determined, fit.scale_error)
        row["ssim"][key] = ssim_of(density * fit.scale if fit.determined else density, truth)
    return row


def optics_of(model: Model) -> Optics:
    """Returns the microscope that a network was trained for."""
    conditions = model.conditions
    return Optics(
        conditions.energy_ev,
        conditions.semiangle_mrad,
        conditions.detector_shape[0],
        conditions.pixel_mrad[0],
        model.experiment.target.max_q_per_angstrom or 1.25,
    )


def knowledge_of(case: Case) -> dict[str, Known]:
    """Returns what is given of a case, by the names of `KNOWN`."""
    composition = elements(case.formula)
    given = (
        Known(composition),
        Known(composition, None, 0.05, case.vibration(), 0.005),
        Known(composition, case.true_thickness()),
    )
    return dict(zip(KNOWN, given, strict=True))


def ssim_of(density: Floats, truth: Floats) -> float:
    return float(image_metrics(density, truth, huber_delta=1.0)["ssim"] or 0.0)


def line(row: Row) -> str:
    """Returns the line of a case."""
    cells = [
        f"{row['case']:18s} learnt: {row['learnt']:9s}",
        f"network {row['network'][0]:.3f} ssim {row['ssim']['network']:.3f}",
    ]
    for key in KNOWN:
        size, thickness, determined, error = row[key]
        cell = f"{key} {size:.3f} ± {error:.2f} ({thickness:.2f})"
        cells.append(f"{cell} determined" if determined else cell)
    return "  ".join(cells)


def summarise(rows: list[Row]) -> dict[str, float]:
    """Prints means over the cases of a network; returns the rms errors of the size."""
    errors = {}
    for key in ("network", *KNOWN):
        errors[key] = rms([row[key][0] for row in rows])
        ssim = [row["ssim"][key] for row in rows]
        print(
            f"SSIM, {key}: mean {np.mean(ssim):.3f}, a tenth below {np.quantile(ssim, 0.1):.3f}, "
            f"least {min(ssim):.3f}"
        )
    errors["determined"] = rms([row["formula"][0] for row in rows if row["formula"][2]])
    listed = ", ".join(f"{key} {100 * error:.1f} %" for key, error in errors.items())
    print(f"rms error of the size: {listed}")
    thickness = rms([row["formula"][1] for row in rows])
    print(f"rms error of the thickness, formula: {100 * thickness:.1f} %")
    return errors


def rms(ratios: list[float]) -> float:
    """Returns the rms difference from 1; NaN of nothing."""
    if ratios:
        return float(np.sqrt(np.mean((np.array(ratios) - 1) ** 2)))
    return float("nan")


if __name__ == "__main__":
    sys.exit(main())
