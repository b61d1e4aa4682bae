"""The part of the report about a density by depth: a table of errors, and the bins of some
samples.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from namsa.base.errors import InputError
from namsa.base.files import open_atomic
from namsa.base.numpy_files import read_npz
from namsa.base.pixels import PixelGrid
from namsa.base.text import shorten
from namsa.figures.document import Block, DocumentSection, Paragraph, Picture, Styled, Table, strong
from namsa.figures.panels import image_panel, panels, styled

from ....reports import figures
from ....reports.results import EVALUATE_AGAIN
from ....reports.words import number
from ..depth_metrics import DepthErrors, DepthSummary
from .pictures import LARGEST_FILE_BYTES, PictureFacts, SamplePicture

FILE_NAME = "depth.npz"

Array = npt.NDArray[np.float32]
# truth and prediction of samples by id, (bins, h, w), e/Å²
Bins = Mapping[str, tuple[Array, Array]]


def write_bins(path: Path, bins: Bins) -> None:
    """Writes a `depth.npz`: "{id}/truth" and "{id}/prediction" of each sample, float32."""
    arrays = {}
    for id, (truth, prediction) in bins.items():
        arrays[f"{id}/truth"] = truth
        arrays[f"{id}/prediction"] = prediction
    with open_atomic(path) as file:
        np.savez_compressed(file, **arrays)


def read_bins(path: Path) -> Bins:
    """Reads a `depth.npz`. Raises InputError if the file cannot be read, or is no such file."""
    arrays = read_npz(path, largest_bytes=LARGEST_FILE_BYTES)
    bins = {}
    for id in sorted({name.rpartition("/")[0] for name in arrays}):
        truth = arrays.get(f"{id}/truth", np.empty(0))
        prediction = arrays.get(f"{id}/prediction", np.empty(0))
        numbers = _has_numbers(truth) and _has_numbers(prediction)
        if not numbers or truth.ndim != 3 or truth.shape != prediction.shape:
            raise InputError(
                f"{path}: {shorten(id)} has no bins of finite numbers: {EVALUATE_AGAIN}"
            )
        bins[id] = truth, prediction
    return bins


def _has_numbers(array: npt.NDArray[np.floating]) -> bool:
    """Returns whether an array has values, and all of them are finite floating-point numbers."""
    return bool(array.dtype.kind == "f" and array.size and np.isfinite(array).all())


def section(
    summary: DepthSummary, pictures: Sequence[SamplePicture], bins: Bins
) -> DocumentSection:
    """Returns the section of a run."""
    blocks: list[Block] = [_headline(summary), _errors(summary)]
    for picture in pictures:
        if picture.facts["id"] in bins:
            truth, prediction = bins[picture.facts["id"]]
            blocks.append(_picture(picture, truth, prediction))
    return DocumentSection("By depth", blocks)


def _headline(summary: DepthSummary) -> Paragraph:
    """Returns the main result in a paragraph."""
    explained = summary["explained"]
    varying = ""
    if explained is not None:
        varying = (
            f" In the median sample it finds {number(100 * explained, '.0f')} % of what varies "
            "along the beam."
        )
    return Paragraph(
        (
            f"The density of {summary['bins']} equal bins along the beam, the first where it "
            "enters. The error of equal parts of the network's own projected density is ",
            _factor(summary["factor_own_projected"]),
            " times that of the network's bins, the error of equal parts of the true projected "
            "density ",
            _factor(summary["factor_true_projected"]),
            f" times.{varying}",
        )
    )


def _factor(value: float | None) -> Styled:
    return strong(number(value, ".2f"))


def _errors(summary: DepthSummary) -> Table:
    """Returns the table of errors."""
    estimates: tuple[tuple[str, DepthErrors], ...] = (
        ("Network", summary["network"]),
        ("Own projected density, equal parts", summary["own_projected"]),
        ("True projected density, equal parts", summary["true_projected"]),
        ("Mean image", summary["mean_predictor"]),
    )
    head = ["", "R", "RMS, e/Å²"]
    for index in range(summary["bins"]):
        head.append(f"MAE of bin {index + 1}")
    rows = []
    for name, errors in estimates:
        cells = [name, number(errors["r_factor"], ".3f"), number(errors["rmse"], ".2f")]
        cells += [number(mae, ".2f") for mae in errors["mae"]]
        rows.append(cells)
    return Table(head, rows, 1, caption=f"Means over {summary['samples']} samples")


def _picture(picture: SamplePicture, truth: Array, prediction: Array) -> Picture:
    """Returns the bins of one sample with a caption."""
    facts = picture.facts
    source = figures.data_uri(bins_figure(facts, truth, prediction), "png")
    kind = str(facts.get("conditions", {}).get("kind", "crystal")).replace("_", " ")
    caption = (
        strong(facts["material"]),
        f", {kind}, {facts['thickness_angstrom']:.1f} Å thick, {facts['split']} split",
    )
    return Picture(source, f"Density by depth of {facts['id']}", caption)


@styled
def bins_figure(facts: PictureFacts, truth: Array, prediction: Array) -> Figure:
    """Draws the true bins, (bins, h, w), e/Å², above those of the network, all on one scale."""
    pixels = PixelGrid(*facts["density_frame"])
    aspect = pixels.aspect(truth.shape[1:])
    figure, axes = panels(aspect, aspect, columns=len(truth))
    norm = Normalize(min(0.0, float(truth.min())), float(truth.max()) or 1.0)
    edges = facts["thickness_angstrom"] * np.arange(len(truth) + 1) / len(truth)
    for name, row, images in (("Truth", axes[0], truth), ("Network", axes[1], prediction)):
        for index, (ax, image) in enumerate(zip(row, images, strict=True)):
            image_panel(
                ax,
                image,
                pixels,
                f"{name}, {edges[index]:.3g}–{edges[index + 1]:.3g} Å",
                "e/Å²",
                norm=norm,
            )
    return figure
