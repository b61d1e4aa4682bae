"""Aberrations measured from patterns, beside those that samples were simulated with.

    scripts/uv run python scripts/bench/aberrations.py DATASET [--samples N] [--electrons N] [--json]

The dev and test samples of a dataset whose defocus, C12 and C21 vary are looked at as a reconstruction does it
(`train.reconstruction.aberrations`). The true C10 is that of the middle of the specimen. "C10", "C12" and "C21" are the
median and the 90th percentile of the errors, Å; of C12 and C21 with their directions. "explained" is the median of the
share of the patterns' variation that the aberrations explain. "beyond" is the share of samples that are said to lie
outside of the ranges of the dataset: none does. `--electrons` adds shot noise.

"ratio" is the share of samples that are not said to lie outside.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from rich.console import Console
from rich.table import Table

from namsa.dataset import manifest
from namsa.dataset.shards import Dataset
from namsa.errors import InputError
from train.experiment.conditions import conditions
from train.experiment.experiment import load
from train.reconstruction.aberrations import AberrationsOfScan, LearntAberrations, is_beyond
from train.reconstruction.tiles import window_slices

WINDOW, MULTIPLE = 24, 8  # positions
THICK_ANGSTROM = 100.0
GROUPS = {
    "all": lambda row: True,
    "up to 100 Å": lambda row: not row["thick"] and not row["tilted"],
    "up to 100 Å, tilted": lambda row: not row["thick"] and row["tilted"],
    "over 100 Å": lambda row: row["thick"] and not row["tilted"],
    "over 100 Å, tilted": lambda row: row["thick"] and row["tilted"],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--samples", type=int, default=400, help="drawn at random; default: 400")
    parser.add_argument("--electrons", type=float, help="per pattern; default: no noise")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = measure(options.dataset, options.samples, options.electrons)
    table = Table("samples", "number", "C10", "C12", "C21", "explained", "beyond", box=None)
    for name, belongs in GROUPS.items():
        group = [row for row in rows if belongs(row)]
        shown = [row for row in group if row["explained"]]
        if shown:
            errors = [np.quantile([row[key] for row in shown], (0.5, 0.9)) for key in ("C10", "C12", "C21")]
            numbers = [f"{median:.0f}, {most:.0f}" for median, most in errors]
            explained = f"{np.median([row['explained'] for row in shown]):.2f}"
            table.add_row(
                name, str(len(group)), *numbers, explained, f"{np.mean([row['beyond'] for row in group]):.3f}"
            )
    Console(width=120).print(table)
    print(f"no aberrations measured: {sum(not row['explained'] for row in rows)} samples")
    if options.json:
        print(json.dumps({"ratio": 1 - float(np.mean([row["beyond"] for row in rows])), "rows": rows}))
    return 0


def measure(directory: Path, samples: int, electrons: float | None) -> list[dict[str, Any]]:
    """Returns the errors of each sample, and whether it is said to lie outside."""
    experiment = load(directory / "config.yaml")
    learnt, scan = LearntAberrations.of(experiment), conditions(experiment, (WINDOW, WINDOW))
    rng, rows = np.random.default_rng(0), []
    with Dataset(directory) as dataset:
        entries = [entry for entry in manifest.present(directory, dataset.ids) if entry.split != "train"]
        for number in rng.permutation(len(entries))[:samples]:
            entry = entries[number]
            patterns = dataset.read(entry.id).patterns().reshape(*experiment.scan.shape, *scan.detector_shape)
            if electrons:
                patterns = rng.poisson(patterns * electrons) / electrons
            windows = [window_slices(n, WINDOW, MULTIPLE) for n in experiment.scan.shape]
            found = AberrationsOfScan(learnt, scan, (WINDOW, WINDOW), *windows)
            for y, rows_of in enumerate(windows[0]):
                for x, columns in enumerate(windows[1]):
                    found.add(y, x, patterns[rows_of, columns])
            facts = found.facts()
            tilt = float(np.hypot(*entry.varied.get("specimen_tilt_mrad", (0.0, 0.0))))
            row = {"id": entry.id, "thick": entry.thickness_angstrom > THICK_ANGSTROM, "tilted": tilt > 0}
            rows.append(row | {"explained": facts and facts["explained"], "beyond": is_beyond(facts)})
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
