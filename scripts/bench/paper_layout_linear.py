"""Where the information is in each layout of the input: linear fits in place of networks, in less than a minute.

    scripts/uv run namsa dataset scripts/bench/paper_layout.yaml --out DATA
    scripts/uv run python scripts/bench/paper_layout_linear.py DATA [--json]

A convolution of 1×1 is a linear map from the channels of a pixel to the output at that pixel, the same for all pixels.
It is fitted by ridge regression to the training samples, on square roots of intensities, and applied to the held-out
(test) samples:

- scan, shared weights: from the pattern of a probe position to the density there.
- detector, shared weights: from the intensities of all patterns at a detector pixel to the density at the pixel with
  the same indices. This is what a convolution does in the paper's layout.
- own weights: the same with a map for each pixel, as a convolution whose filters depend on the place.

The ridge is the best of three on the held-out samples, for each row alike. "ratio" is the R² of the paper's layout
divided by that of the other, both with shared weights.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from namsa.dataset import manifest
from namsa.dataset.shards import Dataset

Array = npt.NDArray[np.float64]
RIDGES = (1e-4, 1e-3, 1e-2)  # of the mean of the diagonal


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA", help="a dataset of paper_layout.yaml")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    patterns, density = samples(options.data, "train")
    test_patterns, test_density = samples(options.data, "test")
    rows: list[dict[str, Any]] = [{"fit": "mean image"} | score(density.mean(0), test_density)]
    for layout, axes in (("scan", (0, 1, 2)), ("detector", (0, 2, 1))):
        x, test_x = patterns.transpose(axes), test_patterns.transpose(axes)
        for name, fit in (("shared", shared), ("own", own)):
            found = (score(fit(x, density, test_x, ridge), test_density) for ridge in RIDGES)
            rows.append({"fit": f"{layout}, {name} weights"} | max(found, key=lambda row: row["r_squared"]))
    table = Table("fit", "R²", "Pearson")
    for row in rows:
        table.add_row(row["fit"], f"{row['r_squared']:.3f}", f"{row['pearson']:.3f}")
    Console().print(table)
    if options.json:
        by_fit = {row["fit"]: row["r_squared"] for row in rows}
        print(json.dumps({"ratio": by_fit["detector, shared weights"] / by_fit["scan, shared weights"], "rows": rows}))
    return 0


def samples(directory: Path, split: str) -> tuple[Array, Array]:
    """Returns square roots of the patterns, `(n, positions, pixels)`, and the densities, `(n, positions)`, e/Å²."""
    patterns, densities = [], []
    with Dataset(directory) as dataset:
        for entry in manifest.present(directory, dataset.ids):
            if entry.split == split:
                with dataset.view(entry.id) as record:
                    fractions = record.patterns().reshape(len(record.positions_angstrom), -1)
                    patterns.append(np.sqrt(np.maximum(fractions * fractions.shape[1], 0), dtype=np.float64))
                    densities.append(record.density.ravel().astype(np.float64))
    return np.array(patterns), np.array(densities)


def ridge_regression(x: Array, y: Array, ridge: float) -> Array:
    """Returns the weights of the columns of `x` and of a constant, which is last."""
    x = np.column_stack([x, np.ones(len(x))])
    square = x.T @ x
    square[np.diag_indices_from(square)] += ridge * np.trace(square) / len(square)
    return np.linalg.solve(square, x.T @ y)


def shared(x: Array, y: Array, test_x: Array, ridge: float) -> Array:
    """Returns the test densities of one map for all pixels, from x `(n, pixels, channels)` and y `(n, pixels)`."""
    weights = ridge_regression(x.reshape(-1, x.shape[-1]), y.ravel(), ridge)
    return test_x @ weights[:-1] + weights[-1]


def own(x: Array, y: Array, test_x: Array, ridge: float) -> Array:
    """Returns the test densities of one map for each pixel; arguments as of `shared`."""
    columns = []
    for pixel in range(y.shape[1]):
        weights = ridge_regression(x[:, pixel], y[:, pixel], 10 * ridge)  # of fewer rows
        columns.append(test_x[:, pixel] @ weights[:-1] + weights[-1])
    return np.stack(columns, axis=1)


def score(predicted: Array, density: Array) -> dict[str, float]:
    """Returns R² over all pixels and the mean Pearson correlation of the samples."""
    predicted = np.broadcast_to(predicted, density.shape)
    residual = np.mean((predicted - density) ** 2) / np.var(density)
    pearson = [np.corrcoef(p, d)[0, 1] for p, d in zip(predicted, density, strict=True)]
    return {"r_squared": 1 - float(residual), "pearson": float(np.mean(pearson))}


if __name__ == "__main__":
    sys.exit(main())
