"""What an epoch makes of a stored sample: a window, imperfections, noise and a symmetry, from seed and epoch alone."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ..experiment import symmetries
from ..experiment.inputs import Inputs
from . import fast_noise, imperfections, noise, windows
from .normalisation import Batch
from .views import SampleView


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

    These are the window, the imperfections, the noise and the symmetry. The symmetry is applied last, so that the
    window and all imperfections are mirrored with the specimen.
    """
    patterns, out.scale[:], density = view.patterns, view.scale, view.density
    scan, window = (patterns.shape[0], patterns.shape[1]), (out.patterns.shape[0], out.patterns.shape[1])
    corner, taken, drawn = (0, 0), None, None
    if inputs.held_out_positions:
        held_out = windows.held_out_positions(scan, inputs.held_out_positions, seed)
        corner, taken = windows.draw_training_window(held_out, window, margin, seed, epoch)
    elif scan != window:
        corner = windows.draw_corner(scan, window, margin, seed, epoch)
    if scan != window:
        density = density[..., corner[0] : corner[0] + window[0], corner[1] : corner[1] + window[1]]
    if inputs.imperfections and view.geometry:
        drawn = imperfections.draw(inputs.imperfections, seed, epoch)
        first = [0, 0] if view.geometry.periodic else [c - m for c, m in zip(corner, margin, strict=True)]
        last = scan if view.geometry.periodic else [c + w + m for c, w, m in zip(corner, window, margin, strict=True)]
        around = patterns[first[0] : last[0], first[1] : last[1]]
        place = corner[0] - first[0], corner[1] - first[1]
        patterns = imperfections.apply(around, drawn, view.geometry, place, window, empty)
    elif scan != window:
        patterns = np.ascontiguousarray(patterns[corner[0] :, corner[1] :][: window[0], : window[1]])
    if taken is not None:
        patterns, density = (_taken(array, taken) for array in (patterns, density))
    if inputs.dose_electrons_per_pattern:
        electrons = noise.draw_electrons(inputs.dose_electrons_per_pattern, seed, epoch)
        count = fast_noise.count_electrons if drawn else noise.count_electrons  # the exact one where it was used before
        patterns = count(patterns, view.scale, electrons, seed, epoch)
        out.scale[:] = 1
    if drawn:
        patterns = imperfections.damage(patterns, drawn)
    symmetry = int(np.random.default_rng([seed, epoch]).integers(view.symmetries.order)) if view.symmetries else 0
    if view.symmetries and symmetry:
        symmetries.apply_into(symmetry, view.symmetries, patterns, density, out.patterns, out.density)
    else:
        np.copyto(out.patterns, patterns)
        np.copyto(out.density, density)


def _taken(array: npt.NDArray[Any], taken: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Returns an array over the positions of a window with others in their places, see `windows`."""
    return array.reshape(-1, *array.shape[2:])[taken].reshape(array.shape)
