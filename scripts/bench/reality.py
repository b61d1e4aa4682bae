"""Specimens with defects under real conditions, reconstructed by trained networks: errors,
coverage, familiarity.

    scripts/uv run python scripts/bench/reality.py [--checkpoint NAME ...] [--cases NAME ...]
        [--checks | --last-checks | --fresh-checks] [--work DIR] [--json]

`reality_cases.py` lists the cases and simulates them (once; the files stay in --work, for
`reality_rivals.py` too). Every file goes to `train.reconstruct` as it is: the network is told the
energy, the semiangle, the scan step and the pixels of the detector, and that intensities are
fractions of the beam; nothing about defocus, aberrations, tilt, source or specimen. "SSIM" is
against the true density at the positions, over the whole scan. "mean" is the mean of the
reconstructed density over that of the truth. "1σ" and "2σ" are the shares of pixels whose error is
within the stated uncertainty of one and two sigma. "chance" is how often the share of one sigma
would be within 0.55 and 0.85 if the errors were random, exactly as large as stated, with the same
power spectrum. A line below says how often it would be so with one uncertainty for all pixels, the
geometric mean of the stated ones, and how many of the errors on columns of atoms, the tenth of the
pixels with the most density, each of both covers. "unfamiliar" is the share of windows that do not
look like the training data, "contrast" the rms uncertainty over the standard deviation of the
density, "within" the share of the patterns' variation that aberrations within the ranges of the
training explain, of what the best ones do, and "outside" stands where the network says so of the
scan: by one of these three, or because the patterns contradict the orientation of the detector.
"learnt" is whether the network has learnt crystals of these formulas. Cases named *outside-*
differ from everything that a network for these conditions has learnt. AUROC
is the area under the curve between the cases inside and these, by the limit of familiarity over its
median, by the other three numbers over their limits, and by the largest of the four; also with the
share of unfamiliar windows over its limit in place of the first.

`--checks`, `--last-checks` and `--fresh-checks` take other cases in place of those of the table.
The first were written down after the rules for familiarity and contrast had been chosen, the second
after the first rule for aberrations, too, the third after all but the present rule for the
orientation.

With `--rotation-deg` or `--flip` the network is told a wrong orientation: all cases are outside
then. The last lines say how often the patterns contradict it.

Every run writes a picture of all cases beside their truths (--work/CHECKPOINT.png, or
CHECKPOINT-LIST.png). "ratio" is the worst SSIM of the cases inside over their mean, of the last
checkpoint.
"""

import math
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import frame

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import h5py
import numpy as np
from reality_cases import ENERGY_EV, LISTS, SEMIANGLE_MRAD, Case, write_cases
from reality_specimens import formulas_of

import train
from namsa.base.errors import InputError
from namsa.io.calibration import CalibrationOverrides
from train.apply.learnt import learnt
from train.apply.models import Model
from train.measure.metrics import image_metrics
from train.tasks.density.trust.aberrations import aberrations_score
from train.tasks.density.trust.consistency import UNRESOLVED
from train.tasks.density.trust.familiarity import MOST_FLAGGED, UNFAMILIAR
from train.tasks.density.trust.orientation import orientation_score
from train.tasks.density.trust.uncertainty import auroc

SCORES: dict[str, Callable[[dict[str, Any]], float]] = {  # each over its limit
    "familiarity": lambda row: UNFAMILIAR / max(row["familiarity"], 1e-3),
    "contrast": lambda row: row["contrast"] / UNRESOLVED,
    "aberrations": lambda row: row["aberrations"],
    "orientation": lambda row: row["orientation"],
}
RIGHT = (0.55, 0.85)  # range of the coverage of one sigma
DRAWS = 100  # of random errors
COLUMNS = 0.9  # pixels above this quantile of the true density are on columns of atoms


def main() -> int:
    parser = frame.parser(__doc__)
    parser.add_argument("--checkpoint", nargs="+", default=["200kv-20mrad-reality"], metavar="NAME")
    parser.add_argument("--cases", nargs="+", metavar="NAME", help="some cases; by default all")
    for name in list(LISTS)[1:]:
        parser.add_argument(
            f"--{name}",
            dest="listed",
            action="store_const",
            const=name,
            help="another list of cases",
        )
    parser.add_argument("--work", type=Path, default=Path("data/reality-cases"))
    parser.add_argument(
        "--rotation-deg", type=float, help="wrong rotation of the detector that the network is told"
    )
    parser.add_argument(
        "--flip", action="store_true", default=None, help="whether it is told a mirrored detector"
    )
    options = parser.parse_args()
    cases = list(LISTS[options.listed or "cases"])
    if options.cases:
        cases = [case for case in cases if case.name in options.cases]
    told = CalibrationOverrides(
        energy_ev=ENERGY_EV,
        semiangle_mrad=SEMIANGLE_MRAD,
        rotation_deg=options.rotation_deg,
        flip=options.flip,
    )
    options.work.mkdir(parents=True, exist_ok=True)
    write_cases(
        cases, options.work, lambda name: print(f"simulated {name}", file=sys.stderr, flush=True)
    )
    results = {}
    for checkpoint in options.checkpoint:
        model = train.load_model(checkpoint)
        rows = []
        pictures = []
        for case in cases:
            row, picture = evaluate(case, model, options.work, told)
            rows.append(row)
            pictures.append(picture)
        results[checkpoint] = rows
        show(checkpoint, rows)
        draw(
            pictures,
            rows,
            options.work / f"{'-'.join(filter(None, (Path(checkpoint).name, options.listed)))}.png",
        )
    scores = []
    for row in rows:
        if row["inside"]:
            scores.append(row["ssim"])
    frame.finish(options, {"ratio": min(scores) / statistics.mean(scores), "rows": results})
    return 0


def evaluate(
    case: Case, model: Any, folder: Path, told: CalibrationOverrides
) -> tuple[dict[str, Any], tuple[np.ndarray, np.ndarray]]:
    """Returns the numbers of a case, and its true and its reconstructed density."""
    path = folder / f"{case.name}.h5"
    with h5py.File(path) as file:
        truth = file[f"{case.name}/density/data"][()]
    options = train.ReconstructionOptions(trust=False)  # the file's thickness is not told
    result = train.reconstruct(path, model, told, beam_intensity=1.0, options=options)
    error = np.abs(result.density - truth)
    row: dict[str, Any] = {"case": case.name, "specimen": case.specimen, "inside": case.inside}
    row |= image_metrics(result.density, truth, huber_delta=1.0)
    row["learnt"] = learnt_words(model, case.specimen)
    row["mean_ratio"] = float(result.density.mean() / truth.mean())
    aberrations = result.provenance.get("aberrations")
    row |= {
        "within": aberrations["within"] if aberrations else 1.0,
        "aberrations": aberrations_score(aberrations),
    }
    row["orientation"] = orientation_score(result.provenance.get("orientation"))
    if result.uncertainty is not None:
        for name, factor in (
            ("cover_1", 1.0),
            ("cover_2", result.provenance.get("two_sigma_factor", 2.0)),
        ):
            row[name] = float(np.mean(error <= factor * result.uncertainty))
        row["contrast"] = result.provenance["error_over_contrast"]
        row["chance"] = chance((result.density - truth) / result.uncertainty)
        uniform = np.full_like(result.uncertainty, np.exp(np.mean(np.log(result.uncertainty))))
        row["cover_uniform"] = float(np.mean(error <= uniform))
        columns = truth >= np.quantile(truth, COLUMNS)
        row["columns"] = float(np.mean((error <= result.uncertainty)[columns]))
        row["columns_uniform"] = float(np.mean((error <= uniform)[columns]))
    if result.familiarity is not None:
        row |= {"unfamiliar": result.provenance["windows_not_familiar"], "outside": result.outside}
        row["familiarity"] = float(np.median(result.familiarity))
    return row, (truth, result.density)


def learnt_words(model: Model, specimen: str) -> str:
    """Returns whether a network has learnt the crystals of a specimen, by formula."""
    crystals = learnt(model)
    return ", ".join(f"{formula}: {crystals.kinship(formula)}" for formula in formulas_of(specimen))


def chance(errors: np.ndarray) -> float:
    """Returns how often the coverage of random errors is within `RIGHT`, though they are as large
    as stated.

    A map of few waves, as the errors of a crystal's repeated cell are, varies much in size from one
    draw to the next.

    Args:
        errors: Errors over their uncertainty, `(ny, nx)`. The random ones are Gaussian, with a
            variance of 1 and their power spectrum.
    """
    amplitudes = np.abs(np.fft.fft2(errors / np.sqrt(np.mean(errors**2))))
    noise = np.random.default_rng(0).standard_normal((DRAWS, *errors.shape))
    drawn = np.fft.ifft2(amplitudes * np.fft.fft2(noise, norm="ortho")).real
    rights = []
    for errors_of_draw in drawn:
        rights.append(is_right(float(np.mean(np.abs(errors_of_draw) <= 1))))
    return float(np.mean(rights))


def is_right(coverage: float) -> bool:
    """Returns whether a coverage of one sigma is within `RIGHT`."""
    return bool(RIGHT[0] <= coverage <= RIGHT[1])


def show(checkpoint: str, rows: Any) -> None:
    """Prints the table of one network."""
    columns = (
        "case",
        "specimen",
        "SSIM",
        "Pearson",
        "mean",
        "MAE, e/Å²",
        "1σ",
        "2σ",
        "chance",
        "contrast",
        "within",
        "unfamiliar",
        "learnt",
    )
    table = frame.table(*columns, title=checkpoint)
    for row in rows:
        numbers = []
        for name in ("ssim", "pearson", "mean_ratio"):
            numbers.append(f"{row[name]:.3f}")
        numbers.append(f"{row['mae']:.2f}")
        cover = []
        for name in ("cover_1", "cover_2", "chance"):
            cover.append(f"{row[name]:.2f}" if name in row else "–")
        if "unfamiliar" in row:
            flag = f"{row['unfamiliar']:.2f}{' outside' * row['outside']}"
        else:
            flag = "–"
        contrast = f"{row['contrast']:.2f}" if "contrast" in row else "–"
        table.add_row(
            row["case"],
            row["specimen"],
            *numbers,
            *cover,
            contrast,
            f"{row['within']:.2f}",
            flag,
            row["learnt"],
        )
    inside = [row["ssim"] for row in rows if row["inside"]]
    if inside:
        table.add_row("inside, mean", "", f"{statistics.mean(inside):.3f}")
        table.add_row("inside, worst", "", f"{min(inside):.3f}")
    frame.show(table)
    covered = [row for row in rows if row["inside"] and "cover_1" in row]
    if covered:
        right = sum(is_right(row["cover_1"]) for row in covered)
        chances = frame.column(covered, "chance")
        print(
            f"1σ within {RIGHT[0]} and {RIGHT[1]}: {right} of {len(covered)} cases inside; random "
            f"errors as large as stated would have {sum(chances):.1f}, and all with a probability "
            f"of {math.prod(chances):.2f}"
        )
        right = sum(is_right(row["cover_uniform"]) for row in covered)
        as_stated = statistics.mean(frame.column(covered, "columns"))
        with_one = statistics.mean(frame.column(covered, "columns_uniform"))
        print(
            f"one uncertainty for all pixels: {right} of {len(covered)}; 1σ on columns: "
            f"{as_stated:.2f} as stated, {with_one:.2f} with one for all"
        )
    for name, side in (("inside", True), ("outside", False)):
        of_side = [row for row in rows if row["inside"] == side]
        flags = [row["outside"] for row in of_side if "outside" in row]
        contradicted = sum(row["orientation"] > 1 for row in of_side)
        print(
            f"called outside: {sum(flags)} of {len(flags)} cases {name}; orientation contradicted: "
            f"{contradicted}"
        )
    if len({row["inside"] for row in rows}) == 2 and all("unfamiliar" in row for row in rows):
        by_share = SCORES | {"familiarity": lambda row: row["unfamiliar"] / MOST_FLAGGED}
        scores = SCORES | {
            "the largest": lambda row: max(score(row) for score in SCORES.values()),
            "the largest with the share of unfamiliar windows": lambda row: max(
                s(row) for s in by_share.values()
            ),
        }
        areas = ", ".join(f"{area(rows, score):.3f} by {name}" for name, score in scores.items())
        print(f"AUROC between inside and outside: {areas}")


def area(rows: Any, score: Callable[[dict[str, Any]], float]) -> float:
    """Returns the AUROC of a score between cases outside and inside."""
    inside: list[float] = []
    outside: list[float] = []
    for row in rows:
        scores = inside if row["inside"] else outside
        scores.append(score(row))
    return auroc(outside, inside)


def draw(pictures: Any, rows: Any, path: Path) -> None:
    """Draws every true density above its reconstruction."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = 10
    lines = -(-len(rows) // columns)
    figure = Figure(figsize=(1.9 * columns, 4.2 * lines), layout="constrained")
    axes = figure.subplots(2 * lines, columns, squeeze=False)
    for axis in axes.flat:
        axis.axis("off")
    for number, ((truth, density), row) in enumerate(zip(pictures, rows, strict=True)):
        line, column = divmod(number, columns)
        for offset, image in enumerate((truth, density)):
            axis = axes[2 * line + offset, column]
            axis.imshow(image, vmin=truth.min(), vmax=truth.max(), cmap="viridis")
        axes[2 * line, column].set_title(f"{row['case']}\nSSIM {row['ssim']:.3f}", fontsize=7)
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        sys.exit(f"error: {error}")
