"""The figure of a sample: what a microscope and virtual detectors would record, and the
specimen.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from namsa.base import provenance_values
from namsa.base.arrays import Floats
from namsa.base.names import LONGEST
from namsa.base.pixels import (
    UNITS,
    PixelGrid,
    SampleArrays,
    array_axes,
    density_grid,
    pattern_grid,
    potential_grid,
    sample_arrays,
    scan_grid,
)
from namsa.base.provenance_values import Provenance
from namsa.base.text import plural, shorten
from namsa.figures.panels import (
    MARKS,
    VIRTUAL,
    frame_scan,
    image_panel,
    letter_panels,
    mark_probes,
    panels,
    pattern_panel,
    styled,
    write_figure,
    zoom_to_scan,
)
from namsa.physics import density_target, virtual_detectors
from namsa.physics.grid import Grid


@styled
def show(sample: SampleArrays, path: Path | str | None = None) -> Figure:
    """Draws a sample.

    Args:
        sample: The sample.
        path: Where to write the picture; its ending names the format (.png, .pdf, .svg). Default:
            nowhere.

    Returns:
        The figure.

    Raises:
        InputError: If the provenance does not describe the arrays, or if they hold numbers that are
            not finite, or if Matplotlib does not know the picture's format.
        WorkError: If the file cannot be written.

    Example:
        >>> figure = namsa.show(sample)
    """
    figure = sample_figure(sample)
    if path is not None:
        write_figure(figure, Path(path))
    return figure


@styled
def sample_figure(sample: SampleArrays) -> Figure:
    """Returns a figure with patterns above, and the specimen below: potential, density and virtual
    images.

    Virtual images are drawn only of a raster scan.
    """
    check_drawable(sample)
    cbed = sample.cbed
    provenance = sample.provenance
    angles = pattern_grid(provenance)
    cell = potential_grid(provenance)
    figure, (above, below) = panels(
        angles.aspect(cbed.shape[1:]), cell.aspect(sample.projected_potential.shape)
    )
    figure.suptitle(caption(provenance), fontsize=11, x=0.008, ha="left", parse_math=False)
    positions = np.asarray(provenance["positions_angstrom"], float)
    probes = list(example_probes(cbed, angles, provenance["semiangle_mrad"], positions))
    _draw_patterns(above, sample, angles, positions, probes)
    _draw_specimen(below, sample, cell)
    for ax in below[:2]:
        _mark_scan(ax, provenance, positions, probes)
    if scan := scan_grid(provenance):
        _draw_virtual_images(below[2:], sample, angles, scan)
    letter_panels([*above, *below])
    return figure


def _draw_patterns(
    axes: Sequence[Axes],
    sample: SampleArrays,
    angles: PixelGrid,
    positions: Floats,
    probes: Sequence[int],
) -> None:
    """Draws the mean pattern and those of a few probes."""
    cbed = sample.cbed
    places = axes
    if len(cbed) > 1:  # the mean of one pattern is the pattern
        title = f"Mean of {plural(len(cbed), 'pattern')}"
        semiangle = sample.provenance["semiangle_mrad"]
        pattern_panel(axes[0], cbed.mean(axis=0), angles, title, semiangle_mrad=semiangle)
        places = axes[1:]
    for ax, mark, probe in zip(places, MARKS, probes, strict=False):
        y, x = positions[probe]
        pattern_panel(ax, cbed[probe], angles, f"{mark}: y {y:.2f} Å, x {x:.2f} Å")


def _draw_specimen(axes: Sequence[Axes], sample: SampleArrays, cell: PixelGrid) -> None:
    """Draws the potential and the density."""
    potential = sample.projected_potential
    # Heavy columns are so sharp that light ones would be invisible beside them on a linear scale.
    root = PowerNorm(0.5, vmin=0, vmax=float(potential.max()) or 1.0)
    title = "Projected potential"
    image_panel(axes[0], potential, cell, title, "V·Å, square-root scale", norm=root)
    density = drawn_density(sample)
    pixels = density_grid(sample.provenance)
    image_panel(axes[1], density.image, pixels, "Projected electron density", "e/Å²")
    axes[1].set_xlabel(f"Å; {density.resolution}")


def _mark_scan(ax: Axes, provenance: Provenance, positions: Floats, probes: list[int]) -> None:
    """Marks probes, and the frame of a raster scan, in an image of the specimen."""
    extent = provenance["extent_angstrom"]
    is_raster = bool(provenance["scan_shape"])
    if is_raster:
        zoom_to_scan(ax, positions, extent)
    mark_probes(ax, positions[probes], extent)
    if is_raster:
        frame_scan(ax, positions, extent)


def _draw_virtual_images(
    axes: Sequence[Axes], sample: SampleArrays, angles: PixelGrid, scan: PixelGrid
) -> None:
    """Draws the bright field and, if the detector reaches so far, the dark field."""
    cbed = sample.cbed
    provenance = sample.provenance
    semiangle = provenance["semiangle_mrad"]
    bright = virtual_detectors.bright_field(cbed, angles, semiangle)
    dark = dark_field(cbed, angles, semiangle)
    images = [(axes[0], f"Bright field < {semiangle:g} mrad", bright)]
    if dark is not None:
        images.append((axes[1], dark_field_title(semiangle, angles, cbed.shape[1:]), dark))
    for ax, title, values in images:
        image = values.reshape(provenance["scan_shape"])
        image_panel(ax, image, scan, title, "fraction of the beam", cmap=VIRTUAL)


class DrawnDensity(NamedTuple):
    """A density as pictures show it."""

    image: npt.NDArray[np.floating]  # (ny, nx), e/Å²
    resolution: str  # in words


def drawn_density(sample: SampleArrays) -> DrawnDensity:
    """Returns the density with the resolution of the package's networks, so that pictures of one
    crystal have the same numbers.

    One of less resolution, or that does not cover the cell, is returned as it is.
    """
    provenance = sample.provenance
    density = sample.density
    max_q = provenance.get("density_max_q_per_angstrom")
    own_details = f"details of {1 / max_q:.2g} Å" if max_q else ""
    if max_q and max_q <= DRAWN_MAX_Q:
        return DrawnDensity(density, own_details)
    extent_y, extent_x = provenance["extent_angstrom"]
    step_y, step_x = density_grid(provenance).step
    rows, columns = density.shape
    covers_cell = np.allclose((rows * step_y, columns * step_x), (extent_y, extent_x))
    if not covers_cell or 2 * max(step_y, step_x) * DRAWN_MAX_Q > 1:
        return DrawnDensity(density, own_details or f"pixels of {max(step_y, step_x):.2g} Å")
    grid = Grid((rows, columns), (extent_y, extent_x))
    coefficients = density_target.band_limited(density.astype(np.float64), grid, DRAWN_MAX_Q)
    if max_q:
        q = np.sqrt(grid.squared_frequency())
        within = q < DRAWN_MAX_Q
        # The drawn window replaces the stored one. Their quotient is at most 1.
        coefficients[within] /= density_target.window(q, max_q)[within]
    return DrawnDensity(density_target.on_grid(coefficients), f"details of {1 / DRAWN_MAX_Q:.2g} Å")


def caption(provenance: Provenance) -> str:
    """Returns what a sample is of, in one line; only a dataset's samples have a material and a zone
    axis.
    """
    parts = [shorten(provenance["material"], LONGEST)] if "material" in provenance else []
    if "zone_axis" in provenance:
        parts.append("[" + " ".join(str(index) for index in provenance["zone_axis"]) + "]")
    parts.append(f"{provenance['thickness_angstrom']:.1f} Å thick")
    parts.append(
        f"{provenance['energy_ev'] / 1e3:g} keV, semiangle {provenance['semiangle_mrad']:g} mrad"
    )
    dose = dose_text(provenance)
    if dose:
        parts.append(dose)
    return "  ·  ".join(parts)


def dose_text(provenance: Provenance) -> str:
    """Returns the dose of a sample's patterns in words; nothing where it is not known."""
    if "detector" not in provenance:
        return ""
    detector = provenance["detector"]
    if not isinstance(detector, Mapping):
        return "no noise"
    for key, words in DOSES.items():
        electrons = detector.get(key)
        if isinstance(electrons, int | float):
            return f"{electrons:.3g} {words}"
    return "no noise"


DOSES = {
    "electrons_per_pattern": "electrons per pattern",
    "dose_electrons_per_angstrom2": "electrons per Å²",
}
DRAWN_MAX_Q = 1.25  # 1/Å, of the densities of the package's networks


APART = 0.15  # of the scan's longer side, between positions whose patterns are drawn
DARK_FIELD_FROM = 1.25  # semiangles; beyond the soft edge of the aperture


class Signal(NamedTuple):
    """One value per probe position."""

    title: str  # name with the angles
    units: str  # units of the values
    values: Floats  # `(n,)`


def check_drawable(sample: SampleArrays) -> None:
    """Raises InputError if the provenance does not describe the arrays, or if they hold numbers
    that are not finite.
    """
    provenance = sample.provenance
    provenance_values.check(provenance)
    arrays = sample_arrays(sample)
    array_axes(provenance, {name: array.shape for name, array in arrays.items()})
    for name, array in arrays.items():
        if not np.isfinite([array.min(), array.max()]).all():  # both are NaN if any number is
            raise provenance_values.provenance_error(
                provenance, f"belongs to {name} with numbers that are not finite"
            )


def sample_signals(sample: SampleArrays) -> list[Signal]:
    """Returns the dark field, the bright field and the deflection along y and x, in this order.

    The dark field is missing if the detector or the simulation's band limit ends before it.
    """
    provenance = sample.provenance
    cbed = sample.cbed
    angles = pattern_grid(provenance)
    semiangle_mrad = provenance["semiangle_mrad"]
    dark = dark_field(cbed, angles, semiangle_mrad)
    deflection = virtual_detectors.centre_of_mass(cbed, angles)
    bright = virtual_detectors.bright_field(cbed, angles, semiangle_mrad)
    signals = []
    if dark is not None:
        title = dark_field_title(semiangle_mrad, angles, cbed.shape[1:])
        signals.append(Signal(title, UNITS["cbed"], dark))
    return [
        *signals,
        Signal(f"Bright field < {semiangle_mrad:g} mrad", UNITS["cbed"], bright),
        Signal("Deflection y", "mrad", deflection[:, 0]),
        Signal("Deflection x", "mrad", deflection[:, 1]),
    ]


def dark_field_title(semiangle_mrad: float, angles: PixelGrid, shape: Sequence[int]) -> str:
    """Returns the name of the dark field with its inner and outer angle: the latter is that of the
    farthest pixel of the detector, or the band limit.
    """
    outer_mrad = min(float(angles.distance(shape).max()), angles.limit)
    return f"Annular dark field {DARK_FIELD_FROM * semiangle_mrad:g}–{outer_mrad:.0f} mrad"


def dark_field(
    cbed: npt.NDArray[np.floating], angles: PixelGrid, semiangle_mrad: float
) -> Floats | None:
    """Returns the fraction of the beam in patterns `(n, dy, dx)` that is scattered beyond the disk
    and its soft edge.

    Returns:
        `(n,)`; `None` if the detector or the band limit ends before.
    """
    inner_mrad = DARK_FIELD_FROM * semiangle_mrad
    if min(angles.distance(cbed.shape[1:]).max(), angles.limit) <= inner_mrad:
        return None
    ring = virtual_detectors.ring_pixels(angles, cbed.shape[1:], inner_mrad, np.inf)
    return virtual_detectors.pixel_sums(cbed, ring)


def example_probes(
    cbed: npt.NDArray[np.floating],
    angles: PixelGrid,
    semiangle_mrad: float,
    positions_angstrom: npt.ArrayLike,
) -> tuple[int, ...]:
    """Returns the probes with the strongest, the median and the weakest dark field: on the heaviest
    column and off it.

    A crystal has many probes that are equal to a percent. Of those, the one nearest to the middle
    of the scan is taken that is `APART` of the scan's longer side away from the others, if any is.

    Args:
        cbed: Patterns `(n, dy, dx)`.
        angles: Their pixels, mrad.
        positions_angstrom: Probe positions `(n, 2)`, Å.

    Returns:
        Indices of one to three probes.
    """
    dark = dark_field(cbed, angles, semiangle_mrad)
    if dark is None:  # what the disk lacks has left the detector
        dark = 1 - virtual_detectors.bright_field(cbed, angles, semiangle_mrad)
    level = np.round(dark / (dark.max() or 1), 2)
    positions = np.asarray(positions_angstrom, float)
    off_middle = np.linalg.norm(
        positions - (positions.min(axis=0) + positions.max(axis=0)) / 2, axis=1
    )
    apart = APART * float(np.ptp(positions, axis=0).max())
    probes: list[int] = []
    for value in dict.fromkeys(np.sort(level)[[-1, len(level) // 2, 0]].tolist()):
        equal = np.flatnonzero(level == value)
        if probes:
            between = positions[equal, None] - positions[probes]
            nearest = np.linalg.norm(between, axis=-1).min(axis=1)
            far = equal[nearest >= apart]
            equal = far if len(far) else equal[[np.argmax(nearest)]]
        probes.append(int(equal[np.argmin(off_middle[equal])]))
    return tuple(probes)
