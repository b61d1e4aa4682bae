"""A sample as one interactive HTML page: a map of the specimen, and the pattern at the position under the pointer."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.arrays import Array
from namsa.figures.page_images import PageImage, limits, pattern_image
from namsa.figures.panels import PATTERN_POWER, VIRTUAL
from namsa.figures.sample_figure import Signal, caption, check_drawable, sample_signals
from namsa.physics import virtual_detectors
from namsa.physics.optics import wavelength_angstrom
from namsa.pixels import (
    UNITS,
    PixelGrid,
    binned,
    binned_grid,
    density_grid,
    fills_cell,
    pattern_grid,
    potential_grid,
    scan_grid,
)
from namsa.sample import Sample
from namsa.text import plural
from namsa.view.page import Page, PageContent, PageUnits, render
from namsa.view.page_overlay import read_overlays
from namsa.view.page_tiles import (
    MAX_PAGE_BYTES,
    TilePlan,
    Tiles,
    as_halves,
    plan_tiles,
    reduction_note,
    thinned_grid,
)

DEFLECTION = "RdBu_r"
SCALE_NOTE = f"Patterns are shown as intensity to the power {PATTERN_POWER:g}, all on one scale."


def sample_page(sample: Sample, name: str, *, overlay: Path | None = None, max_bytes: int = MAX_PAGE_BYTES) -> Page:
    """Returns the page of a sample. The file of a reconstruction, if there is one, is shown over the maps.

    Raises:
        InputError: If the provenance does not describe the arrays, if they hold numbers that are not finite, or if the
            overlay is none.
    """
    check_drawable(sample)
    provenance = sample.provenance
    signals = sample_signals(sample)
    maps = page_maps(sample, signals)
    scan, detector = provenance.get("scan_shape") or (len(sample.cbed),), sample.cbed.shape[1:]
    mean = sample.cbed.mean(axis=0, dtype=np.float64)
    plan = plan_tiles(
        scan, detector, max_bytes, 2 * sum(image.size for image in (mean, *(map_.image for map_ in maps)))
    )
    raster = np.arange(len(sample.cbed)).reshape(scan)[(slice(None, None, plan.every),) * len(scan)]
    numbers = raster.ravel()
    tiles = sample_tiles(sample.cbed, numbers, pattern_grid(provenance), plan)
    positions = np.asarray(provenance["positions_angstrom"], float)[numbers]
    empty = pattern_grid(provenance).emptiness(detector)
    grid = scan_grid(provenance)
    content = PageContent(
        title=name,
        caption=caption(provenance),
        note=" ".join(filter(None, (SCALE_NOTE, reduction_note(plan, scan, detector), empty and f"{empty}."))),
        units=PageUnits("Å", "mrad", UNITS["cbed"]),
        tiles=tiles,
        brightest=limits(pattern_image(tiles.values(), tiles.grid, "Pattern"))[1],
        numbers=numbers,
        positions=positions,
        raster=None if grid is None else ((raster.shape[0], raster.shape[1]), thinned_grid(grid, plan)),
        period=provenance["extent_angstrom"],
        mean=pattern_image(mean, pattern_grid(provenance), f"Mean of {plural(len(sample.cbed), 'pattern')}"),
        semiangle=provenance["semiangle_mrad"],
        disk=provenance["semiangle_mrad"],
        maps=maps,
        signals=[Signal(title, units, values[numbers]) for title, units, values in signals],
        overlays=[] if overlay is None else read_overlays(overlay, positions),
    )
    return render(content)


def page_maps(sample: Sample, signals: Sequence[Signal]) -> list[PageImage]:
    """Returns images of the specimen: of the signals if the scan is a raster, and of what was simulated."""
    provenance = sample.provenance
    # Heavy columns are sharp peaks: on a linear scale nothing else would be visible.
    images = [
        PageImage(
            "Projected potential",
            UNITS["projected_potential"],
            sample.projected_potential,
            potential_grid(provenance),
            low=0,
            power=0.5,
        )
    ]
    if min(density_grid(provenance).step) > 0:
        images.append(PageImage("Electron density", UNITS["density"], sample.density, density_grid(provenance)))
    scan = scan_grid(provenance)
    return images if scan is None else [*_scan_maps(provenance, scan, signals), *images]


def _scan_maps(provenance: Mapping[str, Any], scan: PixelGrid, signals: Sequence[Signal]) -> list[PageImage]:
    """Returns the signals as images of the scan, and the phase from the deflection."""
    shape, wavelength = provenance["scan_shape"], wavelength_angstrom(provenance["energy_ev"])
    deflection = np.stack([signal.values for signal in signals if signal.units == "mrad"], axis=-1)
    phase = virtual_detectors.integrated_centre_of_mass(
        deflection.reshape(*shape, 2), (scan.step[0], scan.step[1]), wavelength, periodic=fills_cell(scan, provenance)
    )
    return [
        *signal_maps(signals, (shape[0], shape[1]), scan, "mrad"),
        PageImage("Integrated deflection (iCoM)", "rad", phase, scan, VIRTUAL),
    ]


def signal_maps(
    signals: Sequence[Signal], shape: tuple[int, int], scan: PixelGrid, angle_units: str
) -> list[PageImage]:
    """Returns signals as images of the scan; those in units of an angle on one scale about zero."""
    widest = max((float(np.abs(values).max()) for _, units, values in signals if units == angle_units), default=0.0)
    return [
        PageImage(title, units, values.reshape(shape), scan, VIRTUAL)
        if units != angle_units
        else PageImage(title, units, values.reshape(shape), scan, DEFLECTION, -widest, widest)
        for title, units, values in signals
    ]


def sample_tiles(cbed: Array, numbers: npt.NDArray[np.intp], angles: PixelGrid, plan: TilePlan) -> Tiles:
    """Returns patterns `(n, dy, dx)` of a sample as its page shows them.

    Args:
        numbers: Those that are shown, `(m,)`.
        angles: Their pixels, mrad.
    """
    halves, exponents = as_halves(np.stack([binned(cbed[number], plan.binning) for number in numbers]))
    return Tiles(halves, exponents, binned_grid(angles, plan.binning))
