"""The tables and pictures of reconstruct_vs_rivals.py."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib.colors import Normalize
from rich.console import Console
from rich.table import Table

from namsa.figures.panels import image_panel, panels, styled
from namsa.pixels import PixelGrid
from rivals.methods import SEARCH
from rivals.network import NETWORKS
from rivals.search import QUALITY, interior
from rivals.stacks import TARGETS, Image
from train.measure.metrics import image_metrics

Row = dict[str, Any]


def show(rows: list[Row]) -> None:
    for wanted in TARGETS:
        table = Table(title=f"projected {wanted}", box=None)
        for name in ("Å", "e/Å²", "method", "SSIM", "own fit", "Pearson"):
            table.add_column(name)
        for name in ("column, Å", "found", "spurious", "rank", "iterations", "CPU s", "loss", "network's time"):
            table.add_column(name, justify="right")
        for row in rows:
            if wanted not in row:
                continue
            n = row[wanted]
            quality = [number(n[key], n["standard_error"][key]) for key in QUALITY]
            column = [n[key] for key in ("column_error_angstrom", "columns_found", "columns_spurious", "column_rank")]
            effort = [str(n.get("iterations", "")), f"{n['cpu_seconds']:.3g}" if n["cpu_seconds"] else ""]
            loss = f"{n['loss_still_falls']:.1%}" if "loss_still_falls" in n else ""
            times = times_network(row, rows) if wanted == "density" else None
            table.add_row(
                f"{row['thickness_angstrom']:g}",
                f"{row['dose']:g}" if row["dose"] else "no noise",
                row["method"],
                *quality,
                *map(number, column),
                *effort,
                loss,
                f"{times:.0f} ×" if times else "",
            )
        Console(width=180).print(table)


def number(value: float | None, error: float | None = None) -> str:
    return "" if value is None else f"{value:.3f}" if error is None else f"{value:.3f} ± {error:.3f}"


def times_network(row: Row, rows: list[Row]) -> float | None:
    """The method's CPU time over the network's for the same samples."""
    here = ("thickness_angstrom", "dose", "samples")
    network = [r for r in rows if r["method"] == "network" and all(r[key] == row[key] for key in here)]
    if row["method"] not in SEARCH or not network:
        return None
    return float(row["density"]["cpu_seconds"] / network[0]["density"]["cpu_seconds"])


def ratio(rows: list[Row]) -> float | None:
    by_method: dict[str, list[float]] = {}
    for row in rows:
        by_method.setdefault(row["method"], []).append(row["density"]["ssim"] or 0.0)
    ptychography = [mean(values) for method, values in by_method.items() if method in SEARCH]
    return max(ptychography) / mean(by_method["iCoM"]) if ptychography and "iCoM" in by_method else None


@styled
def draw(pictures: dict[tuple[float, float], dict[str, Image]], step: Sequence[float], work: Path) -> list[Path]:
    """A picture a dose: the first test sample of each thickness, a row, by method with SSIM, on the truth's scale."""
    paths = []
    for dose in sorted({dose for _, dose in pictures}):
        rows = {thickness: pictures[thickness, dose] for thickness in sorted(t for t, d in pictures if d == dose)}
        names = [name for name in next(iter(rows.values())) if name in ("truth", "iCoM", *SEARCH, *NETWORKS)]
        figure, axes = panels(*[1.0] * len(rows), columns=len(names))
        for line, (thickness, images) in zip(axes, rows.items(), strict=True):
            truth = interior(images["truth"])
            for ax, name in zip(line, names, strict=True):
                image = interior(images[name])
                ssim = image_metrics(image, truth, huber_delta=1.0)["ssim"]
                title = f"{name}, {thickness:g} Å" if name == "truth" else f"{name} {number(ssim)}"
                image_panel(ax, image, PixelGrid(step, (0, 0)), title, "e/Å²", norm=Normalize(0, float(truth.max())))
        paths.append(work / f"pictures-{dose:g}.png")
        figure.savefig(paths[-1])
    return paths
