"""A measured scan as one interactive HTML page, read in one pass with bounded memory."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array, Floats
from namsa.base.errors import InputError
from namsa.base.pixels import PixelGrid, binned, binned_grid, detector_grid
from namsa.base.text import plural
from namsa.figures.page_images import pattern_image
from namsa.figures.sample_figure import DARK_FIELD_FROM, Signal, dark_field_title
from namsa.inspection.disk import first_guess
from namsa.io.calibration import check_limits
from namsa.io.recording import Recording
from namsa.physics import virtual_detectors
from namsa.view.page import Page, PageContent, PageUnits, render
from namsa.view.page_by_hand import by_hand_of
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
from namsa.view.viewer import SCALE_NOTE, signal_maps

# patterns that are read at once; a page of a compressed file needs at least one chunk
PIECE_BYTES = 16 * 2**20
SAMPLE_BYTES = 4 * 2**20  # per row of patterns that are compressed to choose the binning
MAX_MEAN_PIXELS = 512  # of the mean pattern, along an axis
WIDEST_RING = 0.6  # of the way from the axis to the detector's nearest edge
CLIPPED = 1e-4  # fraction of the pixels that may exceed the last colour: hot pixels
SAMPLED = 2**22  # pixels that the last colour is chosen from
# of a pixel that is shown: sums of pixels stay far below the limit of float32
LARGEST_SHOWN = 1e30
PART = 256  # patterns that are turned into numbers at once


@dataclass(frozen=True, eq=False)
class ScanSums:
    """Sums over a scan, and its patterns as a page shows them."""

    halves: npt.NDArray[np.float16]  # the patterns that are shown, as in `Tiles`
    exponents: npt.NDArray[np.int16]  # as in `Tiles`
    mean: npt.NDArray[np.float64]  # mean pattern, `(dy, dx)`
    totals: npt.NDArray[np.float64]  # sum of each pattern, `(m,)`
    moments: npt.NDArray[np.float64]  # sums of intensity times pixel (y, x), `(m, 2)`
    # number of pixels that are not finite, or of more than `LARGEST_SHOWN`; they count as 0
    left_out: int


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
        raise InputError(
            f"{recording.name} does not state the scan's step, which places the overlay: give it"
        )
    overlay_bytes = 0
    if overlay is not None:
        overlay_bytes = sum(2 * image.image.size for image in read_images(overlay))
    estimates = (sampled_pixel_bytes(_sample(recording)), incompressible)  # the second one is sure
    for pixel_bytes in estimates:
        plan = plan_tiles((sy, sx), detector, max_bytes, overlay_bytes, pixel_bytes)
        page = render(_content(recording, name, overlay, plan))
        if page.bytes <= max_bytes:
            break
    return page


def _content(recording: Recording, name: str, overlay: Path | None, plan: TilePlan) -> PageContent:
    """Reads what the page of a recording shows."""
    sy, sx, *detector = recording.shape
    sums = read_sums(recording, plan)
    units = _units(recording)
    centre, centre_note = _centre(recording, sums.mean)
    pixel = recording.pixel_mrad or (1.0, 1.0)
    angles = detector_grid(pixel, centre, recording.limit_mrad)

    raster = np.arange(sy * sx).reshape(sy, sx)[:: plan.every, :: plan.every]
    raster_shape = (raster.shape[0], raster.shape[1])
    shown = thinned_grid(_scan_grid(recording), plan)
    y, x = shown.coordinates(raster_shape)
    positions = np.stack(np.meshgrid(y, x, indexing="ij"), axis=-1).reshape(-1, 2)

    tiles = Tiles(sums.halves, sums.exponents, binned_grid(angles, plan.binning))
    semiangle = recording.semiangle_mrad if recording.pixel_mrad else None
    disk = semiangle or _first_ring(sums.mean, angles)
    signals = _signals(recording, tiles, sums, angles, units, semiangle)
    mean_binning = -(-max(detector) // MAX_MEAN_PIXELS)
    mean = pattern_image(
        binned(sums.mean, mean_binning) / mean_binning**2,
        binned_grid(angles, mean_binning),
        f"Mean of {plural(raster.size, 'pattern')}",
        units.intensity,
    )
    notes = [SCALE_NOTE, reduction_note(plan, (sy, sx), detector), centre_note]
    for line in recording.notes:
        notes.append(f"{line[:1].upper()}{line[1:]}.")
    if sums.left_out:
        notes.append(
            f"{sums.left_out} pixels are not finite, or exceed {LARGEST_SHOWN:g}, and are shown "
            "as 0."
        )
    return PageContent(
        title=name,
        caption=" · ".join(recording.facts),
        note=" ".join(note for note in notes if note),
        units=units,
        tiles=tiles,
        brightest=_brightest(tiles),
        numbers=raster.ravel(),
        positions=positions,
        raster=(raster_shape, shown),
        period=None,
        mean=mean,
        semiangle=semiangle,
        disk=disk,
        maps=signal_maps(signals, raster_shape, shown, units.angle),
        signals=signals,
        overlays=[] if overlay is None else read_overlays(overlay, positions),
        by_hand=by_hand_of(recording, angles, disk),
    )


def _units(recording: Recording) -> PageUnits:
    """Returns the units of a page: those of the file, where it does not state all numbers."""
    return PageUnits(
        scan="Å" if recording.scan_step_angstrom else "steps",
        angle="mrad" if recording.pixel_mrad else "pixels",
        intensity="fraction of the beam" if recording.normalised else "stored values",
    )


def _scan_grid(recording: Recording) -> PixelGrid:
    """Returns the positions of the scan, in Å or in steps."""
    step = recording.scan_step_angstrom
    if not step:
        return PixelGrid((1.0, 1.0), (0.0, 0.0))
    return PixelGrid(step, recording.scan_origin_angstrom)


def read_sums(recording: Recording, plan: TilePlan) -> ScanSums:
    """Reads the patterns that are shown, piece by piece, and reduces each piece at once."""
    sy, sx, dy, dx = recording.shape
    every = plan.every
    rows = -(-sy // every)
    columns = -(-sx // every)
    height = dy // plan.binning
    width = dx // plan.binning
    halves = np.empty((rows, columns, height, width), np.float16)
    exponents = np.empty((rows, columns), np.int16)
    totals = np.empty((rows, columns))
    moments = np.empty((rows, columns, 2))
    mean = np.zeros((dy, dx))
    left_out = 0
    for row_range, column_range in _pieces(recording, every):
        patterns = recording.read(row_range, column_range)
        # the first position of the piece that is shown
        first_row = -row_range.start % every
        first_column = -column_range.start % every
        patterns = patterns[first_row::every, first_column::every]
        if not patterns.size:
            continue
        patterns, bad_pixels = _without_bad_pixels(patterns)
        left_out += bad_pixels
        n, m = patterns.shape[:2]
        row = -(-row_range.start // every)
        column = -(-column_range.start // every)
        place = (slice(row, row + n), slice(column, column + m))
        mean += patterns.sum(axis=(0, 1), dtype=np.float64)
        along_y = patterns.sum(axis=3, dtype=np.float64)
        along_x = patterns.sum(axis=2, dtype=np.float64)
        totals[place] = along_y.sum(axis=-1)
        moments[place] = np.stack([along_y @ np.arange(dy), along_x @ np.arange(dx)], axis=-1)
        binned_patterns = binned(patterns, plan.binning).reshape(n * m, height, width)
        piece_halves, piece_exponents = as_halves(binned_patterns)
        halves[place] = piece_halves.reshape(n, m, height, width)
        exponents[place] = piece_exponents.reshape(n, m)
    return ScanSums(
        halves.reshape(-1, height, width),
        exponents.ravel(),
        mean / (rows * columns),
        totals.ravel(),
        moments.reshape(-1, 2),
        left_out,
    )


def _without_bad_pixels(patterns: Array) -> tuple[Array, int]:
    """Returns patterns with 0 in place of pixels that are not finite or exceed `LARGEST_SHOWN`, and
    the number of these.
    """
    if patterns.dtype.kind != "f":
        return patterns, 0
    bad = ~(np.abs(patterns) <= np.float32(LARGEST_SHOWN))
    count = int(np.count_nonzero(bad))
    if not count:
        return patterns, 0
    return np.where(bad, 0, patterns), count


def _sample(recording: Recording) -> Array:
    """Reads some patterns `(k, dy, dx)` from the first, the middle and the last rows of a scan."""
    sy, sx, dy, dx = recording.shape
    width = min(sx, max(1, SAMPLE_BYTES // (dy * dx * recording.dtype.itemsize)))
    columns = slice((sx - width) // 2, (sx - width) // 2 + width)
    rows = []
    for row in sorted({0, sy // 2, sy - 1}):
        rows.append(recording.read(slice(row, row + 1), columns)[0])
    patterns, _ = _without_bad_pixels(np.concatenate(rows))
    return patterns


def _pieces(recording: Recording, every: int) -> list[tuple[slice, slice]]:
    """Divides a scan into pieces of whole chunks and of at most `PIECE_BYTES`.

    Pieces that are not shown are left out.
    """
    sy, sx, dy, dx = recording.shape
    chunk_rows, chunk_columns = recording.chunk
    column_bytes = dy * dx * recording.dtype.itemsize * chunk_rows
    width = min(sx, max(1, PIECE_BYTES // (column_bytes * chunk_columns)) * chunk_columns)
    height = chunk_rows
    if every == 1:
        height *= max(1, PIECE_BYTES // (column_bytes * sx))
    pieces = []
    for row in range(0, sy, height):
        first_shown = row + -row % every
        if first_shown >= row + height:
            continue
        for column in range(0, sx, width):
            rows = slice(row, min(row + height, sy))
            columns = slice(column, min(column + width, sx))
            pieces.append((rows, columns))
    return pieces


def _centre(recording: Recording, mean: Array) -> tuple[tuple[float, float], str]:
    """Returns the optic axis (y, x), pixels, and a line about where it comes from."""
    if recording.centre_pixels is not None:
        return recording.centre_pixels, ""
    ny, nx = mean.shape
    total = mean.sum()
    if not total > 0:
        centre = ((ny - 1) / 2, (nx - 1) / 2)
        return centre, "The optic axis is taken at the detector's centre."
    y = float(mean.sum(axis=1) @ np.arange(ny)) / total
    x = float(mean.sum(axis=0) @ np.arange(nx)) / total
    note = (
        f"The optic axis is taken at pixel ({y:.2f}, {x:.2f}), the mean pattern's centre of mass."
    )
    return (y, x), note


def disk_radius(mean: Array, angles: PixelGrid) -> float:
    """Returns the radius of the even disk with the mean pattern's second moment about the axis."""
    weights = np.clip(mean, 0, None)
    if not weights.sum() > 0:
        return float(angles.distance(mean.shape).max() / 2)
    return float(np.sqrt(2 * np.average(angles.distance(mean.shape) ** 2, weights=weights)))


def _first_ring(mean: Array, angles: PixelGrid) -> float:
    """Returns the radius of the virtual detector at first where the semiangle is not known: that
    of the disk, or a part of the way to the detector's nearest edge where all of it is bright.
    """
    left, right, bottom, top = angles.extent(mean.shape)
    nearest = min(abs(left), abs(right), abs(bottom), abs(top))
    widest = max(WIDEST_RING * nearest, *angles.step)
    return min(disk_radius(mean, angles), _central_disk(mean, angles), widest)


def _central_disk(mean: Array, angles: PixelGrid) -> float:
    """Returns the radius of the brightest disk if it holds the optic axis, as the direct beam among
    diffracted ones does; infinity otherwise.
    """
    try:
        (y, x), radius = first_guess(mean)
    except InputError:
        return np.inf
    step_y, step_x = angles.step
    away = np.hypot(y + angles.origin[0] / step_y, x + angles.origin[1] / step_x)
    return float(radius * np.sqrt(step_y * step_x)) if away <= radius else np.inf


def _signals(
    recording: Recording,
    tiles: Tiles,
    sums: ScanSums,
    angles: PixelGrid,
    units: PageUnits,
    semiangle: float | None,
) -> list[Signal]:
    """Returns intensity, dark and bright field, and deflection of each pattern."""
    signals = [Signal("Intensity", units.intensity, sums.totals)]
    if semiangle:
        dark = DARK_FIELD_FROM * semiangle
        rings = (
            (dark_field_title(semiangle, tiles.grid, tiles.halves.shape[1:]), dark, np.inf),
            (f"Bright field < {semiangle:g} mrad", 0.0, semiangle),
        )
        distance = tiles.grid.distance(tiles.halves.shape[1:])
        for title, inner, outer in rings:
            if ((distance >= inner) & (distance < outer)).any():
                signals.append(Signal(title, units.intensity, ring_image(tiles, inner, outer)))
    y, x = _deflection(recording, sums, angles)
    turned = recording.rotation_deg is not None or recording.flip
    frame = "" if turned else " on the detector"
    signals.append(Signal(f"Deflection y{frame}", units.angle, y))
    signals.append(Signal(f"Deflection x{frame}", units.angle, x))
    return signals


def _deflection(recording: Recording, sums: ScanSums, angles: PixelGrid) -> tuple[Floats, Floats]:
    """Returns the centres of mass of the patterns along y and x of the scan, `(m,)` each.

    Those of dark patterns are 0.
    """
    totals = np.where(sums.totals > 0, sums.totals, 1)[:, None]
    deflection = sums.moments / totals * angles.step + angles.origin
    deflection[sums.totals <= 0] = 0
    y, x = deflection.T[::-1] if recording.flip else deflection.T
    angle = np.deg2rad(recording.rotation_deg or 0.0)
    return y * np.cos(angle) - x * np.sin(angle), y * np.sin(angle) + x * np.cos(angle)


def ring_image(tiles: Tiles, inner: float, outer: float) -> npt.NDArray[np.float64]:
    """Returns the sums over a ring about the axis, `(m,)`, in units of the detector's pixels."""
    ring = virtual_detectors.ring_pixels(tiles.grid, tiles.halves.shape[1:], inner, outer)
    sums = []
    for start in range(0, len(tiles.halves), PART):
        patterns = tiles.values(slice(start, start + PART))
        sums.append(virtual_detectors.pixel_sums(patterns, ring))
    return np.concatenate(sums)


def _brightest(tiles: Tiles) -> float:
    """Returns the value of the last colour: of the brightest pixels, without a few hot ones."""
    every = max(1, tiles.halves.size // SAMPLED)
    halves = tiles.halves[::every]
    values = np.ldexp(halves.astype(np.float32), tiles.exponents[::every, None, None])
    for brightest in (float(np.quantile(values, 1 - CLIPPED)), float(values.max())):
        if brightest > 0:
            return brightest
    return 1.0
