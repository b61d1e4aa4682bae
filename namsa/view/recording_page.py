"""A measured scan as one interactive HTML page, read from its file in one pass with bounded memory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.arrays import Array
from namsa.errors import InputError
from namsa.figures.page_images import pattern_image
from namsa.figures.sample_figure import DARK_FIELD_FROM, Signal, dark_field_title
from namsa.io.calibration import check_limits
from namsa.io.reading import read
from namsa.io.recording import Recording
from namsa.physics import virtual_detectors
from namsa.pixels import PixelGrid, binned, binned_grid, detector_grid
from namsa.sample import Sample
from namsa.text import plural
from namsa.view.page import Page, PageContent, PageUnits, render
from namsa.view.page_overlay import read_images, read_overlays
from namsa.view.page_tiles import (
    MAX_PAGE_BYTES,
    TilePlan,
    Tiles,
    as_halves,
    incompressible,
    plan_tiles,
    reduction_note,
    sampled_pixel_bytes,
    thinned_grid,
)
from namsa.view.viewer import SCALE_NOTE, sample_page, signal_maps

PIECE_BYTES = 16 * 2**20  # patterns that are read at once; a page of a compressed file needs at least one chunk
SAMPLE_BYTES = 4 * 2**20  # per row of patterns that are compressed to choose the binning
MAX_MEAN_PIXELS = 512  # of the mean pattern, along an axis
CLIPPED = 1e-4  # fraction of the pixels that may exceed the last colour: hot pixels
SAMPLED = 2**22  # pixels that the last colour is chosen from
PART = 256  # patterns that are turned into numbers at once


@dataclass(frozen=True, eq=False)
class ScanSums:
    """What one pass over a scan leaves of it."""

    halves: npt.NDArray[np.float16]  # the patterns that are shown, as in `Tiles`
    exponents: npt.NDArray[np.int16]  # as in `Tiles`
    mean: npt.NDArray[np.float64]  # mean pattern, `(dy, dx)`
    totals: npt.NDArray[np.float64]  # sum of each pattern, `(m,)`
    moments: npt.NDArray[np.float64]  # sums of intensity times pixel (y, x), `(m, 2)`
    not_finite: int  # number of pixels that are not finite; they count as 0


def recording_page(
    recording: Recording, name: str, *, overlay: Path | None = None, max_bytes: int = MAX_PAGE_BYTES
) -> Page:
    """Returns the page of a recording.

    Memory is bounded by the page and by what the file stores in one piece, not by the file.

    Args:
        overlay: File of a reconstruction that is shown over the maps. `None` for none.

    Raises:
        InputError: If the overlay is none of this scan, or if the page is too small for the scan.
        WorkError: If the file is damaged.
    """
    sy, sx, *detector = recording.shape
    check_limits(recording, f"{recording.name}: ")
    if overlay is not None and recording.scan_step_angstrom is None:
        raise InputError(f"{recording.name} does not state the scan's step, which places the overlay: give it")
    laid_over = 0 if overlay is None else sum(2 * image.image.size for image in read_images(overlay))
    for pixel_bytes in (sampled_pixel_bytes(_sample(recording)), incompressible):  # the second one is sure
        plan = plan_tiles((sy, sx), detector, max_bytes, laid_over, pixel_bytes)
        page = render(_content(recording, name, overlay, plan))
        if page.bytes <= max_bytes:
            break
    return page


def _content(recording: Recording, name: str, overlay: Path | None, plan: TilePlan) -> PageContent:
    """Reads what the page of a recording shows."""
    sy, sx, *detector = recording.shape
    sums = read_sums(recording, plan)

    # ---- Coordinates ------------------------------------------------------------------------------------------------

    centre, centre_note = _centre(recording, sums.mean)
    pixel = recording.pixel_mrad or (1.0, 1.0)
    angles = detector_grid(pixel, centre, recording.limit_mrad)
    step = recording.scan_step_angstrom
    scan = PixelGrid(step or (1.0, 1.0), recording.scan_origin_angstrom if step else (0.0, 0.0))
    units = PageUnits(
        "Å" if step else "steps",
        "mrad" if recording.pixel_mrad else "pixels",
        "fraction of the beam" if recording.normalised else "file's units",
    )
    raster = np.arange(sy * sx).reshape(sy, sx)[:: plan.every, :: plan.every]
    shown = thinned_grid(scan, plan)
    y, x = shown.coordinates(raster.shape)
    positions = np.stack(np.meshgrid(y, x, indexing="ij"), axis=-1).reshape(-1, 2)

    # ---- Content ----------------------------------------------------------------------------------------------------

    tiles = Tiles(sums.halves, sums.exponents, binned_grid(angles, plan.binning))
    semiangle = recording.semiangle_mrad if recording.pixel_mrad else None
    signals = _signals(recording, tiles, sums, angles, units, semiangle)
    mean_binning = -(-max(detector) // MAX_MEAN_PIXELS)
    notes = [
        SCALE_NOTE,
        reduction_note(plan, (sy, sx), detector),
        centre_note,
        *(f"{line[:1].upper()}{line[1:]}." for line in recording.notes),
        f"{sums.not_finite} pixels are not finite and are shown as 0." * bool(sums.not_finite),
    ]
    return PageContent(
        title=name,
        caption=" · ".join(recording.facts),
        note=" ".join(filter(None, notes)),
        units=units,
        tiles=tiles,
        brightest=_brightest(tiles),
        numbers=raster.ravel(),
        positions=positions,
        raster=((raster.shape[0], raster.shape[1]), shown),
        period=None,
        mean=pattern_image(
            binned(sums.mean, mean_binning) / mean_binning**2,
            binned_grid(angles, mean_binning),
            f"Mean of {plural(raster.size, 'pattern')}",
            units.intensity,
        ),
        semiangle=semiangle,
        disk=semiangle or disk_radius(sums.mean, angles),
        maps=signal_maps(signals, (raster.shape[0], raster.shape[1]), shown, units.angle),
        signals=signals,
        overlays=[] if overlay is None else read_overlays(overlay, positions),
    )


# ---- Reading --------------------------------------------------------------------------------------------------------


def read_sums(recording: Recording, plan: TilePlan) -> ScanSums:
    """Reads the patterns that are shown, piece by piece, and reduces each piece at once."""
    sy, sx, dy, dx = recording.shape
    every = plan.every
    rows, columns = -(-sy // every), -(-sx // every)
    h, w = dy // plan.binning, dx // plan.binning
    halves = np.empty((rows, columns, h, w), np.float16)
    exponents = np.empty((rows, columns), np.int16)
    totals, moments = np.empty((rows, columns)), np.empty((rows, columns, 2))
    mean, not_finite = np.zeros((dy, dx)), 0
    for piece in _pieces(recording, every):
        patterns = recording.read(*piece)
        first = [-part.start % every for part in piece]  # the first position of the piece that is shown
        patterns = patterns[first[0] :: every, first[1] :: every]
        if not patterns.size:
            continue
        bad = ~np.isfinite(patterns) if patterns.dtype.kind == "f" else None
        if bad is not None and bad.any():
            not_finite += int(np.count_nonzero(bad))
            patterns = np.where(bad, 0, patterns)
        n, m = patterns.shape[:2]
        y, x = (-(-part.start // every) for part in piece)
        place = slice(y, y + n), slice(x, x + m)
        mean += patterns.sum(axis=(0, 1), dtype=np.float64)
        along_y, along_x = (patterns.sum(axis=axis, dtype=np.float64) for axis in (3, 2))
        totals[place] = along_y.sum(axis=-1)
        moments[place] = np.stack([along_y @ np.arange(dy), along_x @ np.arange(dx)], axis=-1)
        packed, powers = as_halves(binned(patterns, plan.binning).reshape(n * m, h, w))
        halves[place], exponents[place] = packed.reshape(n, m, h, w), powers.reshape(n, m)
    return ScanSums(
        halves.reshape(-1, h, w),
        exponents.ravel(),
        mean / (rows * columns),
        totals.ravel(),
        moments.reshape(-1, 2),
        not_finite,
    )


def _sample(recording: Recording) -> Array:
    """Reads some patterns `(k, dy, dx)` from the first, the middle and the last rows of a scan."""
    sy, sx, dy, dx = recording.shape
    width = min(sx, max(1, SAMPLE_BYTES // (dy * dx * recording.dtype.itemsize)))
    columns = slice((sx - width) // 2, (sx - width) // 2 + width)
    rows = [recording.read(slice(row, row + 1), columns)[0] for row in sorted({0, sy // 2, sy - 1})]
    return np.nan_to_num(np.concatenate(rows), posinf=0, neginf=0)


def _pieces(recording: Recording, every: int) -> list[tuple[slice, slice]]:
    """Divides a scan into pieces of whole chunks and of at most `PIECE_BYTES`, without those that are not shown."""
    sy, sx, dy, dx = recording.shape
    chunk_rows, chunk_columns = recording.chunk
    column = dy * dx * recording.dtype.itemsize * chunk_rows  # bytes
    width = min(sx, max(1, PIECE_BYTES // (column * chunk_columns)) * chunk_columns)
    height = chunk_rows * (max(1, PIECE_BYTES // (column * sx)) if every == 1 else 1)
    return [
        (slice(row, min(row + height, sy)), slice(left, min(left + width, sx)))
        for row in range(0, sy, height)
        if row + -row % every < row + height
        for left in range(0, sx, width)
    ]


# ---- Numbers --------------------------------------------------------------------------------------------------------


def _centre(recording: Recording, mean: Array) -> tuple[tuple[float, float], str]:
    """Returns the optic axis (y, x), pixels, and a line about where it comes from."""
    if recording.centre_pixels is not None:
        return recording.centre_pixels, ""
    total = mean.sum()
    if not total > 0:
        y, x = ((n - 1) / 2 for n in mean.shape)
        return (y, x), "The optic axis is taken at the detector's centre."
    y, x = (float(mean.sum(axis=1 - axis) @ np.arange(n)) / total for axis, n in enumerate(mean.shape))
    return (y, x), f"The optic axis is taken at pixel ({y:.2f}, {x:.2f}), the mean pattern's centre of mass."


def disk_radius(mean: Array, angles: PixelGrid) -> float:
    """Returns the radius of the even disk whose second moment about the axis the mean pattern has."""
    weights = np.clip(mean, 0, None)
    if not weights.sum() > 0:
        return float(angles.distance(mean.shape).max() / 2)
    return float(np.sqrt(2 * np.average(angles.distance(mean.shape) ** 2, weights=weights)))


def _signals(
    recording: Recording, tiles: Tiles, sums: ScanSums, angles: PixelGrid, units: PageUnits, semiangle: float | None
) -> list[Signal]:
    """Returns what virtual detectors see of each pattern: intensity, dark and bright field, deflection."""
    deflection = sums.moments / np.where(sums.totals > 0, sums.totals, 1)[:, None] * angles.step + angles.origin
    deflection[sums.totals <= 0] = 0
    turned = recording.rotation_deg is not None or recording.flip
    y, x = deflection.T[::-1] if recording.flip else deflection.T
    angle = np.deg2rad(recording.rotation_deg or 0.0)
    y, x = y * np.cos(angle) - x * np.sin(angle), y * np.sin(angle) + x * np.cos(angle)
    frame = "" if turned else " on the detector"
    signals = [Signal("Intensity", units.intensity, sums.totals)]
    if semiangle:
        dark = DARK_FIELD_FROM * semiangle
        rings = ((dark_field_title(semiangle), dark, np.inf), (f"Bright field < {semiangle:g} mrad", 0.0, semiangle))
        for title, inner, outer in rings:
            distance = tiles.grid.distance(tiles.halves.shape[1:])
            if ((distance >= inner) & (distance < outer)).any():
                signals.append(Signal(title, units.intensity, ring_image(tiles, inner, outer)))
    return [
        *signals,
        Signal(f"Deflection y{frame}", units.angle, y),
        Signal(f"Deflection x{frame}", units.angle, x),
    ]


def ring_image(tiles: Tiles, inner: float, outer: float) -> npt.NDArray[np.float64]:
    """Returns the sums over a ring about the axis, `(m,)`, in units of the detector's pixels."""
    parts = [slice(first, first + PART) for first in range(0, len(tiles.halves), PART)]
    return np.concatenate([virtual_detectors.annular(tiles.values(part), tiles.grid, inner, outer) for part in parts])


def _brightest(tiles: Tiles) -> float:
    """Returns the value of the last colour: that of the brightest pixels, without a few hot ones."""
    every = max(1, tiles.halves.size // SAMPLED)
    halves = tiles.halves[::every]
    values = np.ldexp(halves.astype(np.float32), tiles.exponents[::every, None, None])
    brightest = float(np.quantile(values, 1 - CLIPPED))
    brightest = brightest if brightest > 0 else float(values.max())
    return brightest if brightest > 0 else 1.0


def browse(
    data: Sample | Recording | str | Path | npt.ArrayLike,
    *,
    title: str | None = None,
    overlay: str | Path | None = None,
    max_megabytes: float = MAX_PAGE_BYTES / 1e6,
    **options: Any,
) -> Page:
    """Returns an interactive page: maps of the scan, the pattern at each position, and a virtual detector to draw.

    A notebook shows the page where it stands last in a cell, in a frame of its own and without a server. A file is read
    once, piece by piece. Patterns are binned, and then positions left out, until the page is not too large; it says so.

    Args:
        data: Sample, recording, path of a file that `namsa.read` opens, or patterns `(sy, sx, dy, dx)`.
        title: Title of the page. Default: the name of the data.
        overlay: File of `python -m train reconstruct`, whose density, uncertainty and trust are shown over the scan.
        max_megabytes: Largest size of the page, MB.
        options: What `namsa.read` takes for a file or an array: `energy_ev=300e3`.

    Returns:
        The page, with a method `save`.

    Raises:
        InputError: If the data are no scan of patterns, or if the overlay is none of this scan.
        WorkError: If a file is damaged.
    """
    laid_over, max_bytes = None if overlay is None else Path(overlay), int(1e6 * max_megabytes)
    if isinstance(data, Sample):
        name = title or str(data.provenance.get("id") or data.provenance.get("formula") or "sample")
        return sample_page(data, name, overlay=laid_over, max_bytes=max_bytes)
    if isinstance(data, Recording):
        return recording_page(data, title or data.name, overlay=laid_over, max_bytes=max_bytes)
    with read(data, **options) as recording:
        name = title or (Path(data).name if isinstance(data, str | Path) else "array")
        return recording_page(recording, name, overlay=laid_over, max_bytes=max_bytes)
