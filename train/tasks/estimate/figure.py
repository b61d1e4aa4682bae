"""The figure of an estimated scan."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from namsa.figures.panels import styled

from ...reports.figures import BLUE, INK, entitle


class EstimatePanel(NamedTuple):
    """A quantity of a scan."""

    title: str  # the quantity with its value and error, in words
    unit: str  # of the values
    value: float  # of the scan
    error: float  # one standard deviation
    windows: npt.NDArray[Any]  # values of the scan's windows
    limits: tuple[float, float]  # range of the quantity in the network's training


@styled
def estimate_figure(panels: Sequence[EstimatePanel], title: str) -> Figure:
    """Draws each quantity with its error and the values of the windows, on the range of the training."""
    figure = Figure(figsize=(7, 0.6 + 0.9 * len(panels)), layout="constrained")
    entitle(figure, title)
    for ax, panel in zip(figure.subplots(len(panels), 1, squeeze=False)[:, 0], panels, strict=True):
        ax.axvspan(*panel.limits, color=INK, alpha=0.08, lw=0)
        ax.plot(panel.windows, np.full(len(panel.windows), -0.4), "|", color=BLUE, alpha=0.5)
        ax.errorbar([panel.value], [0.2], xerr=[panel.error], fmt="o", color=BLUE, capsize=3)
        ax.set(title=panel.title, xlabel=panel.unit, ylim=(-1, 1), yticks=[])
    return figure
