"""Aberrations measured from patterns, beside those that samples were simulated with.

    scripts/uv run python scripts/bench/aberrations.py DATASET [--samples N] [--electrons N] [--json]
    scripts/uv run python scripts/bench/aberrations.py --cases DIR [--json]

The dev and test samples of a dataset whose defocus, C12 and C21 vary are looked at as a reconstruction does it
(`train.apply.aberrations`). The true C10 is that of the middle of the specimen. "C10", "C12" and "C21" are the
median and the 90th percentile of the errors, Å; of C12 and C21 with their directions. "explained" is the median of the
share of the patterns' variation that the aberrations explain. "beyond" is the share of samples that are said to lie
outside of the ranges of the dataset: none does. "as told", "quarter" and "mirrored" are the shares of samples of which
the patterns are said to contradict the detector's orientation: as it is, turned by a quarter, and mirrored, in the mean
over mirrors of y and of y with x. `--electrons` adds shot noise.

`--cases` takes the files of `reality.py` that lie inside, and what `namsa.inspect` measures of them, told energy and
semiangle. "±" is the error that it states, "within" the share of files whose error is within that. The rotation, which
is none, is measured from the same patterns without a file that states it.

"ratio" is the share of samples that are not reported as outside, or of files whose focus is within its stated error.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from reality_cases import LISTS, write_cases
from rich.console import Console
from rich.table import Table

import namsa
from namsa.config.simulation import load_config
from namsa.dataset import manifest
from namsa.dataset.shards import Dataset
from namsa.errors import InputError
from train.apply.aberrations import AberrationsOfScan, LearntAberrations, is_beyond
from train.apply.orientation import explained_shares, is_contradicted
from train.apply.tiles import window_slices
from train.experiment.conditions import conditions

WINDOW, MULTIPLE = 24, 8  # positions
THICK_ANGSTROM = 100.0
NEAR_DEG = 2.0  # errors of a rotation that is right
GROUPS = {
    "all": lambda row: True,
    "up to 100 Å": lambda row: not row["thick"] and not row["tilted"],
    "up to 100 Å, tilted": lambda row: not row["thick"] and row["tilted"],
    "over 100 Å": lambda row: row["thick"] and not row["tilted"],
    "over 100 Å, tilted": lambda row: row["thick"] and row["tilted"],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path, nargs="?")
    parser.add_argument("--cases", type=Path, metavar="DIR", help="files of reality.py, in place of a dataset")
    parser.add_argument("--samples", type=int, default=400, help="drawn at random; default: 400")
    parser.add_argument("--electrons", type=float, help="per pattern; default: no noise")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if (options.dataset is None) == (options.cases is None):
        parser.error("give a dataset or --cases")
    if options.cases:
        return show_cases(options.cases, options.json)
    rows = measure(options.dataset, options.samples, options.electrons)
    orientations = ("as told", "quarter", "mirrored")
    table = Table("samples", "number", "C10", "C12", "C21", "explained", "beyond", *orientations, box=None)
    for name, belongs in GROUPS.items():
        group = [row for row in rows if belongs(row)]
        shown = [row for row in group if row["explained"]]
        if shown:
            errors = [np.quantile([row[key] for row in shown], (0.5, 0.9)) for key in ("C10", "C12", "C21")]
            numbers = [f"{median:.0f}, {most:.0f}" for median, most in errors]
            explained = f"{np.median([row['explained'] for row in shown]):.2f}"
            called = np.mean([[row["beyond"], *row["contradicted"]] for row in group], axis=0)
            shares = (*called[:3], called[3:].mean())
            table.add_row(name, str(len(group)), *numbers, explained, *(f"{share:.3f}" for share in shares))
    Console(width=120).print(table)
    print(f"no aberrations measured: {sum(not row['explained'] for row in rows)} samples")
    if options.json:
        print(json.dumps({"ratio": 1 - float(np.mean([row["beyond"] for row in rows])), "rows": rows}))
    return 0


def show_cases(directory: Path, as_json: bool) -> int:
    """Prints what `namsa.inspect` measures of the files of `reality.py` that lie inside."""
    cases = [case for listed in LISTS.values() for case in listed if case.inside]
    write_cases(cases, directory, lambda name: print(f"simulated {name}", file=sys.stderr, flush=True))
    names = ("defocus_angstrom", "astigmatism_angstrom", "coma_angstrom")
    table, rows = Table("case", *(f"{name}, true" for name in ("defocus", "C12", "C21")), box=None), []
    turns: list[tuple[float, float, bool]] = []
    for case in cases:
        beam = {"energy_ev": case.condition.energy_ev, "semiangle_mrad": case.condition.semiangle_mrad}
        found = namsa.inspect(directory / f"{case.name}.h5", **beam).as_json()
        middle = case.condition.defocus - case.thickness / 2
        truths = (middle, case.condition.astigmatism, case.condition.coma)
        cells = [f"{found[n]:.0f} ± {found[f'{n}_error']:.0f}" if n in found else "–" for n in names]
        table.add_row(case.name, *(f"{cell}, {truth:.0f}" for cell, truth in zip(cells, truths, strict=True)))
        rows.append({n: (found[n] - t, found[f"{n}_error"]) for n, t in zip(names, truths, strict=True) if n in found})
        with namsa.read(directory / f"{case.name}.h5") as recording:
            untold = {"scan_step_angstrom": recording.scan_step_angstrom, "pixel_mrad": recording.pixel_mrad}
            patterns = recording.read(slice(None), slice(None))
        found = namsa.inspect(patterns, **beam, **untold).as_json()
        rotation = found.get("rotation_deg")
        off = np.nan if rotation is None or found["mirrored"] else abs(rotation)
        turns.append((middle, off, any("180°" in note for note in found["notes"])))
    Console(width=120).print(table)
    middles, off, noted = np.array(turns).T
    half = off > 90
    print(
        f"no rotation stated: of {len(off)} files {(off < NEAR_DEG).sum()} within {NEAR_DEG:g}°, {np.isnan(off).sum()} "
        f"mirrored or without a rotation, and {half.sum()} turned by 180°, with a defocus of "
        f"{', '.join(f'{each:.0f}' for each in middles[half])} Å; 180° said to be unsure in {int(noted[half].sum())} "
        f"of these, and in {int(noted[off <= 90].sum())} of the others"
    )
    for name in names:
        errors = np.abs([row[name] for row in rows if name in row])
        median, most = np.quantile(errors[:, 0], (0.5, 0.9))
        within = float(np.mean(errors[:, 0] <= errors[:, 1]))
        print(f"{name}: {len(errors)} files, error {median:.1f} (median), {most:.1f} (90 %), within {within:.2f}")
    if as_json:
        told = [abs(row[names[0]][0]) <= row[names[0]][1] for row in rows if names[0] in row]
        print(json.dumps({"ratio": float(np.mean(told)), "rows": rows}))
    return 0


def measure(directory: Path, samples: int, electrons: float | None) -> list[dict[str, Any]]:
    """Returns the errors of each sample, and whether it is said to lie outside."""
    config = load_config(directory / "config.yaml")
    learnt, scan = LearntAberrations.of(config), conditions(config, (WINDOW, WINDOW))
    rng, rows = np.random.default_rng(0), []
    with Dataset(directory) as dataset:
        entries = [entry for entry in manifest.present(directory, dataset.ids) if entry.split != "train"]
        for number in rng.permutation(len(entries))[:samples]:
            entry = entries[number]
            patterns = dataset.read(entry.id).patterns().reshape(*config.scan.shape, *scan.detector_shape)
            if electrons:
                patterns = rng.poisson(patterns * electrons) / electrons
            windows = [window_slices(n, WINDOW, MULTIPLE) for n in config.scan.shape]
            found = AberrationsOfScan(learnt, scan, (WINDOW, WINDOW), (len(windows[0]), len(windows[1])))
            for y, rows_of in enumerate(windows[0]):
                for x, columns in enumerate(windows[1]):
                    found.add(y, x, patterns[rows_of, columns])
            measured = found.measure()
            facts = found.facts(measured)
            tilt = float(np.hypot(*entry.varied.get("specimen_tilt_mrad", (0.0, 0.0))))
            row = {"id": entry.id, "thick": entry.thickness_angstrom > THICK_ANGSTROM, "tilted": tilt > 0}
            rows.append(row | {"explained": facts and facts["explained"], "beyond": is_beyond(facts)})
            explained = explained_shares(found.overlaps, found.transforms, learnt)
            # Turned by any of them, the others are turned by the others, but for half a turn.
            rows[-1]["contradicted"] = [
                is_contradicted({"explained": told, "explained_otherwise": max(explained)}) for told in explained
            ]
            if facts:
                middle = entry.thickness_angstrom / 2 - entry.varied["defocus_angstrom"]
                rows[-1] |= {"C10": abs(facts["C10"] - middle)} | {
                    f"C{order}": abs(_vector(facts[f"C{order}"], facts[f"phi{order}"], order) - truth)
                    for order in ("12", "21")
                    for truth in [_vector(*entry.varied[f"C{order}_angstrom"], order)]
                }
    return rows


def _vector(magnitude: float, azimuth: float, order: str) -> complex:
    """Returns a coefficient with its direction as a complex number."""
    return complex(magnitude * np.exp(1j * int(order[1]) * azimuth))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        sys.exit(f"error: {error}")
