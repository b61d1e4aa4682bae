"""Input channels of a network whose image axes are the scan positions, computed from the detector's
pixels.

All channels but the phase are one matrix product with the detector's pixels: averages of pixels, or
a pattern's mean angle. The matrix depends on the microscope that the network is trained for. The
symmetries of `train.experiment.symmetries` only permute its columns.

- pixels: every pixel.
- binned: squares of `bin_pixels` × `bin_pixels`.
- polar: rings with a width of a quarter of the semiangle, each in 8 sectors centred on the axes and
  diagonals.
- virtual: rings (bright field inside and outside half the semiangle, dark field up to 1.5 times it,
  up to 2.5 times it and beyond) and the mean angle, which is the deflection of differential phase
  contrast.

The guess 'dpc' is one more channel: the phase whose gradient is the deflection
(`namsa.physics.virtual_detectors.integrated_centre_of_mass`), of the window of scan positions,
continued by its mirror images.

In layout 'depth' images are refocused to depths: the volume that a network of densities by depth
sees. A ray of the probe that has the angle θ to the axis passes the specimen at depth z at r + θ(z
− f), with r the probe position and f the depth of focus. The scan's image of one detector pixel,
moved by −θ(z − f), therefore shows what lies at depth z at its own place, and what lies at other
depths beside it, the farther the larger θ is. On the planes of the bins' middles, these images are
the features of a volume (z, y, x) whose axes are those of the density. It is the geometry of rays,
of the bright disk: scattering changes the angle, and the network has to learn what that does.
Images are interpolated linearly; beyond the scan's edges they continue with their last value.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Array, Tensor
from namsa.physics.optics import wavelength_angstrom

from .conditions import Conditions
from .inputs import Inputs


class Refocus(NamedTuple):
    """The interpolation of each channel on each plane."""

    along_y: Tensor  # weights of the scan's rows, `(c, z, sy, sy)`, float32
    along_x: Tensor  # transposed weights of the scan's columns, `(c, z, sx, sx)`, float32


def make_refocus(
    averages: Array | None,
    trained: Conditions,
    depths_angstrom: Sequence[float],
    focus_angstrom: float,
) -> Refocus:
    """Returns the interpolation of the channels of a scan.

    Args:
        averages: `(pixels, c)`, the pixels of each channel, as of `train.experiment.channels`;
            `None` if each is one.
        trained: Conditions of the samples. Its scan is that which the network sees.
        focus_angstrom: Depth of the probe's focus, Å: its defocus, if underfocus is positive.
    """
    pixels = trained.detector_pixels.coordinates(trained.detector_shape)
    angles = np.stack(np.meshgrid(*pixels, indexing="ij"), axis=-1).reshape(-1, 2)
    if averages is not None:
        angles = averages.T @ angles / averages.sum(axis=0)[:, None]
    distance = np.asarray(depths_angstrom) - focus_angstrom
    weights = [
        _weights(count, 1e-3 * angles[:, axis, None] * distance / step)
        for axis, (count, step) in enumerate(
            zip(trained.scan_shape, trained.scan_step_angstrom, strict=True)
        )
    ]
    return Refocus(weights[0], np.ascontiguousarray(weights[1].swapaxes(-1, -2)))


def refocused(images: object, planes: Refocus) -> Tensor:
    """Returns the volumes `(n, c, z, sy, sx)` of images `(n, c, 1, sy, sx)`, of NumPy or of
    TensorFlow.
    """
    return planes.along_y @ images @ planes.along_x


def _weights(count: int, shifts: Array) -> Array:
    """Returns the weights by which an image takes at index i its value at i − shift, `(..., count,
    count)`.
    """
    place = np.clip(np.arange(count) - shifts[..., None], 0, count - 1)
    below = np.minimum(np.floor(place).astype(np.int64), count - 1)
    fraction = place - below
    every = np.arange(count)
    above = np.minimum(below + 1, count - 1)
    return (
        (1 - fraction)[..., None] * (below[..., None] == every)
        + fraction[..., None] * (above[..., None] == every)
    ).astype(np.float32)


RING_WIDTH = 1 / 4  # of the semiangle
SECTORS = 8
# per semiangle and per radian: channels of order one, as averages are, are learned fastest
TENTHS = 10
RING_EDGES = (0, 0.5, 1, 1.5, 2.5, np.inf)  # of the virtual detectors, in semiangles


class Channels(NamedTuple):
    """The channels that are computed from a pattern's pixels."""

    averages: Tensor  # `(pixels, c)`, columns that sum to 1; `None` if every pixel is a channel
    # `(pixels, 3)`, 1 and the pixel's y and x, mrad; `None` if no channel needs the deflection
    moments: Tensor
    deflection: bool  # whether the mean angle (y, x), in tenths of the semiangle, is two channels
    phase: bool  # whether the phase, in tenths of a radian, is a channel
    semiangle_mrad: float  # convergence semiangle of the probe, mrad
    scan_step_angstrom: tuple[float, float]  # distance of scan positions (y, x), Å
    wavelength_angstrom: float  # of the electrons, Å
    # how a volume is made of the channels in layout 'depth'; `None` in other layouts
    refocus: Refocus | None = None


def make_channels(
    inputs: Inputs,
    trained: Conditions,
    depths_angstrom: Sequence[float] = (),
    focus_angstrom: float = 0.0,
) -> Channels | None:
    """Returns the channels of the section training.inputs, or `None` if these are all pixels and
    nothing else.

    Args:
        depths_angstrom: Depths of the planes of layout 'depth', Å.

    Raises:
        ValueError: If the channels do not fit the layout or the detector.
    """
    if inputs.channels == "pixels" and inputs.guess == "none" and inputs.layout != "depth":
        return None
    if inputs.layout not in ("scan", "volume", "depth"):
        raise ValueError(
            f"training.inputs.channels {inputs.channels} with guess {inputs.guess} needs scan "
            "positions as the image: set training.inputs.layout=scan"
        )
    y, x = (
        (np.arange(size) + 0.5 + edge) * pixel
        for size, edge, pixel in zip(
            trained.detector_shape, trained.first_edge, trained.pixel_mrad, strict=True
        )
    )
    y, x = (angle.ravel() for angle in np.meshgrid(y, x, indexing="ij"))
    averages = None
    if inputs.channels == "binned":
        averages = binned(trained.detector_shape, inputs.bin_pixels)
    elif inputs.channels == "polar":
        averages = polar(y / trained.semiangle_mrad, x / trained.semiangle_mrad)
    elif inputs.channels == "virtual":
        averages = rings(np.hypot(y, x) / trained.semiangle_mrad)
    deflection = inputs.channels == "virtual"
    phase = inputs.guess == "dpc"
    if deflection or phase:
        moments = np.stack([np.ones_like(y), y, x], axis=-1, dtype=np.float32)
    else:
        moments = None
    step = trained.scan_step_angstrom
    wavelength = wavelength_angstrom(trained.energy_ev)
    if inputs.layout == "depth":
        refocus = make_refocus(averages, trained, depths_angstrom, focus_angstrom)
    else:
        refocus = None
    return Channels(
        averages, moments, deflection, phase, trained.semiangle_mrad, step, wavelength, refocus
    )


def channel_count(channels: Channels | None, pixels: int) -> int:
    """Returns the number of channels of a detector of `pixels` pixels."""
    if channels is None:
        return pixels
    averages = pixels if channels.averages is None else channels.averages.shape[1]
    return averages + 2 * channels.deflection + channels.phase


def volume_shape(patterns: tuple[int, int, int, int], inputs: Inputs) -> tuple[int, int, int, int]:
    """Returns the shape of a volume of layout 'volume' of patterns `(sy, sx, dy, dx)`: `(sx, sy,
    dy, dx)`, binned.
    """
    sy, sx, dy, dx = patterns
    side = inputs.bin_pixels if inputs.channels == "binned" else 1
    return sx, sy, dy // side, dx // side


def image_coordinates(height: int, width: int) -> Array:
    """Returns y and x of each pixel of an image, from -1 to 1, `(h, w, 2)`."""
    y, x = (np.linspace(-1, 1, size, dtype=np.float32) for size in (height, width))
    return np.stack(np.meshgrid(y, x, indexing="ij"), axis=-1)


# ---- Matrices
# ----------------------------------------------------------------------------------------


def binned(shape: tuple[int, int], side: int) -> Array:
    """Returns averages over squares of `side`² pixels, `(pixels, c)`. Raises ValueError if pixels
    are left over.
    """
    if any(size % side for size in shape):
        raise ValueError(
            f"training.inputs.bin_pixels {side} does not divide the detector's "
            f"{shape[0]}×{shape[1]}"
        )
    rows, columns = (np.kron(np.eye(size // side), np.ones((side, 1)) / side) for size in shape)
    return np.kron(rows, columns).astype(np.float32)


def polar(y: Array, x: Array) -> Array:
    """Returns the averages over sectors of rings, `(pixels, c)`, of pixels at y and x, `(pixels,)`,
    semiangles.

    A pixel in the middle, without a sector, is alone.
    """
    distance = np.hypot(y, x)
    ring = np.floor(distance / RING_WIDTH + 1e-9)
    sector = np.floor(np.arctan2(y, x) / (2 * np.pi) * SECTORS + 0.5) % SECTORS
    middle = distance < 1e-9
    parts = product(range(int(ring.max()) + 1), range(SECTORS))
    return _averages([middle, *((ring == r) & (sector == s) & ~middle for r, s in parts)])


def rings(distance: Array) -> Array:
    """Returns the averages over the virtual detectors, `(pixels, c)`, by the pixels' distances,
    semiangles.
    """
    return _averages((distance >= low) & (distance < high) for low, high in pairwise(RING_EDGES))


def _averages(weights: Iterable[Array]) -> Array:
    """Returns columns of `weights` that are divided by their sums, without those that have no
    pixel.
    """
    return np.stack(
        [weight / weight.sum() for weight in weights if weight.any()], axis=-1, dtype=np.float32
    )
