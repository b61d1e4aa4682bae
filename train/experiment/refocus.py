"""Scan images refocused to depths: the volume that a network of densities by depth sees.

A ray of the probe that has the angle θ to the axis passes the specimen at depth z at r + θ(z − f), with r the probe
position and f the depth of focus. The scan's image of one detector pixel, moved by −θ(z − f), therefore shows what lies
at depth z at its own place, and what lies at other depths beside it, the farther the larger θ is. On the planes of the
bins' middles, these images are the features of a volume (z, y, x) whose axes are those of the density.

It is the geometry of rays, of the bright disk: scattering changes the angle, and the network has to learn what that
does. Images are interpolated linearly; beyond the scan's edges they continue with their last value.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from namsa.arrays import Array

from .conditions import Conditions


class Refocus(NamedTuple):
    """The interpolation of each channel on each plane."""

    along_y: Any  # weights of the scan's rows, `(c, z, sy, sy)`, float32
    along_x: Any  # transposed weights of the scan's columns, `(c, z, sx, sx)`, float32


def make_refocus(
    averages: Array | None, trained: Conditions, depths_angstrom: Sequence[float], focus_angstrom: float
) -> Refocus:
    """Returns the interpolation of the channels of a scan.

    Args:
        averages: `(pixels, c)`, the pixels of each channel, as of `train.experiment.channels`; `None` if each is one.
        trained: Conditions of the samples. Its scan is that which the network sees.
        depths_angstrom: Depths of the planes, Å.
        focus_angstrom: Depth of the probe's focus, Å: its defocus, if underfocus is positive.
    """
    pixels = trained.detector_pixels.coordinates(trained.detector_shape)
    angles = np.stack(np.meshgrid(*pixels, indexing="ij"), axis=-1).reshape(-1, 2)
    if averages is not None:
        angles = averages.T @ angles / averages.sum(axis=0)[:, None]
    distance = np.asarray(depths_angstrom) - focus_angstrom
    weights = [
        _weights(count, 1e-3 * angles[:, axis, None] * distance / step)
        for axis, (count, step) in enumerate(zip(trained.scan_shape, trained.scan_step_angstrom, strict=True))
    ]
    return Refocus(weights[0], np.ascontiguousarray(weights[1].swapaxes(-1, -2)))


def refocused(images: Any, planes: Refocus) -> Any:
    """Returns the volumes of images, of NumPy or of TensorFlow, `(n, c, z, sy, sx)`.

    Args:
        images: `(n, c, 1, sy, sx)`.
    """
    return planes.along_y @ images @ planes.along_x


def _weights(count: int, shifts: Array) -> Array:
    """Returns the weights by which an image takes at index i its value at i − shift, `(..., count, count)`."""
    place = np.clip(np.arange(count) - shifts[..., None], 0, count - 1)
    below = np.minimum(np.floor(place).astype(np.int64), count - 1)
    fraction = place - below
    every = np.arange(count)
    above = np.minimum(below + 1, count - 1)
    return (
        (1 - fraction)[..., None] * (below[..., None] == every) + fraction[..., None] * (above[..., None] == every)
    ).astype(np.float32)
