"""What an epoch makes of a stored sample: a window of it, with imperfections, noise and a symmetry.

All of them are drawn from the sample's seed and the epoch's number alone.
"""

from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Array, Integers

from ..experiment import symmetries
from ..experiment.inputs import Inputs
from . import fast_noise, imperfections, noise, windows
from .normalisation import Batch
from .views import SampleView


class _Window(NamedTuple):
    """The window of a scan that a network sees."""

    corner: tuple[int, int]  # first row and column
    shape: tuple[int, int]
    # The positions that the window has in their places, where some are held out.
    taken: Integers | None


def augment(
    view: SampleView,
    inputs: Inputs,
    seed: int,
    epoch: int,
    out: Batch,
    margin: tuple[int, int],
    empty: imperfections.Empty,
) -> None:
    """Writes a sample into `out`, one sample of a batch, as `seed` and `epoch` determine it.

    These are the window, the imperfections, the noise and the symmetry. The symmetry is applied
    last, so that the window and all imperfections are mirrored with the specimen.
    """
    out.scale[:] = view.scale
    window = _draw_window(view, inputs, seed, epoch, out, margin)
    drawn = None
    if inputs.imperfections and view.geometry:
        drawn = imperfections.draw(inputs.imperfections, seed, epoch)
    patterns = _window_patterns(view, drawn, window, margin, empty)
    density = _window_density(view, window)
    if inputs.dose_electrons_per_pattern:
        electrons = noise.draw_electrons(inputs.dose_electrons_per_pattern, seed, epoch)
        # the exact one where it was used before
        count_electrons = fast_noise.count_electrons if drawn else noise.count_electrons
        patterns = count_electrons(patterns, view.scale, electrons, seed, epoch)
        out.scale[:] = 1
    if drawn:
        patterns = imperfections.damage(patterns, drawn)
    _write_mirrored(view.symmetries, patterns, density, seed, epoch, out)


def _draw_window(
    view: SampleView, inputs: Inputs, seed: int, epoch: int, out: Batch, margin: tuple[int, int]
) -> _Window:
    """Returns the window of an epoch, of the shape of `out`."""
    scan = (view.patterns.shape[0], view.patterns.shape[1])
    shape = (out.patterns.shape[0], out.patterns.shape[1])
    if inputs.held_out_positions:
        held_out = windows.held_out_positions(scan, inputs.held_out_positions, seed)
        corner, taken = windows.draw_training_window(held_out, shape, margin, seed, epoch)
        return _Window(corner, shape, taken)
    if scan == shape:
        return _Window((0, 0), shape, None)
    return _Window(windows.draw_corner(scan, shape, margin, seed, epoch), shape, None)


def _window_patterns(
    view: SampleView,
    drawn: imperfections.Drawn | None,
    window: _Window,
    margin: tuple[int, int],
    empty: imperfections.Empty,
) -> Array:
    """Returns the patterns of a window, with the imperfections that were drawn."""
    patterns = view.patterns
    if drawn and view.geometry:
        patterns = _disturbed(patterns, drawn, view.geometry, window, margin, empty)
    elif patterns.shape[:2] != window.shape:
        patterns = np.ascontiguousarray(_cut(patterns, window.corner, window.shape))
    if window.taken is not None:
        patterns = _taken(patterns, window.taken)
    return patterns


def _window_density(view: SampleView, window: _Window) -> Array:
    """Returns the density of a window."""
    density = view.density
    if view.patterns.shape[:2] != window.shape:
        y, x = window.corner
        height, width = window.shape
        density = density[..., y : y + height, x : x + width]
    if window.taken is not None:
        density = _taken(density, window.taken)
    return density


def _write_mirrored(
    allowed: symmetries.Symmetries | None,
    patterns: Array,
    density: Array,
    seed: int,
    epoch: int,
    out: Batch,
) -> None:
    """Writes a sample into `out` after one of the allowed symmetries, or as it is without any."""
    symmetry = 0
    if allowed:
        symmetry = int(np.random.default_rng([seed, epoch]).integers(allowed.order))
    if allowed and symmetry:
        symmetries.apply_into(symmetry, allowed, patterns, density, out.patterns, out.density)
        return
    np.copyto(out.patterns, patterns)
    np.copyto(out.density, density)


def _cut(patterns: Array, corner: tuple[int, int], shape: tuple[int, int]) -> Array:
    """Returns the patterns of a rectangle of positions, a view."""
    y, x = corner
    return patterns[y : y + shape[0], x : x + shape[1]]


def _disturbed(
    patterns: Array,
    drawn: imperfections.Drawn,
    geometry: imperfections.Geometry,
    window: _Window,
    margin: tuple[int, int],
    empty: imperfections.Empty,
) -> Array:
    """Returns the patterns of a window with the imperfections that were drawn.

    They reach beyond the window: by the margin, or around a periodic scan.
    """
    if geometry.periodic:
        return imperfections.apply(patterns, drawn, geometry, window.corner, window.shape, empty)
    outer_corner = (window.corner[0] - margin[0], window.corner[1] - margin[1])
    outer_shape = (window.shape[0] + 2 * margin[0], window.shape[1] + 2 * margin[1])
    around = _cut(patterns, outer_corner, outer_shape)
    return imperfections.apply(around, drawn, geometry, margin, window.shape, empty)


def _taken(array: Array, taken: Integers) -> Array:
    """Returns an array over the positions of a window with others in their places, see
    `windows`.
    """
    return array.reshape(-1, *array.shape[2:])[taken].reshape(array.shape)
