"""Imperfections of microscope and detector, added to simulated patterns without another simulation.

The patterns of a sample are a matrix (positions × detector pixels). What the beam does along the
scan (source size, errors of position) multiplies it from the left, what happens to a pattern
(background, distortion, point spread) from the right. Both are linear and keep the sum of the
intensity, except what a distortion moves over the detector's edge. Plasmons
(`namsa.physics.response`) come first of what happens to a pattern, the losses of a counting
detector last. Interpolation can make a small intensity negative; it is set to zero. Gain, counting
noise (`train.input.noise`), hot and dead pixels and lost rows follow, in this order.

`draw` draws the magnitudes for a sample and epoch; a `Drawn` can as well be filled by hand. `apply`
and `damage` then work on plain arrays `(sy, sx, dy, dx)`, before and after counting noise:

    drawn = Drawn(source_size_angstrom=0.8, centre_shift_pixels=(0.3, -0.2), seed=(1,))
    patterns = damage(apply(patterns, drawn, geometry), drawn)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special
from scipy.linalg import toeplitz

from namsa.base.arrays import Array, Pair
from namsa.base.errors import InputError
from namsa.base.pixels import fills_cell, pattern_grid, scan_grid
from namsa.base.provenance_values import value
from namsa.config.response import Plasmons
from namsa.physics.coherence import FWHM
from namsa.physics.optics import probe_limit, wavelength_angstrom
from namsa.physics.response import pattern_filter

from ..experiment.imperfections import DRAWN_LATER, QUANTITIES, Imperfections
from . import interpolation
from .windows import Corner

Empty = Callable[[tuple[int, ...], npt.DTypeLike], Array]

# Streams of random numbers, beside those of `train.input.noise`, `train.input.windows` and
# `train.input.fast_noise`.
_MAGNITUDES = 4
_PLACES = 5
_PRESENCE = 7
_LATER = 9
_PLASMON_EV = (10.0, 30.0)
_PLASMON_WIDTH = (0.1, 0.5)  # standard deviation of the blur by plasmons, in semiangles
_RING = (0.25, 0.9)  # spatial frequency of a glass' first rings, 1/Å
_RING_WIDTH = 0.2  # of the frequency, standard deviation
_UNIT_PATH = 1000.0  # Å; only the ratio of the thickness to it counts
_FLYBACK_POSITIONS = 3.0  # within which the error at a row's start falls to 1/e
_HOT = (1.0, 100.0)  # reading of a hot pixel in mean intensities of a pixel


class Geometry(NamedTuple):
    """Geometry of the patterns, as `apply` needs it. Pairs are (y, x)."""

    energy_ev: float  # energy of the electrons, eV
    semiangle_mrad: float  # convergence semiangle of the probe, mrad
    step_angstrom: Pair  # distance of scan positions, Å
    pixel_mrad: Pair  # size of a detector pixel, mrad
    axis_pixels: Pair  # place of the optic axis, in pixels from the centre of the first pixel
    periodic: bool = False  # whether the scan fills a periodic cell

    @classmethod
    def of(cls, provenance: Mapping[str, object]) -> "Geometry":
        """Returns the geometry of a simulated sample. Raises InputError without two rows and
        columns of positions.
        """
        scan = scan_grid(provenance)
        pixels = pattern_grid(provenance)
        if scan is None:
            raise InputError(
                "imperfections need scans of two rows and columns at least: leave them out"
            )
        energy = value(provenance, "energy_ev")
        semiangle = value(provenance, "semiangle_mrad")
        axis = (-pixels.origin[0] / pixels.step[0], -pixels.origin[1] / pixels.step[1])
        step, size = ((float(grid.step[0]), float(grid.step[1])) for grid in (scan, pixels))
        return cls(energy, semiangle, step, size, axis, fills_cell(scan, provenance))


@dataclass(frozen=True)
class Drawn:
    """Imperfections of one scan; the quantities are those of `train.experiment.imperfections`.
    Pairs are (y, x).
    """

    source_size_angstrom: float = 0.0  # full width at half maximum of the source, Å
    jitter_angstrom: float = 0.0  # rms error of each position along one axis, Å
    drift_angstrom: Pair = (0.0, 0.0)  # from the first position to the last, Å
    flyback_angstrom: float = 0.0  # error of the first position of each row, Å
    missing_rows: float = 0.0  # probability of a row to be lost
    # Which axis is fast and where it begins: 1 begins with the last row, 2 with the last column, 4
    # scans columns in place of rows; sums of them.
    scan_order: int = 0
    detector_spread_pixels: float = 0.0  # rms width of the point spread along one axis, pixels
    centre_shift_pixels: Pair = (0.0, 0.0)  # shift of the patterns, pixels
    # difference of the longest and the shortest radius of a circle's image, in radii
    ellipticity: float = 0.0
    ellipse_degrees: float = 0.0  # direction of the longest radius, from x towards y
    turn_degrees: float = 0.0  # turn of the patterns, from x towards y
    # error of the pixel's size: pixels are (1 + pixel_scale) times as large as is thought
    pixel_scale: float = 0.0
    beam_gain: float = 0.0  # error of the beam's current as a fraction of it
    background_fraction: float = 0.0  # fraction of the intensity that is in the diffuse background
    # part of the background that is each pattern blurred; the rest is a ring
    plasmon_part: float = 1.0
    plasmon_width: float = 0.2  # standard deviation of the blur, in semiangles
    ring_per_angstrom: float = 0.5  # radius of the ring, 1/Å
    hot_pixels: float = 0.0  # probability of a pixel to be hot
    dead_pixels: float = 0.0  # probability of a pixel to be dead
    plasmon_thickness: float = 0.0  # thickness in inelastic mean free paths
    plasmon_ev: float = 20.0  # energy of a plasmon, eV
    counting_loss: float = 0.0  # fraction of the electrons that the brightest pixel loses
    seed: Sequence[int] = (0,)  # of what is drawn for each position and pixel

    def displacements(self, shape: Corner) -> Array:
        """Returns the errors of the positions of a scan of `shape`, `(2, sy, sx)`, Å."""
        is_last_row_first = bool(self.scan_order & 1)
        is_last_column_first = bool(self.scan_order & 2)
        is_by_columns = bool(self.scan_order & 4)
        lines, places = shape
        is_last_line_first = is_last_row_first
        is_backward = is_last_column_first
        if is_by_columns:
            places, lines = shape
            is_last_line_first = is_last_column_first
            is_backward = is_last_row_first
        line, place = np.mgrid[:lines, :places]
        if is_last_line_first:
            line = line[::-1]
        if is_backward:
            place = place[:, ::-1]
        time = (line * places + place) / (lines * places - 1) - 0.5
        direction = -1 if is_backward else 1
        flyback = direction * self.flyback_angstrom * np.exp(-place / _FLYBACK_POSITIONS)
        if is_by_columns:
            error = np.multiply.outer(self.drift_angstrom, time.T)
            error[0] += flyback.T
        else:
            error = np.multiply.outer(self.drift_angstrom, time)
            error[1] += flyback
        rng = np.random.default_rng([*self.seed, _PLACES, 0])
        return np.asarray(error + self.jitter_angstrom * rng.standard_normal(error.shape))


def draw(imperfections: Imperfections, seed: int, epoch: int) -> Drawn:
    """Returns the imperfections of a sample in an epoch. They depend on the arguments alone."""
    rng = np.random.default_rng([seed, epoch, _MAGNITUDES])
    values: dict[str, Any] = {}
    given = imperfections.given()
    presence = np.random.default_rng([seed, epoch, _PRESENCE])
    for name in QUANTITIES:  # the same random numbers for a quantity, whichever others are given
        if name in DRAWN_LATER:
            continue
        fraction = rng.random()
        sign = rng.choice([-1.0, 1.0])
        angle = 2 * np.pi * rng.random()
        present = presence.random() < imperfections.probability
        if not present or name not in given:
            continue
        least, most = given[name]
        magnitude = float(least + fraction * (most - least))
        if name in ("drift_angstrom", "centre_shift_pixels"):
            values[name] = (float(magnitude * np.sin(angle)), float(magnitude * np.cos(angle)))
        elif name in ("turn_degrees", "pixel_scale", "beam_gain"):
            values[name] = magnitude * sign
        else:
            values[name] = magnitude
    later = np.random.default_rng([seed, epoch, _LATER])
    for name in DRAWN_LATER:
        fraction = later.random()
        present = later.random() < imperfections.probability
        if present and name in given:
            least, most = given[name]
            values[name] = float(least + fraction * (most - least))
    return Drawn(
        **values,
        plasmon_ev=float(later.uniform(*_PLASMON_EV)),
        scan_order=int(rng.integers(8)),
        ellipse_degrees=float(180 * rng.random()),
        plasmon_part=float(rng.random()),
        plasmon_width=float(rng.uniform(*_PLASMON_WIDTH)),
        ring_per_angstrom=float(rng.uniform(*_RING)),
        seed=(seed, epoch),
    )


def apply(
    # `(sy, sx, dy, dx)`, fractions of the beam times any factor; the positions around the window,
    # too
    patterns: Array,
    drawn: Drawn,
    geometry: Geometry,
    corner: Corner = (0, 0),  # first row and column of the window
    shape: Corner | None = None,  # rows and columns of the window; by default all
    # returns memory of a shape and type for intermediate results, as `numpy.empty`
    empty: Empty = np.empty,
) -> npt.NDArray[np.float32]:
    """Returns the patterns of a window with all imperfections that come before counting noise.

    Positions that lie outside of `patterns` are estimated from the nearest ones, or wrap if the
    scan is periodic.

    Returns:
        `(*shape, dy, dx)`, in the unit of `patterns`.
    """
    shape = shape or (patterns.shape[0], patterns.shape[1])
    detector = (patterns.shape[2], patterns.shape[3])
    window = _along_scan(patterns, drawn, geometry, corner, shape)
    distortion = _distortion(drawn, geometry, detector)
    if drawn.plasmon_thickness:
        plasmons = Plasmons(mean_free_path_angstrom=_UNIT_PATH, energy_loss_ev=drawn.plasmon_ev)
        thickness = _UNIT_PATH * drawn.plasmon_thickness
        blurring = pattern_filter(
            detector, geometry.pixel_mrad, geometry.energy_ev, thickness, plasmons, None
        )
        assert blurring
        blurring.apply(window.reshape(-1, *detector))
    if drawn.background_fraction or distortion is not None:
        # whole rows of positions: products are several times faster
        by_pixel = empty(window.shape[::-1], np.float32)
        _transpose(window, by_pixel)
        if drawn.background_fraction:
            by_pixel = _with_background(by_pixel, drawn, geometry, detector, empty)
        if distortion is not None:
            by_pixel = distortion @ by_pixel
        _transpose(by_pixel, window)
    np.maximum(window, 0, out=window)
    if drawn.beam_gain:
        window *= np.float32(1 + drawn.beam_gain)
    if drawn.counting_loss:
        brightest = window.max()
        if brightest > 0:
            window /= 1 + window * (drawn.counting_loss / (1 - drawn.counting_loss) / brightest)
    return window.reshape(*shape, *detector)


def damage(patterns: npt.NDArray[np.float32], drawn: Drawn) -> npt.NDArray[np.float32]:
    """Puts what comes after counting noise into `patterns`, `(sy, sx, dy, dx)`, and returns them:
    pixels, lost rows.
    """
    detector = patterns.shape[2:]
    rng = np.random.default_rng([*drawn.seed, _PLACES, 1])
    hot = rng.random(detector) < drawn.hot_pixels
    dead = rng.random(detector) < drawn.dead_pixels
    reading = rng.random(detector)
    if hot.any():
        mean = float(patterns.mean(dtype=np.float64))
        readings = mean * _HOT[0] * (_HOT[1] / _HOT[0]) ** reading[hot]
        patterns[:, :, hot] = readings.astype(np.float32)
    if dead.any():
        patterns[:, :, dead] = 0
    rows = np.swapaxes(patterns, 0, 1) if drawn.scan_order & 4 else patterns
    rows[rng.random(len(rows)) < drawn.missing_rows] = 0
    return patterns


# ---- Along the scan
# -------------------------------------------------------------------------------------------------


def _along_scan(
    patterns: Array, drawn: Drawn, geometry: Geometry, corner: Corner, shape: Corner
) -> Array:
    """Returns the window's patterns at the positions where the beam was, blurred by the source,
    `(n, pixels)`.
    """
    displaced = drawn.jitter_angstrom or drawn.flyback_angstrom or any(drawn.drift_angstrom)
    pixels = patterns.shape[2] * patterns.shape[3]
    if not (displaced or drawn.source_size_angstrom):
        rows = slice(corner[0], corner[0] + shape[0])
        columns = slice(corner[1], corner[1] + shape[1])
        return np.array(patterns[rows, columns], np.float32, order="C").reshape(-1, pixels)
    step = geometry.step_angstrom
    scan = (patterns.shape[0], patterns.shape[1])
    error = np.zeros((2, *shape))
    if displaced:
        error = drawn.displacements(shape)
    rows, columns = np.indices(shape)
    y = (rows + corner[0] + error[0] / step[0]).ravel()
    x = (columns + corner[1] + error[1] / step[1]).ravel()
    diameter = probe_limit(geometry.energy_ev, geometry.semiangle_mrad)

    def weights_along(axis: int) -> interpolation.Weights:
        spectrum = interpolation.scan_spectrum(diameter * step[axis])
        blur = drawn.source_size_angstrom / FWHM / step[axis]
        return interpolation.weights(spectrum, blur, scan[axis])

    along_y = weights_along(0)
    along_x = weights_along(1)
    product = interpolation.matrix(y, x, scan, along_y, along_x, geometry.periodic)
    return product @ np.asarray(patterns, np.float32).reshape(-1, pixels)


# ---- In each pattern
# ------------------------------------------------------------------------------------------------


def _distortion(
    drawn: Drawn, geometry: Geometry, detector: Corner
) -> interpolation.SparseMatrix | None:
    """Returns the sparse matrix from pixels of the perfect to those of the real detector. `None` if
    they are equal.
    """
    linear = _image_of_angles(drawn)
    moved = any(drawn.centre_shift_pixels) or not np.array_equal(linear, np.eye(2))
    if not (moved or drawn.detector_spread_pixels):
        return None
    axis = np.array(geometry.axis_pixels)
    size = np.array(geometry.pixel_mrad)
    pixels = np.indices(detector).reshape(2, -1).T - axis - drawn.centre_shift_pixels
    source = (pixels * size) @ np.linalg.inv(linear).T / size + axis
    spectrum = interpolation.pattern_spectrum()
    blur = drawn.detector_spread_pixels
    along_y, along_x = (interpolation.weights(spectrum, blur, n, taps=4) for n in detector)
    inside = np.clip(source, -0.5, np.array(detector) - 0.5)
    product = interpolation.matrix(inside[:, 0], inside[:, 1], detector, along_y, along_x)
    product.data *= np.float32(1 / np.linalg.det(linear))
    return product


def _image_of_angles(drawn: Drawn) -> Array:
    """Returns the matrix `(2, 2)` from true to apparent scattering angles, (y, x)."""
    turn = np.radians(drawn.turn_degrees)
    direction = np.radians(drawn.ellipse_degrees)
    longest = np.array([np.sin(direction), np.cos(direction)])
    half = drawn.ellipticity / 2
    ellipse = (1 - half) * np.eye(2) + 2 * half * np.outer(longest, longest)
    turned = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    return np.asarray(turned @ ellipse / (1 + drawn.pixel_scale))


def _with_background(
    patterns: Array, drawn: Drawn, geometry: Geometry, detector: Corner, empty: Empty
) -> Array:
    """Moves a part of the intensity of patterns `(pixels, n)` into blurred patterns and a ring."""
    plasmons = drawn.background_fraction * drawn.plasmon_part
    rest = drawn.background_fraction - plasmons
    blur_y, blur_x = (
        _blur(n, drawn.plasmon_width * geometry.semiangle_mrad / size)
        for n, size in zip(detector, geometry.pixel_mrad, strict=True)
    )
    beam = patterns.sum(axis=0)
    scratch = empty(patterns.shape, np.float32)
    changed = empty(patterns.shape, np.float32)
    np.matmul(
        np.float32(plasmons) * blur_y,
        patterns.reshape(detector[0], -1),
        out=scratch.reshape(detector[0], -1),
    )
    np.matmul(blur_x, scratch.reshape(*detector, -1), out=changed.reshape(*detector, -1))
    changed += np.multiply(patterns, np.float32(1 - drawn.background_fraction), out=scratch)
    ring = (rest * _ring(drawn, geometry, detector)).astype(np.float32)
    changed += np.multiply(ring[:, None], beam, out=scratch)
    return changed


def _blur(count: int, rms: float) -> Array:
    """Returns the matrix `(count, count)` of a Gaussian of `rms` pixels, as of
    `namsa.physics.detector`.
    """
    return np.asarray(toeplitz(special.ive(np.arange(count), rms**2)), np.float32)


def _ring(drawn: Drawn, geometry: Geometry, detector: Corner) -> Array:
    """Returns the pattern of the illuminating cone behind a glass, `(pixels,)`, of sum 1: a ring
    about each ray.
    """
    y, x = (
        (np.arange(n) - centre) * size
        for n, centre, size in zip(detector, geometry.axis_pixels, geometry.pixel_mrad, strict=True)
    )
    angle = np.hypot(y[:, None], x)
    radius = 1e3 * wavelength_angstrom(geometry.energy_ev) * drawn.ring_per_angstrom
    # The mean over rays at the cone's centre and at equal parts of its area, each of which has a
    # ring about itself.
    rays = geometry.semiangle_mrad * np.sqrt((np.arange(8) + 0.5) / 8)
    turns = 2 * np.pi * (np.arange(8) + 0.5) / 8
    angle = angle[..., None, None]
    distance = np.sqrt(angle**2 + rays[:, None] ** 2 - 2 * angle * rays[:, None] * np.cos(turns))
    profile = np.exp(-(((distance - radius) / (_RING_WIDTH * radius)) ** 2) / 2).mean(axis=(-2, -1))
    return np.asarray(profile / profile.sum()).ravel()


def _transpose(array: Array, out: Array) -> None:
    """Writes `array`, transposed, to `out`: in blocks, which stay in the cache, 2 to 5 times faster
    than at once.
    """
    for start in range(0, len(array), 16):
        out[:, start : start + 16] = array[start : start + 16].T
