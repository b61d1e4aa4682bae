"""Aberrations measured from patterns, beside those that samples were simulated with.

    scripts/uv run python scripts/bench/aberrations.py DATASET [--samples N] [--electrons N]
    scripts/uv run python scripts/bench/aberrations.py --cases DIR [--names CASE ...]

The dev and test samples of a dataset whose defocus, C12 and C21 vary are looked at as a
reconstruction does it (`train.tasks.density.trust.aberrations`). The true C10 is that of the middle
of the specimen. "C10", "C12" and "C21" are the median and the 90th percentile of the errors, Å; of
C12 and C21 with their directions. "explained" is the median of the share of the patterns' variation
that the aberrations explain. "beyond" is the share of samples that are said to lie outside of the
ranges of the dataset: none does. "as given", "quarter" and "mirrored" are the shares of samples of
which the patterns contradict the detector's orientation: as it is, turned by a quarter,
and mirrored, in the mean over mirrors of y and of y with x. `--electrons` adds shot noise.

`--cases` takes the files of `reality.py` that lie inside, and what `namsa.inspect` measures of
them, given energy and semiangle. "±" is the error that it states, "within" the share of files whose
error is within that. The rotation, which is none, is measured from the same patterns without a file
that states it.

"ratio" is the share of samples that are not reported as outside, or of files whose focus is within
its stated error.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import frame

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from reality_cases import LISTS, Case, write_cases

import namsa
from namsa.base.errors import InputError
from namsa.config.simulation import load_config
from namsa.dataset import manifest
from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset
from train.apply.tiles import window_slices
from train.experiment.conditions import conditions
from train.tasks.density.trust.aberrations import AberrationsOfScan, LearntAberrations, is_beyond
from train.tasks.density.trust.orientation import explained_shares, is_contradicted

# positions
WINDOW = 24
MULTIPLE = 8
THICK_ANGSTROM = 100.0
NEAR_DEG = 2.0  # errors of a rotation that is right
COEFFICIENTS = ("C10", "C12", "C21")
ORIENTATIONS = ("as given", "quarter", "mirrored")
QUANTITIES = ("defocus_angstrom", "astigmatism_angstrom", "coma_angstrom")
Row = dict[str, Any]
GROUPS: dict[str, Callable[[Row], bool]] = {
    "all": lambda row: True,
    "up to 100 Å": lambda row: not row["thick"] and not row["tilted"],
    "up to 100 Å, tilted": lambda row: not row["thick"] and row["tilted"],
    "over 100 Å": lambda row: row["thick"] and not row["tilted"],
    "over 100 Å, tilted": lambda row: row["thick"] and row["tilted"],
}


def main() -> int:
    parser = frame.parser(__doc__)
    parser.add_argument("dataset", type=Path, nargs="?")
    parser.add_argument(
        "--cases", type=Path, metavar="DIR", help="files of reality.py, in place of a dataset"
    )
    parser.add_argument("--names", nargs="+", metavar="CASE", help="of the files; default: all")
    parser.add_argument("--samples", type=int, default=400, help="drawn at random; default: 400")
    parser.add_argument("--electrons", type=float, help="per pattern; default: no noise")
    options = parser.parse_args()
    if (options.dataset is None) == (options.cases is None):
        parser.error("give a dataset or --cases")
    if options.cases:
        return compare_cases(options)
    rows = measure(options.dataset, options.samples, options.electrons)
    show(rows)
    beyond = float(np.mean(frame.column(rows, "beyond")))
    frame.finish(options, {"ratio": 1 - beyond, "rows": rows})
    return 0


# ---- Samples of a dataset


def measure(directory: Path, samples: int, electrons: float | None) -> list[Row]:
    """Returns the errors of each sample, and whether it is reported as outside."""
    config = load_config(directory / "config.yaml")
    learnt = LearntAberrations.of(config)
    scan = conditions(config, (WINDOW, WINDOW))
    shape = config.scan.shape
    assert shape is not None
    rng = np.random.default_rng(0)
    rows = []
    with Dataset(directory) as dataset:
        present = manifest.present(directory, dataset.ids)
        entries = [entry for entry in present if entry.split != "train"]
        for number in rng.permutation(len(entries))[:samples]:
            entry = entries[number]
            patterns = dataset.read(entry.id).patterns().reshape(*shape, *scan.detector_shape)
            if electrons:
                patterns = rng.poisson(patterns * electrons) / electrons
            row_windows = window_slices(shape[0], WINDOW, MULTIPLE)
            column_windows = window_slices(shape[1], WINDOW, MULTIPLE)
            windows = (len(row_windows), len(column_windows))
            aberrations = AberrationsOfScan(learnt, scan, (WINDOW, WINDOW), windows)
            for y, window_rows in enumerate(row_windows):
                for x, window_columns in enumerate(column_windows):
                    aberrations.add(y, x, patterns[window_rows, window_columns])
            rows.append(facts_of(entry, aberrations, learnt))
    return rows


def facts_of(entry: Entry, aberrations: AberrationsOfScan, learnt: LearntAberrations) -> Row:
    """Returns the row of a sample whose windows have all been added."""
    facts = aberrations.facts(aberrations.measure())
    explained = explained_shares(aberrations.overlaps, aberrations.transforms, learnt)
    tilt_mrad = np.hypot(*entry.varied.get("specimen_tilt_mrad", (0.0, 0.0)))
    contradicted = []
    for share in explained:
        shares = {"explained": share, "explained_otherwise": max(explained)}
        contradicted.append(is_contradicted(shares))
    row: Row = {
        "id": entry.id,
        "thick": entry.thickness_angstrom > THICK_ANGSTROM,
        "tilted": bool(tilt_mrad > 0),
        "explained": facts and facts["explained"],
        "beyond": is_beyond(facts),
        # Turned by any of them, the others are turned by the others, but for half a turn.
        "contradicted": contradicted,
    }
    if facts:
        middle = entry.thickness_angstrom / 2 - entry.varied["defocus_angstrom"]
        row["C10"] = abs(facts["C10"] - middle)
        for order in ("12", "21"):
            measured = coefficient(facts[f"C{order}"], facts[f"phi{order}"], order)
            magnitude, azimuth = entry.varied[f"C{order}_angstrom"]
            row[f"C{order}"] = abs(measured - coefficient(magnitude, azimuth, order))
    return row


def coefficient(magnitude: float, azimuth: float, order: str) -> complex:
    """Returns a coefficient with its direction as a complex number."""
    return complex(magnitude * np.exp(1j * int(order[1]) * azimuth))


def show(rows: Sequence[Row]) -> None:
    table = frame.table("samples", "number", *COEFFICIENTS, "explained", "beyond", *ORIENTATIONS)
    for name, belongs in GROUPS.items():
        group = [row for row in rows if belongs(row)]
        measured = [row for row in group if row["explained"]]
        if not measured:
            continue
        cells = [name, str(len(group))]
        for key in COEFFICIENTS:
            median, most = np.quantile(frame.column(measured, key), (0.5, 0.9))
            cells.append(f"{median:.0f}, {most:.0f}")
        cells.append(f"{np.median(frame.column(measured, 'explained')):.2f}")
        cells.append(f"{np.mean(frame.column(group, 'beyond')):.3f}")
        given, quarter, *mirrored = np.mean(frame.column(group, "contradicted"), axis=0)
        for share in (given, quarter, np.mean(mirrored)):
            cells.append(f"{share:.3f}")
        table.add_row(*cells)
    frame.show(table)
    print(f"no aberrations measured: {sum(not row['explained'] for row in rows)} samples")


# ---- Files of reality.py


class Turn(NamedTuple):
    """The measured rotation of a file that states none."""

    defocus_angstrom: float  # of the middle of the specimen
    off_deg: float  # NaN where the detector was called mirrored, or no rotation was found
    noted: bool  # whether a note calls 180° unsure


@dataclass(frozen=True)
class Measured:
    """A measured value beside the true one, Å."""

    value: float
    stated_error: float
    truth: float

    @property
    def error(self) -> float:
        return self.value - self.truth

    def __str__(self) -> str:
        return f"{self.value:.0f} ± {self.stated_error:.0f}, {self.truth:.0f}"


def compare_cases(options: Any) -> int:
    """Prints what `namsa.inspect` measures of the files of `reality.py` that lie inside."""
    cases = []
    for listed in LISTS.values():
        for case in listed:
            if case.inside and (options.names is None or case.name in options.names):
                cases.append(case)
    write_cases(
        cases, options.cases, lambda name: print(f"simulated {name}", file=sys.stderr, flush=True)
    )
    table = frame.table("case", "defocus, true", "C12, true", "C21, true")
    rows: list[dict[str, Measured]] = []
    turns = []
    for case in cases:
        path = options.cases / f"{case.name}.h5"
        measured = measure_case(case, path)
        cells = [str(measured.get(name, "–")) for name in QUANTITIES]
        table.add_row(case.name, *cells)
        rows.append(measured)
        turns.append(measure_rotation(case, path))
    frame.show(table)
    show_turns(turns)
    for name in QUANTITIES:
        values = [row[name] for row in rows if name in row]
        if not values:
            continue
        errors = [abs(value.error) for value in values]
        median, most = np.quantile(errors, (0.5, 0.9))
        print(
            f"{name}: {len(errors)} files, error {median:.1f} (median), {most:.1f} (90 %), within "
            f"{share_within(values):.2f}"
        )
    focus = [row[QUANTITIES[0]] for row in rows if QUANTITIES[0] in row]
    as_json = []
    for row in rows:
        as_json.append({name: (value.error, value.stated_error) for name, value in row.items()})
    frame.finish(options, {"ratio": share_within(focus), "rows": as_json})
    return 0


def share_within(values: Sequence[Measured]) -> float:
    """Returns the share of values whose error is within that which is stated."""
    return float(np.mean([abs(value.error) <= value.stated_error for value in values]))


def measure_case(case: Case, path: Path) -> dict[str, Measured]:
    """Returns what is measured of a file as it is."""
    condition = case.condition
    inspection = namsa.inspect(
        path, energy_ev=condition.energy_ev, semiangle_mrad=condition.semiangle_mrad
    ).as_json()
    middle = condition.defocus - case.thickness / 2
    truths = (middle, condition.astigmatism, condition.coma)
    measured = {}
    for name, truth in zip(QUANTITIES, truths, strict=True):
        if name in inspection:
            measured[name] = Measured(inspection[name], inspection[f"{name}_error"], truth)
    return measured


def measure_rotation(case: Case, path: Path) -> Turn:
    """Returns the rotation that is measured of the patterns alone, whose true one is 0."""
    with namsa.read(path) as recording:
        patterns = recording.read(slice(None), slice(None))
        inspection = namsa.inspect(
            patterns,
            energy_ev=case.condition.energy_ev,
            semiangle_mrad=case.condition.semiangle_mrad,
            scan_step_angstrom=recording.scan_step_angstrom,
            pixel_mrad=recording.pixel_mrad,
        ).as_json()
    rotation_deg = inspection.get("rotation_deg")
    off_deg = float("nan")
    if rotation_deg is not None and not inspection["mirrored"]:
        off_deg = abs(rotation_deg)
    noted = any("180°" in note for note in inspection["notes"])
    return Turn(case.condition.defocus - case.thickness / 2, off_deg, noted)


def show_turns(turns: Sequence[Turn]) -> None:
    near = sum(turn.off_deg < NEAR_DEG for turn in turns)
    missing = sum(np.isnan(turn.off_deg) for turn in turns)
    half = [turn for turn in turns if turn.off_deg > 90]
    others = [turn for turn in turns if turn.off_deg <= 90]
    foci = ", ".join(f"{turn.defocus_angstrom:.0f}" for turn in half)
    print(
        f"no rotation stated: of {len(turns)} files {near} within {NEAR_DEG:g}°, {missing} "
        f"mirrored or without a rotation, and {len(half)} turned by 180°, with a defocus of {foci} "
        f"Å; a note calls 180° unsure in {sum(turn.noted for turn in half)} of these, and in "
        f"{sum(turn.noted for turn in others)} of the others"
    )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        sys.exit(f"error: {error}")
