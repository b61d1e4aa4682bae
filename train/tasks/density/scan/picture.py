"""The picture of a reconstruction: its maps, the true density where it is known, and in words the
resolution and which values are usual.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np

from namsa.base.arrays import Array
from namsa.base.pixels import PixelGrid
from namsa.base.provenance_values import Provenance
from namsa.figures.density_figure import (
    Hatched,
    MapPanel,
    MeanPattern,
    density_figure,
    map_panel,
)

from ....apply.scan_result import Maps
from ..trust.familiarity import UNFAMILIAR

if TYPE_CHECKING:
    from matplotlib.figure import Figure


USUAL_TRUST = "0.47 to 0.62, shifted ones 0 to 0.12"  # docs/glossary.md
# of a scan, where errors are larger (docs/benchmarks/reconstruction.md)
EDGE_ANGSTROM = 0.8


class Shown(Protocol):
    """Contents of a picture of a reconstruction, as of `train.tasks.density.scan.result`."""

    @property
    def density(self) -> Array: ...
    @property
    def familiarity(self) -> Array | None: ...
    @property
    def trust(self) -> Array | None: ...
    @property
    def truth(self) -> Array | None: ...
    @property
    def bright_field(self) -> Array: ...
    @property
    def mean_pattern(self) -> Array: ...
    @property
    def pixels(self) -> PixelGrid: ...
    @property
    def scan_pixels(self) -> PixelGrid: ...
    @property
    def detector_pixels(self) -> PixelGrid: ...
    @property
    def step_angstrom(self) -> tuple[float, float]: ...
    @property
    def provenance(self) -> Provenance: ...


def draw(
    result: Shown, maps: Maps, bins: Mapping[str, Array], title: str, warning: str
) -> "Figure":
    """Draws a reconstruction.

    Args:
        result: The reconstruction.
        maps: Its maps with their units, by name, the density first.
        bins: Densities by depth, by name.
        title: What stands above.
        warning: Words behind the title, of a scan that the network cannot be relied on for.
    """
    panels = [map_panel(name, image, result.pixels, units) for name, (image, units) in maps.items()]
    if result.truth is not None:
        panels.insert(1, MapPanel("Truth", result.truth, result.pixels, "e/Å²", smooth=True))
    panels.append(
        map_panel("bright field", result.bright_field, result.scan_pixels, "fraction of the beam")
    )
    for name, image in bins.items():
        panels.append(MapPanel(name, image, result.pixels, "e/Å²", smooth=True))
    return density_figure(
        panels,
        title,
        pattern=MeanPattern(
            result.mean_pattern, result.detector_pixels, result.provenance["semiangle_mrad"]
        ),
        hatched=_hatched(result),
        warning=warning,
        one_scale=(("Density", "Truth"), tuple(bins)),
        caption=_caption(result),
    )


def _hatched(result: Shown) -> Hatched:
    """Returns the places that are not familiar, and the edges of the scan."""
    shape = result.density.shape
    unfamiliar = np.zeros(shape, bool)
    if result.familiarity is not None:
        unfamiliar = np.asarray(result.familiarity < UNFAMILIAR)
    return Hatched(unfamiliar, edges(shape, result.step_angstrom), result.pixels)


def edges(shape: tuple[int, ...], step_angstrom: tuple[float, float]) -> Array:
    """Returns which positions are nearer to an edge of the scan than `EDGE_ANGSTROM`, `shape`."""
    near_edge = np.ones(shape, bool)
    margin_y, margin_x = (round(EDGE_ANGSTROM / step) for step in step_angstrom)
    rows, columns = shape
    near_edge[margin_y : rows - margin_y, margin_x : columns - margin_x] = False
    return near_edge


def _caption(result: Shown) -> str:
    """Returns the resolution, and the usual values of the maps."""
    lines = []
    max_q = result.provenance.get("max_q_per_angstrom")
    if max_q:
        lines.append(f"Density: frequencies up to {max_q:.3g} 1/Å, details of {1 / max_q:.2g} Å.")
    lines.append(_conditions(result.provenance))
    if result.truth is not None:
        lines.append("Truth: of the file, in the same band and colours.")
    lines.append(f"Dotted: {EDGE_ANGSTROM:g} Å at the scan's edges, where errors are larger.")
    if result.familiarity is not None:
        lines.append(
            f"Familiarity: half of unseen crystals have more than 0.5; below {UNFAMILIAR} a "
            "place is hatched."
        )
    if result.trust is not None:
        lines.append(f"Trust: true densities had {USUAL_TRUST}.")
    return " ".join(lines)


def _conditions(provenance: Mapping[str, object]) -> str:
    """Returns the specimen's thickness and the dose in words."""
    thickness = provenance.get("thickness_angstrom")
    specimen = f"{thickness:.3g} Å" if thickness else "not known"
    counts = provenance.get("counts_per_pattern")
    dose = f"{counts:.3g} counts per pattern" if counts else "not known"
    return f"Thickness: {specimen}. Dose: {dose}."
