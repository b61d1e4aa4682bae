"""From stored samples to the network's tensors: normalisation and layout.

y = density / density_scale. The intensity of a detector pixel becomes a number x. I is the part of the beam in it, and
I₀ = 1 / (number of detector pixels) that of a beam which is spread evenly.

- power: x = gain · (I / I₀)^power.
- log: x = gain · (17 + max(ln I, −17)), which with gain 10 is that of the STEMDL benchmark (mlcommons/science).
- standardised: x = gain · (I − mean) / deviation, both over the pixels of the pattern, as the authors of the paper have
  it (nlaanait/stemdl). A pattern that is the same in all pixels becomes 0. Neither scale nor offset of the stored
  numbers matters, so that patterns which are standardised already stay as they are.

In layout 'detector' the image axes are the detector's y, x and the channels the probe positions. In layout 'scan' the
image axes are the scan's y, x and the channels the detector's pixels, or what `train.experiment.channels` computes from
them. In layout 'pattern' every pattern is an image of one channel. In layout 'volume' the axes are the scan's y and the
detector's y, x, and the channels the scan's x. Coordinates are the last two channels of layout 'detector'.
"""

import math
from collections.abc import Callable, Collection
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from keras import ops

from namsa.arrays import Array, Tensor
from namsa.dataset.records import Record
from namsa.pixels import raster_shape

from ..execution import backend
from ..experiment import symmetries
from ..experiment.channels import TENTHS, Channels, image_coordinates, refocused
from ..experiment.inputs import Inputs

DARKEST = 17.0  # −ln of the part of the beam below which all pixels are alike
_SAME = 1e-6  # deviation of a pattern from its mean that is rounding


class Intensities(NamedTuple):
    """A rule by which intensities become numbers."""

    kind: Literal["power", "log", "standardised"]
    power: float  # exponent of kind "power"
    gain: float  # factor of the numbers

    @classmethod
    def of(cls, inputs: Inputs) -> "Intensities":
        """Returns the rule of the section training.inputs."""
        return cls(inputs.normalisation, inputs.power, inputs.gain)

    def numbers(self, relative: Tensor, pixels: int) -> Tensor:
        """Returns the numbers of relative intensities I / I₀, float32, by the kinds "power" and "log"."""
        if self.kind == "log":
            dark = DARKEST - math.log(pixels)  # −ln of the same in units of I₀
            x = ops.log(ops.maximum(relative, math.exp(-dark))) + dark
        elif self.power == 1:
            x = relative
        else:
            x = ops.sqrt(relative) if self.power == 0.5 else relative**self.power
        return x if self.gain == 1 else self.gain * x

    def standardised(self, values: Tensor, patterns: Tensor, axis: int | tuple[int, int]) -> Tensor:
        """Returns the numbers by the kind "standardised" of pixels of patterns, or averages of them, float32.

        The axis is that of the detector in the patterns, or both.
        """
        mean, deviation = (of(patterns, axis=axis, keepdims=True) for of in (ops.mean, ops.std))
        return self.gain * (values - mean) / ops.where(deviation > _SAME * ops.abs(mean), deviation, 1)


Image = npt.NDArray[np.float32]
DataFormat = Literal["channels_last", "channels_first"]


class Batch(NamedTuple):
    """n samples as they are stored in their records, augmented."""

    patterns: Any  # `(n, sy, sx, dy, dx)`, fractions of the beam times `scale`; float16 or float32
    scale: Any  # `(n, 1, 1, 1)`, float32
    density: Any  # `(n, ty, tx)`, or `(n, bins, ty, tx)` by depth, float32, e/Å²


class Normalisation(NamedTuple):
    """Settings of `normalise_graph`."""

    intensities: Intensities  # how they become numbers
    density_scale: float  # divisor of densities, e/Å²
    layout: str  # "detector", "scan", "pattern", "volume" or "depth"
    data_format: DataFormat  # order of axes of x and y
    dtype: str  # of x
    coordinates: bool = False  # whether y and x of each pixel are the last two channels
    bin_pixels: int = 1  # side of the squares that are averaged in layout "volume"
    # Shape of whole patterns, if the batch has a part of each; `None`: that of the batch.
    detector: tuple[int, int] | None = None
    # Divided axis of the image, first index of the batch's part and index after the last; `None`: whole.
    image_part: tuple[int, int, int] | None = None

    @classmethod
    def of(cls, inputs: Inputs, data_format: DataFormat, dtype: str) -> "Normalisation":
        """Returns the settings of the section training.inputs."""
        scale = inputs.density_scale_e_per_angstrom2
        side = inputs.bin_pixels if inputs.layout == "volume" and inputs.channels == "binned" else 1
        return cls(Intensities.of(inputs), scale, inputs.layout, data_format, dtype, inputs.coordinates, side)


def normalise(
    record: Record, inputs: Inputs, data_format: DataFormat = "channels_last", channels: Channels | None = None
) -> tuple[Image, Image]:
    """Converts one sample as `normalise_graph` converts batches.

    Returns:
        x `(h, w, c)` and y `(h, w, 1)`, or `(c, h, w)` and `(1, h, w)` with channels first; float32. The bins of a
        density by depth are the channels of y. In layout 'pattern' x has a leading axis of the positions, in layout
        'volume' it is `(sy, dy, dx, sx)`, in layout 'depth' `(z, sy, sx, c)`, and y `(z, sy, sx, 1)`.
    """
    scan, detector = raster_shape(record.header["provenance"], len(record.cbed)), record.cbed.shape[1:]
    batch = Batch(
        record.patterns().reshape(1, *scan, *detector), np.ones((1, 1, 1, 1), np.float32), record.density[None]
    )
    x, y = map(np.asarray, normalise_graph(batch, Normalisation.of(inputs, data_format, "float32"), channels))
    return x if inputs.layout == "pattern" else x[0], y[0]


def record_symmetries(record: Record, drawn: Collection[str] = ()) -> symmetries.Symmetries:
    """Returns the symmetries that augmentation draws from; see `train.experiment.symmetries.sample_symmetries`."""
    provenance = record.header["provenance"] | {"positions_angstrom": record.positions_angstrom}
    return symmetries.sample_symmetries(provenance, record.cbed.shape[1:], record.density.shape[-2:], drawn)


def normalise_graph(batch: Batch, settings: Normalisation, channels: Channels | None = None) -> tuple[Tensor, Tensor]:
    """Converts a batch on the device that trains. Without `channels` all pixels are channels.

    Returns:
        x in `settings.dtype` and y in float32, with a leading axis of the batch. In layout 'pattern' that of x is of
        the patterns of all samples.
    """
    rule, density_scale, layout, data_format, dtype, coordinates, side, detector, image_part = settings
    patterns, scale, density = batch
    _, sy, sx, dy, dx = patterns.shape
    detector = detector or (dy, dx)
    y = density / density_scale
    if not (channels and channels.refocus):
        y = _channels_at(y if len(y.shape) == 4 else y[:, None], data_format)
    if channels:
        x = to_channels(ops.reshape(patterns, (-1, sy, sx, dy * dx)), scale, channels, rule)
        if channels.refocus:
            volume = refocused(ops.transpose(x, (0, 3, 1, 2))[:, :, None], channels.refocus)
            return ops.cast(_channels_at(volume, data_format), dtype), _channels_at(y[:, None], data_format)
        if layout == "volume":
            x = _volume(ops.reshape(x, (-1, sy, sx, dy // side, dx // side)), data_format)
            return ops.cast(x, dtype), y
        return ops.cast(ops.transpose(x, (0, 3, 1, 2)) if data_format == "channels_first" else x, dtype), y
    if rule.kind == "standardised":
        patterns = ops.cast(patterns, "float32")
        patterns = rule.standardised(patterns, patterns, (-2, -1))
    if layout == "pattern":
        scale = ops.repeat(scale, sy * sx, axis=0)
        x = ops.reshape(patterns, (-1, 1, dy, dx) if data_format == "channels_first" else (-1, dy, dx, 1))
    elif layout == "volume":
        scale, x = scale[..., None], _volume(patterns, data_format)
    else:
        x = ops.reshape(patterns, (-1, sy * sx, dy, dx) if layout == "detector" else (-1, sy, sx, dy * dx))
    present_format = {"detector": "channels_first", "scan": "channels_last"}.get(layout, data_format)
    if data_format != present_format:  # while the values are still of the smaller type
        x = ops.transpose(x, (0, 2, 3, 1) if data_format == "channels_last" else (0, 3, 1, 2))
    if rule.kind != "standardised":
        pixels = detector[0] * detector[1]
        x = rule.numbers(ops.cast(x, "float32") * (pixels / scale), pixels)
    if coordinates:
        x = _with_coordinates(x, image_coordinates(*detector), image_part, data_format)
    return ops.cast(x, dtype), y


def normaliser(settings: Normalisation, channels: Channels | None = None) -> Callable[[Batch], tuple[Tensor, Tensor]]:
    """Returns `normalise_graph` with these settings, compiled once per shape of a batch. Threads may share it."""
    execution: Any = backend.execution()
    return execution.compiled(lambda batch: normalise_graph(batch, settings, channels))


def _with_coordinates(x: Tensor, planes: Array, part: tuple[int, int, int] | None, data_format: DataFormat) -> Tensor:
    """Returns images with two more channels, the coordinates `(h, w, 2)` of their pixels, or of a part of an axis."""
    if part:
        axis, start, stop = part
        planes = planes[(slice(None),) * axis + (slice(start, stop),)]
    planes = planes.transpose(2, 0, 1) if data_format == "channels_first" else planes
    planes = ops.broadcast_to(planes, (ops.shape(x)[0], *planes.shape))
    return ops.concatenate([x, planes], axis=1 if data_format == "channels_first" else -1)


def _channels_at(images: Tensor, data_format: DataFormat) -> Tensor:
    """Returns images or volumes `(n, channels, ...)` with the channels where the format has them."""
    axes = range(len(images.shape))
    return images if data_format == "channels_first" else ops.transpose(images, (0, *axes[2:], 1))


def _volume(patterns: Tensor, data_format: DataFormat) -> Tensor:
    """Returns patterns `(n, sy, sx, dy, dx)` with the scan's columns as channels."""
    return ops.transpose(patterns, (0, 2, 1, 3, 4) if data_format == "channels_first" else (0, 1, 3, 4, 2))


def to_channels(patterns: Tensor, scale: Tensor, channels: Channels, rule: Intensities) -> Tensor:
    """Returns the channels `(n, sy, sx, c)`, float32, of patterns `(n, sy, sx, pixels)`, fractions times `scale`.

    Averages become numbers as pixels do. The deflection is in tenths of the semiangle, the phase in tenths of a radian.
    """
    patterns = ops.cast(patterns, "float32")
    matrices = [matrix for matrix in (channels.averages, channels.moments) if matrix is not None]
    products: Any = patterns @ ops.concatenate(matrices, axis=1) if matrices else None  # it reads the patterns once
    averages = patterns if channels.averages is None else products[..., : channels.averages.shape[1]]
    pixels = patterns.shape[-1]
    if rule.kind == "standardised":
        parts = [rule.standardised(averages, patterns, -1)]
    else:
        parts = [rule.numbers(averages * (pixels / scale), pixels)]
    if channels.moments is not None:
        total, y, x = ops.unstack(products[..., -3:], axis=-1)
        deflection = ops.divide_no_nan(ops.stack([y, x], axis=-1), total[..., None])
        if channels.deflection:
            parts.append(TENTHS / channels.semiangle_mrad * deflection)
        if channels.phase:
            phase = _integrate(deflection, channels.scan_step_angstrom, channels.wavelength_angstrom)
            parts.append(TENTHS * phase[..., None])
    return ops.concatenate(parts, axis=-1)


def _integrate(deflection: Tensor, step: tuple[float, float], wavelength: float) -> Tensor:
    """`integrated_centre_of_mass` of `namsa.physics.virtual_detectors` of each `(sy, sx, 2)`, mrad, not periodic."""
    sy, sx = deflection.shape[1:3]
    gy, gx = (2e-3 * np.pi / wavelength * deflection[..., axis] for axis in (0, 1))
    gy, gx = (ops.concatenate([g, sign * g[:, ::-1]], axis=1) for g, sign in ((gy, -1), (gx, 1)))
    gy, gx = (ops.concatenate([g, sign * g[:, :, ::-1]], axis=2) for g, sign in ((gy, 1), (gx, -1)))
    ky, kx = np.fft.fftfreq(2 * sy, step[0])[:, None], np.fft.fftfreq(2 * sx, step[1])
    squared = ky**2 + kx**2
    squared[0, 0] = 1  # a constant has no gradient, and the mean is subtracted
    along = [np.float32(k / (2 * np.pi * squared)) for k in (ky, kx)]
    (y_real, y_imag), (x_real, x_imag) = (ops.fft2((g, ops.zeros_like(g))) for g in (gy, gx))
    both = along[0] * y_imag + along[1] * x_imag, -(along[0] * y_real + along[1] * x_real)  # divided by i
    phase = ops.ifft2(both)[0][:, :sy, :sx]
    return phase - ops.mean(phase, axis=(1, 2), keepdims=True)
