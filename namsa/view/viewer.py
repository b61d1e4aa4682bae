"""A sample as one interactive HTML page: maps, and the pattern under the pointer."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array
from namsa.base.pixels import (
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
from namsa.base.provenance_values import Provenance
from namsa.base.text import plural
from namsa.figures.page_images import PageImage, limits, pattern_image
from namsa.figures.panels import VIRTUAL
from namsa.figures.sample_figure import (
    Signal,
    caption,
    check_drawable,
    drawn_density,
    sample_signals,
)
from namsa.physics import virtual_detectors
from namsa.physics.optics import wavelength_angstrom
from namsa.samples.sample import Sample
from namsa.view.page import Page, PageContent, PageUnits, render
from namsa.view.page_overlay import Overlay, read_overlays
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
SCALE_NOTE = "All patterns are shown on one scale."


def sample_page(
    sample: Sample, name: str, *, overlay: Path | None = None, max_bytes: int = MAX_PAGE_BYTES
) -> Page:
    """Returns the page of a sample.

    Args:
        overlay: File of a reconstruction, which is shown over the maps. `None` for none.

    Raises:
        InputError: If the provenance does not describe the arrays, if they hold numbers that are
            not finite, or if the overlay is none.
    """
    check_drawable(sample)
    provenance = sample.provenance
    signals = sample_signals(sample)
    maps = page_maps(sample, signals)
    scan = provenance.get("scan_shape") or (len(sample.cbed),)
    detector = sample.cbed.shape[1:]
    angles = pattern_grid(provenance)
    mean = sample.cbed.mean(axis=0, dtype=np.float64)
    image_bytes = 2 * (mean.size + sum(image.image.size for image in maps))
    plan = plan_tiles(scan, detector, max_bytes, image_bytes)

    thinned = (slice(None, None, plan.every),) * len(scan)
    raster = np.arange(len(sample.cbed)).reshape(scan)[thinned]
    numbers = raster.ravel()
    tiles = sample_tiles(sample.cbed, numbers, angles, plan)
    positions = np.asarray(provenance["positions_angstrom"], float)[numbers]
    grid = scan_grid(provenance)
    shown = None
    if grid is not None:
        shown = ((raster.shape[0], raster.shape[1]), thinned_grid(grid, plan))
    shown_signals = []
    for signal in signals:
        shown_signals.append(signal._replace(values=signal.values[numbers]))
    overlays: list[Overlay] = []
    if overlay is not None:
        overlays = read_overlays(overlay, positions)
    content = PageContent(
        title=name,
        caption=caption(provenance),
        note=_note(reduction_note(plan, scan, detector), angles.emptiness(detector)),
        units=PageUnits("Å", "mrad", UNITS["cbed"]),
        tiles=tiles,
        brightest=limits(pattern_image(tiles.values(), tiles.grid, "Pattern"))[1],
        numbers=numbers,
        positions=positions,
        raster=shown,
        period=provenance["extent_angstrom"],
        mean=pattern_image(mean, angles, f"Mean of {plural(len(sample.cbed), 'pattern')}"),
        semiangle=provenance["semiangle_mrad"],
        disk=provenance["semiangle_mrad"],
        maps=maps,
        signals=shown_signals,
        overlays=overlays,
    )
    return render(content)


def _note(reduction: str, empty_pixels: str | None) -> str:
    """Returns the text below the page's patterns; its parts may be empty."""
    sentences = [SCALE_NOTE]
    if reduction:
        sentences.append(reduction)
    if empty_pixels:
        sentences.append(f"{empty_pixels}.")
    return " ".join(sentences)


def page_maps(sample: Sample, signals: Sequence[Signal]) -> list[PageImage]:
    """Returns images of the specimen: what was simulated and, of a raster scan, the signals."""
    provenance = sample.provenance
    # Heavy columns are sharp peaks: on a linear scale nothing else would be visible.
    images = [
        PageImage(
            "Projected potential",
            f"{UNITS['projected_potential']}, square-root scale",
            sample.projected_potential,
            potential_grid(provenance),
            low=0,
            power=0.5,
        )
    ]
    if min(density_grid(provenance).step) > 0:
        density = drawn_density(sample)
        units = f"{UNITS['density']}, {density.resolution}"
        images.append(PageImage("Electron density", units, density.image, density_grid(provenance)))
    scan = scan_grid(provenance)
    if scan is None:
        return images
    return [*_scan_maps(provenance, scan, signals), *images]


def _scan_maps(
    provenance: Provenance, scan: PixelGrid, signals: Sequence[Signal]
) -> list[PageImage]:
    """Returns the signals as images of the scan, and the phase from the deflection."""
    shape = provenance["scan_shape"]
    wavelength = wavelength_angstrom(provenance["energy_ev"])
    deflection = np.stack([signal.values for signal in signals if signal.units == "mrad"], axis=-1)
    phase = virtual_detectors.integrated_centre_of_mass(
        deflection.reshape(*shape, 2),
        (scan.step[0], scan.step[1]),
        wavelength,
        periodic=fills_cell(scan, provenance),
    )
    return [
        *signal_maps(signals, (shape[0], shape[1]), scan, "mrad"),
        PageImage("Integrated deflection (iCoM)", "rad", phase, scan, VIRTUAL),
    ]


def signal_maps(
    signals: Sequence[Signal], shape: tuple[int, int], scan: PixelGrid, angle_units: str
) -> list[PageImage]:
    """Returns signals as images of the scan; those in units of an angle on one scale about zero."""
    deflections = [signal.values for signal in signals if signal.units == angle_units]
    widest = max((float(np.abs(values).max()) for values in deflections), default=0.0)
    maps = []
    for title, units, values in signals:
        image = values.reshape(shape)
        if units == angle_units:
            maps.append(PageImage(title, units, image, scan, DEFLECTION, -widest, widest))
        else:
            maps.append(PageImage(title, units, image, scan, VIRTUAL))
    return maps


def sample_tiles(
    cbed: Array, numbers: npt.NDArray[np.intp], angles: PixelGrid, plan: TilePlan
) -> Tiles:
    """Returns patterns `(n, dy, dx)` of a sample as its page shows them.

    Args:
        numbers: Those that are shown, `(m,)`.
        angles: Their pixels, mrad.
    """
    halves, exponents = as_halves(
        np.stack([binned(cbed[position], plan.binning) for position in numbers])
    )
    return Tiles(halves, exponents, binned_grid(angles, plan.binning))
