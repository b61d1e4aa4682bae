"""The part of the report about a density by depth: a table of errors, and the bins of some samples."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from namsa.errors import InputError
from namsa.figures.panels import image_panel, panels, styled
from namsa.files import open_atomic
from namsa.numpy_files import read_npz
from namsa.pixels import PixelGrid
from namsa.text import shorten

from ...reports import figures
from ...reports.report_tables import number, table
from ...reports.results import EVALUATE_AGAIN
from .depth_metrics import DepthErrors, DepthSummary
from .pictures import LARGEST_FILE_BYTES, Picture

FILE_NAME = "depth.npz"

Array = npt.NDArray[np.float32]
Bins = Mapping[str, tuple[Array, Array]]  # truth and prediction of samples by id, (bins, h, w), e/Å²


def write_bins(path: Path, bins: Bins) -> None:
    """Writes a `depth.npz`: "{id}/truth" and "{id}/prediction" of each sample, float32."""
    arrays = {f"{id}/{name}": array for id, pair in bins.items() for name, array in zip(_NAMES, pair, strict=True)}
    with open_atomic(path) as file:
        np.savez_compressed(file, **arrays)


def read_bins(path: Path) -> Bins:
    """Reads a `depth.npz`. Raises InputError if the file cannot be read, or is no such file."""
    arrays = read_npz(path, largest_bytes=LARGEST_FILE_BYTES)
    found = {}
    for id in sorted({name.rpartition("/")[0] for name in arrays}):
        truth, prediction = (arrays.get(f"{id}/{name}", np.empty(0)) for name in _NAMES)
        numbers = all(each.dtype.kind == "f" and each.size and np.isfinite(each).all() for each in (truth, prediction))
        if not numbers or truth.ndim != 3 or truth.shape != prediction.shape:
            raise InputError(f"{path}: {shorten(id)} has no bins of finite numbers: {EVALUATE_AGAIN}")
        found[id] = truth, prediction
    return found


_NAMES = ("truth", "prediction")


def section(summary: DepthSummary, pictures: Sequence[Picture], bins: Bins) -> str:
    """Returns the section of a run."""
    shown = [_figure(picture, *bins[picture.facts["id"]]) for picture in pictures if picture.facts["id"] in bins]
    return "\n".join(("<h2>By depth</h2>", _headline(summary), _errors(summary), *shown))


def _headline(summary: DepthSummary) -> str:
    """The main result in a paragraph."""
    explained = summary["explained"]
    varying = ""
    if explained is not None:
        varying = f" In the median sample it finds {number(100 * explained, '.0f')} % of what varies along the beam."
    return (
        f"<p>The density of {summary['bins']} equal bins along the beam, the first where it enters. The error of equal "
        f"parts of the network's own projected density is {_factor(summary['factor_own_projected'])} times that of the "
        f"network's bins, the error of equal parts of the true projected density "
        f"{_factor(summary['factor_true_projected'])} times.{varying}</p>"
    )


def _factor(value: float | None) -> str:
    return f"<strong>{number(value, '.2f')}</strong>"


def _errors(summary: DepthSummary) -> str:
    """The table of errors."""
    estimates: tuple[tuple[str, DepthErrors], ...] = (
        ("Network", summary["network"]),
        ("Own projected density, equal parts", summary["own_projected"]),
        ("True projected density, equal parts", summary["true_projected"]),
        ("Mean image", summary["mean_predictor"]),
    )
    head = ("", "R", "RMS, e/Å²", *(f"MAE of bin {bin + 1}" for bin in range(summary["bins"])))
    rows = [
        (name, number(row["r_factor"], ".3f"), number(row["rmse"], ".2f"), *(number(mae, ".2f") for mae in row["mae"]))
        for name, row in estimates
    ]
    return table(f"Means over {summary['samples']} samples", head, rows, text_columns=1)


def _figure(picture: Picture, truth: Array, prediction: Array) -> str:
    """The bins of one sample with a caption."""
    facts = picture.facts
    source = figures.data_uri(bins_figure(facts, truth, prediction), "png")
    kind = str(facts.get("conditions", {}).get("kind", "crystal")).replace("_", " ")
    return (
        f"<figure><figcaption><strong>{escape(facts['material'])}</strong>, {escape(kind)}, "
        f"{facts['thickness_angstrom']:.1f} Å thick, {escape(facts['split'])} split</figcaption>"
        f'<img src="{source}" alt="Density by depth of {escape(facts["id"])}"></figure>'
    )


@styled
def bins_figure(facts: Mapping[str, Any], truth: Array, prediction: Array) -> Figure:
    """Draws the true bins, (bins, h, w), e/Å², above those of the network, all on one scale."""
    pixels = PixelGrid(*facts["density_frame"])
    aspect = pixels.aspect(truth.shape[1:])
    figure, axes = panels(aspect, aspect, columns=len(truth))
    norm = Normalize(min(0.0, float(truth.min())), float(truth.max()) or 1.0)
    edges = facts["thickness_angstrom"] * np.arange(len(truth) + 1) / len(truth)
    for name, row, images in (("Truth", axes[0], truth), ("Network", axes[1], prediction)):
        for index, (ax, image) in enumerate(zip(row, images, strict=True)):
            image_panel(ax, image, pixels, f"{name}, {edges[index]:.3g}–{edges[index + 1]:.3g} Å", "e/Å²", norm=norm)
    return figure
