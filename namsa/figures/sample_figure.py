"""The figure of a sample: what a microscope would record, and the specimen."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from namsa.figures.panels import MARKS, VIRTUAL, image_panel, mark_probes, panels, pattern_panel, styled, write_figure
from namsa.figures.signals import DARK_FIELD_FROM, check_drawable, dark_field, example_probes
from namsa.names import LONGEST
from namsa.physics import virtual_detectors
from namsa.pixels import SampleArrays, density_grid, pattern_grid, potential_grid, scan_grid
from namsa.text import plural, shorten


@styled
def show(sample: SampleArrays, path: Path | str | None = None) -> Figure:
    """Draws a sample.

    Args:
        sample: The sample.
        path: Where to write the picture; its ending names the format (.png, .pdf, .svg). Default: nowhere.

    Returns:
        The figure.

    Raises:
        InputError: If the provenance does not describe the arrays, or if they hold numbers that are not finite, or if
            Matplotlib does not know the picture's format.
        WorkError: If the file cannot be written.
    """
    figure = sample_figure(sample)
    if path is not None:
        write_figure(figure, Path(path))
    return figure


@styled
def sample_figure(sample: SampleArrays) -> Figure:
    """Returns a figure with patterns above, and the specimen below: potential, density and virtual images.

    Virtual images are drawn only of a raster scan.
    """
    check_drawable(sample)
    cbed, provenance = sample.cbed, sample.provenance
    semiangle, angles = provenance["semiangle_mrad"], pattern_grid(provenance)
    cell = potential_grid(provenance)
    figure, (above, below) = panels(angles.aspect(cbed.shape[1:]), cell.aspect(sample.projected_potential.shape))
    figure.suptitle(caption(provenance), fontsize=11, x=0.008, ha="left", parse_math=False)
    positions = np.asarray(provenance["positions_angstrom"], float)
    probes = list(example_probes(cbed, angles, semiangle, positions))

    title = f"Mean of {plural(len(cbed), 'pattern')}"
    pattern_panel(above[0], cbed.mean(axis=0), angles, title, semiangle_mrad=semiangle)
    for ax, mark, probe in zip(above[1:], MARKS, probes, strict=False):
        y, x = positions[probe]
        pattern_panel(ax, cbed[probe], angles, f"{mark}: y {y:.2f} Å, x {x:.2f} Å")

    # Heavy columns are so sharp that light ones would be invisible beside them on a linear scale.
    root = PowerNorm(0.5, vmin=0, vmax=float(sample.projected_potential.max()) or 1.0)
    image_panel(below[0], sample.projected_potential, cell, "Projected potential", "V·Å", norm=root)
    image_panel(below[1], sample.density, density_grid(provenance), "Projected electron density", "e/Å²")
    for ax in below[:2]:
        mark_probes(ax, positions[probes], provenance["extent_angstrom"])
    if scan := scan_grid(provenance):
        bright = virtual_detectors.bright_field(cbed, angles, semiangle)
        dark = dark_field(cbed, angles, semiangle)
        for ax, title, values in (
            (below[2], f"Bright field < {semiangle:g} mrad", bright),
            (below[3], f"Annular dark field > {DARK_FIELD_FROM * semiangle:g} mrad", dark),
        ):
            if values is not None:
                image = values.reshape(provenance["scan_shape"])
                image_panel(ax, image, scan, title, "fraction of the beam", cmap=VIRTUAL)
    return figure


def caption(provenance: Mapping[str, Any]) -> str:
    """Returns what a sample is of, in one line; only a dataset's samples have a material and a zone axis."""
    parts = [shorten(provenance["material"], LONGEST)] if "material" in provenance else []
    if "zone_axis" in provenance:
        parts.append("[" + " ".join(str(index) for index in provenance["zone_axis"]) + "]")
    parts.append(f"{provenance['thickness_angstrom']:.1f} Å thick")
    parts.append(f"{provenance['energy_ev'] / 1e3:g} keV, semiangle {provenance['semiangle_mrad']:g} mrad")
    return "  ·  ".join(parts)
