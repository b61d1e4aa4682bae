"""The figure of an estimated scan."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from namsa.figures.panels import styled

from ...reports.figures import BLUE, INK, entitle
from .quantities import QUANTITIES


@styled
def estimate_figure(scan: Any, title: str) -> Figure:
    """Draws each quantity of an `EstimatedScan` with its error and its windows, on the range of the
    training.
    """
    quantities = scan.quantities
    figure = Figure(figsize=(7, 0.6 + 0.9 * len(quantities)), layout="constrained")
    entitle(figure, title)
    for ax, quantity in zip(
        figure.subplots(len(quantities), 1, squeeze=False)[:, 0], quantities, strict=True
    ):
        windows = scan.values[quantity.name].ravel()
        ax.axvspan(*scan.ranges[quantity.name], color=INK, alpha=0.08, lw=0)
        ax.plot(windows, np.full(len(windows), -0.4), "|", color=BLUE, alpha=0.5)
        ax.errorbar([quantity.value], [0.2], xerr=[quantity.error], fmt="o", color=BLUE, capsize=3)
        ax.set(title=str(quantity), xlabel=QUANTITIES[quantity.name].unit, ylim=(-1, 1), yticks=[])
    return figure
