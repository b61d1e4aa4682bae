"""What of a pattern becomes the network's channels, where scan positions are its image.

All but the phase are one matrix on the detector's pixels: averages of pixels, or a pattern's mean angle. The matrix is
of the microscope that the network is trained for, and maps onto itself under `train.experiment.symmetries`, channels
exchanged.

- pixels: every pixel
- binned: squares of `bin_pixels` × `bin_pixels` of them
- polar: rings a quarter of the semiangle wide, each in 8 sectors whose middles lie along the axes and diagonals
- virtual: rings (bright field inside and outside half the semiangle, dark field up to 1.5, 2.5 times it and beyond) and
  the mean angle, which is the deflection of a differential phase contrast

The guess 'dpc' is one channel more: the phase whose gradient is the deflection
(`namsa.physics.virtual_detectors.integrated`), of the window at hand, continued by its mirror images.
"""

from collections.abc import Iterable
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from namsa.physics import virtual_detectors as virtual
from namsa.physics.optics import wavelength_angstrom
from train.experiment.conditions import Conditions
from train.experiment.sections import Inputs

Array = npt.NDArray[Any]

RING = 1 / 4  # of the semiangle
SECTORS = 8
TENTHS = 10  # of a semiangle and a radian: of order one, as averages are, where a network learns fastest
EDGES = (0, 0.5, 1, 1.5, 2.5, np.inf)  # of the virtual rings, in semiangles


class Channels(NamedTuple):
    """What is made of a pattern's pixels, in one row.

    means: (pixels, c), columns that sum to 1; None where every pixel is a channel
    angles: (pixels, 3), 1 and the pixel's y and x in mrad; None where nobody asks for the deflection
    deflection: whether the mean angle y, x is given, in tenths of the semiangle
    guess: whether the phase is given, in tenths of a radian
    """

    means: Any
    angles: Any
    deflection: bool
    guess: bool
    semiangle_mrad: float
    step_angstrom: tuple[float, float]
    wavelength_angstrom: float


def channels(inputs: Inputs, trained: Conditions) -> Channels | None:
    """What the configuration asks for; None where it is the pixels alone. Raises ValueError where it does not fit."""
    if inputs.channels == "pixels" and inputs.guess == "none":
        return None
    if inputs.layout != "scan":
        raise ValueError(
            f"training.inputs.channels {inputs.channels} with guess {inputs.guess} needs scan positions as the "
            "image: set training.inputs.layout=scan"
        )
    y, x = (
        (np.arange(size) + 0.5 + first) * pixel
        for size, first, pixel in zip(trained.detector_shape, trained.first_edge, trained.pixel_mrad, strict=True)
    )
    y, x = (angle.ravel() for angle in np.meshgrid(y, x, indexing="ij"))
    means = None
    if inputs.channels == "binned":
        means = binned(trained.detector_shape, inputs.bin_pixels)
    elif inputs.channels == "polar":
        means = polar(y / trained.semiangle_mrad, x / trained.semiangle_mrad)
    elif inputs.channels == "virtual":
        means = rings(np.hypot(y, x) / trained.semiangle_mrad)
    deflection, guess = inputs.channels == "virtual", inputs.guess == "dpc"
    moments = np.stack([np.ones_like(y), y, x], axis=-1, dtype=np.float32) if deflection or guess else None
    step, wavelength = trained.scan_step_angstrom, wavelength_angstrom(trained.energy_ev)
    return Channels(means, moments, deflection, guess, trained.semiangle_mrad, step, wavelength)


def count(made: Channels | None, pixels: int) -> int:
    """How many channels there are."""
    if made is None:
        return pixels
    return (pixels if made.means is None else made.means.shape[1]) + 2 * made.deflection + made.guess


# ---- Matrices -------------------------------------------------------------------------------------------------------


def binned(shape: tuple[int, int], side: int) -> Array:
    """Squares of `side`² pixels of a detector of `shape`. Raises ValueError where they do not fill it."""
    if any(size % side for size in shape):
        raise ValueError(f"training.inputs.bin_pixels {side} does not divide the detector's {shape[0]}×{shape[1]}")
    rows, columns = (np.kron(np.eye(size // side), np.ones((side, 1)) / side) for size in shape)
    return np.kron(rows, columns).astype(np.float32)


def polar(y: Array, x: Array) -> Array:
    """Sectors of rings, of pixels at `y`, `x` in semiangles; and a pixel in the middle, which has no sector."""
    distance = np.hypot(y, x)
    ring = np.floor(distance / RING + 1e-9)
    sector = np.floor(np.arctan2(y, x) / (2 * np.pi) * SECTORS + 0.5) % SECTORS
    middle = distance < 1e-9
    parts = product(range(int(ring.max()) + 1), range(SECTORS))
    return _averages([middle, *((ring == r) & (sector == s) & ~middle for r, s in parts)])


def rings(distance: Array) -> Array:
    """The virtual detectors, of pixels at `distance` in semiangles."""
    return _averages((distance >= low) & (distance < high) for low, high in pairwise(EDGES))


def _averages(weights: Iterable[Array]) -> Array:
    """Columns of `weights` over their sums, without those of no pixel."""
    return np.stack([weight / weight.sum() for weight in weights if weight.any()], axis=-1, dtype=np.float32)


# ---- What is made; `train.input.channels_graph` does the same for batches ------------------------------------------


def seen(patterns: Array, made: Channels, power: float, gain: float) -> Array:
    """The channels (sy, sx, c), float32, of one sample's patterns (sy, sx, pixels), fractions of the beam.

    gain · (I / I₀)^power of the averages, as of pixels; deflection in tenths of the semiangle, phase in
    tenths of a radian.
    """
    averages = patterns if made.means is None else _each(patterns, made.means)
    found = [gain * (averages * patterns.shape[-1]) ** power]
    if made.angles is not None:
        total, y, x = np.moveaxis(_each(patterns, made.angles), -1, 0)
        deflection = np.stack([y, x], axis=-1) / np.where(total > 0, total, 1)[..., None]
        if made.deflection:
            found.append(TENTHS / made.semiangle_mrad * deflection)
        if made.guess:
            phase = virtual.integrated(deflection, made.step_angstrom, made.wavelength_angstrom, periodic=False)
            found.append(TENTHS * phase[..., None])
    return np.concatenate(found, axis=-1, dtype=np.float32)


def _each(patterns: Array, matrix: Array) -> Array:
    """patterns @ matrix in one product, where NumPy would call BLAS, and wait for its threads, for each scan row."""
    return (patterns.reshape(-1, patterns.shape[-1]) @ matrix).reshape(*patterns.shape[:-1], -1)
