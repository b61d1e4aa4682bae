"""From stored samples to the network's tensors: normalisation and layout.

y = density / density_scale. The intensity of a detector pixel becomes a number x. I is the part of
the beam in it, and I₀ = 1 / (number of detector pixels) that of a beam which is spread evenly.

- power: x = gain · (I / I₀)^power.
- log: x = gain · (17 + max(ln I, −17)), which with gain 10 is that of the STEMDL benchmark
  (mlcommons/science).
- standardised: x = gain · (I − mean) / deviation, both over the pixels of the pattern, as the
  authors of the paper have it (nlaanait/stemdl). A pattern that is the same in all pixels becomes
  0. Neither scale nor offset of the stored numbers matters, so that patterns which are standardised
  already stay as they are.
- root_of_stored: x = gain · √((I − least I of the pattern) / deviation), which is the authors'
  `image_scaling` of the standardised patterns that their files hold.

In layout 'detector' the image axes are the detector's y, x and the channels the probe positions. In
layout 'scan' the image axes are the scan's y, x and the channels the detector's pixels, or what
`train.experiment.channels` computes from them. In layout 'pattern' every pattern is an image of one
channel. In layout 'volume' the axes are the scan's y and the detector's y, x, and the channels the
scan's x. Coordinates are the last two channels of layout 'detector'.
"""

import math
from collections.abc import Callable, Collection
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from keras import ops

from namsa.base.arrays import Array, Tensor
from namsa.base.pixels import raster_shape
from namsa.dataset.records import Record

from ..execution import backend
from ..experiment import symmetries
from ..experiment.channels import TENTHS, Channels, image_coordinates, refocused
from ..experiment.inputs import BY_PATTERN, Inputs, NormalisationKind

DARKEST = 17.0  # −ln of the part of the beam below which all pixels are alike
_SAME = 1e-6  # deviation of a pattern from its mean that is rounding


class Intensities(NamedTuple):
    """A rule by which intensities become numbers."""

    kind: NormalisationKind
    power: float  # exponent of kind "power"
    gain: float  # factor of the numbers

    @property
    def by_pattern(self) -> bool:
        """Whether the numbers depend on the whole pattern."""
        return self.kind in BY_PATTERN

    @classmethod
    def of(cls, inputs: Inputs) -> "Intensities":
        """Returns the rule of the section training.inputs."""
        return cls(inputs.normalisation, inputs.power, inputs.gain)

    def numbers(self, relative: Tensor, pixels: int) -> Tensor:
        """Returns the numbers of relative intensities I / I₀, float32, by the kinds "power" and
        "log".
        """
        if self.kind == "log":
            dark = DARKEST - math.log(pixels)  # −ln of the same in units of I₀
            x = ops.log(ops.maximum(relative, math.exp(-dark))) + dark
        elif self.power == 1:
            x = relative
        else:
            x = ops.sqrt(relative) if self.power == 0.5 else relative**self.power
        return x if self.gain == 1 else self.gain * x

    def of_pattern(self, values: Tensor, patterns: Tensor, axis: int | tuple[int, int]) -> Tensor:
        """Returns the numbers by the kinds "standardised" and "root_of_stored" of pixels of
        patterns, or averages of them, float32.

        The axis is that of the detector in the patterns, or both.
        """
        mean = ops.mean(patterns, axis=axis, keepdims=True)
        deviation = ops.std(patterns, axis=axis, keepdims=True)
        deviation = ops.where(deviation > _SAME * ops.abs(mean), deviation, 1)
        if self.kind == "standardised":
            return self.gain * (values - mean) / deviation
        least = ops.min(patterns, axis=axis, keepdims=True)
        # averages may lie below the least value by rounding
        return self.gain * ops.sqrt(ops.maximum(values - least, 0) / deviation)


Image = npt.NDArray[np.float32]
DataFormat = Literal["channels_last", "channels_first"]


class Batch(NamedTuple):
    """n samples as they are stored in their records, augmented."""

    patterns: (
        Tensor  # `(n, sy, sx, dy, dx)`, fractions of the beam times `scale`; float16 or float32
    )
    scale: Tensor  # `(n, 1, 1, 1)`, float32
    density: Tensor  # `(n, ty, tx)`, or `(n, bins, ty, tx)` by depth, float32, e/Å²


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
    # Divided axis of the image, first index of the batch's part and index after the last; `None`:
    # whole.
    image_part: tuple[int, int, int] | None = None

    @classmethod
    def of(cls, inputs: Inputs, data_format: DataFormat, dtype: str) -> "Normalisation":
        """Returns the settings of the section training.inputs."""
        scale = inputs.density_scale_e_per_angstrom2
        side = inputs.bin_pixels if inputs.layout == "volume" and inputs.channels == "binned" else 1
        return cls(
            Intensities.of(inputs),
            scale,
            inputs.layout,
            data_format,
            dtype,
            inputs.coordinates,
            side,
        )


def normalise(
    record: Record,
    inputs: Inputs,
    data_format: DataFormat = "channels_last",
    channels: Channels | None = None,
) -> tuple[Image, Image]:
    """Converts one sample as `normalise_graph` converts batches.

    Returns:
        x `(h, w, c)` and y `(h, w, 1)`, or `(c, h, w)` and `(1, h, w)` with channels first;
        float32. The bins of a density by depth are the channels of y. In layout 'pattern' x has a
        leading axis of the positions, in layout 'volume' it is `(sy, dy, dx, sx)`, in layout
        'depth' `(z, sy, sx, c)`, and y `(z, sy, sx, 1)`.
    """
    scan = raster_shape(record.header["provenance"], len(record.cbed))
    detector = record.cbed.shape[1:]
    batch = Batch(
        record.patterns().reshape(1, *scan, *detector),
        np.ones((1, 1, 1, 1), np.float32),
        record.density[None],
    )
    x, y = map(
        np.asarray,
        normalise_graph(batch, Normalisation.of(inputs, data_format, "float32"), channels),
    )
    return x if inputs.layout == "pattern" else x[0], y[0]


def record_symmetries(record: Record, drawn: Collection[str] = ()) -> symmetries.Symmetries:
    """Returns the symmetries that augmentation draws from; see
    `train.experiment.symmetries.sample_symmetries`.
    """
    provenance = record.header["provenance"] | {"positions_angstrom": record.positions_angstrom}
    return symmetries.sample_symmetries(
        provenance, record.cbed.shape[1:], record.density.shape[-2:], drawn
    )


def normalise_graph(
    batch: Batch, settings: Normalisation, channels: Channels | None = None
) -> tuple[Tensor, Tensor]:
    """Converts a batch on the device that trains. Without `channels` all pixels are channels.

    Returns:
        x in `settings.dtype` and y in float32, with a leading axis of the batch. In layout
        'pattern' that of x is of the patterns of all samples.
    """
    if channels:
        x = _of_channels(batch, settings, channels)
    else:
        x = _of_pixels(batch, settings)
    y = batch.density / settings.density_scale
    if len(y.shape) == 3 or (channels and channels.refocus):
        y = y[:, None]  # images, and volumes of a network of volumes, are one channel
    return ops.cast(x, settings.dtype), _channels_at(y, settings.data_format)


def _of_channels(batch: Batch, settings: Normalisation, channels: Channels) -> Tensor:
    """Returns the network's input of some channels, float32."""
    _, sy, sx, dy, dx = batch.patterns.shape
    patterns = ops.reshape(batch.patterns, (-1, sy, sx, dy * dx))
    x = to_channels(patterns, batch.scale, channels, settings.intensities)
    if channels.refocus:
        volume = refocused(ops.transpose(x, (0, 3, 1, 2))[:, :, None], channels.refocus)
        return _channels_at(volume, settings.data_format)
    if settings.layout == "volume":
        side = settings.bin_pixels
        binned = ops.reshape(x, (-1, sy, sx, dy // side, dx // side))
        return _volume(binned, settings.data_format)
    if settings.data_format == "channels_first":
        return ops.transpose(x, (0, 3, 1, 2))
    return x


def _of_pixels(batch: Batch, settings: Normalisation) -> Tensor:
    """Returns the network's input of all pixels, float32."""
    patterns, scale, _ = batch
    rule = settings.intensities
    data_format = settings.data_format
    _, sy, sx, dy, dx = patterns.shape
    detector = settings.detector or (dy, dx)
    if rule.by_pattern:
        patterns = ops.cast(patterns, "float32")
        patterns = rule.of_pattern(patterns, patterns, (-2, -1))
    present_format = data_format
    if settings.layout == "pattern":
        scale = ops.repeat(scale, sy * sx, axis=0)
        shape = (-1, dy, dx, 1)
        if data_format == "channels_first":
            shape = (-1, 1, dy, dx)
        x = ops.reshape(patterns, shape)
    elif settings.layout == "volume":
        scale = scale[..., None]
        x = _volume(patterns, data_format)
    elif settings.layout == "detector":
        present_format = "channels_first"
        x = ops.reshape(patterns, (-1, sy * sx, dy, dx))
    else:
        if settings.layout == "scan":
            present_format = "channels_last"
        x = ops.reshape(patterns, (-1, sy, sx, dy * dx))
    if data_format != present_format:  # while the values are still of the smaller type
        order = (0, 2, 3, 1) if data_format == "channels_last" else (0, 3, 1, 2)
        x = ops.transpose(x, order)
    if not rule.by_pattern:
        pixels = detector[0] * detector[1]
        x = rule.numbers(ops.cast(x, "float32") * (pixels / scale), pixels)
    if settings.coordinates:
        planes = image_coordinates(*detector)
        x = _with_coordinates(x, planes, settings.image_part, data_format)
    return x


def normaliser(
    settings: Normalisation, channels: Channels | None = None
) -> Callable[[Batch], tuple[Tensor, Tensor]]:
    """Returns `normalise_graph` with these settings, compiled once per shape of a batch. Threads
    may share it.
    """
    execution = backend.execution()
    return execution.compiled(lambda batch: normalise_graph(batch, settings, channels))


def _with_coordinates(
    x: Tensor, planes: Array, image_part: tuple[int, int, int] | None, data_format: DataFormat
) -> Tensor:
    """Returns images with two more channels, the coordinates `(h, w, 2)` of their pixels, or of a
    part of an axis.
    """
    if image_part:
        axis, start, stop = image_part
        planes = planes[(slice(None),) * axis + (slice(start, stop),)]
    axis_of_channels = -1
    if data_format == "channels_first":
        axis_of_channels = 1
        planes = planes.transpose(2, 0, 1)
    of_images = ops.broadcast_to(planes, (ops.shape(x)[0], *planes.shape))
    return ops.concatenate([x, of_images], axis=axis_of_channels)


def _channels_at(images: Tensor, data_format: DataFormat) -> Tensor:
    """Returns images or volumes `(n, channels, ...)` with the channels where the format has
    them.
    """
    axes = range(len(images.shape))
    if data_format == "channels_first":
        return images
    return ops.transpose(images, (0, *axes[2:], 1))


def _volume(patterns: Tensor, data_format: DataFormat) -> Tensor:
    """Returns patterns `(n, sy, sx, dy, dx)` with the scan's columns as channels."""
    order = (0, 2, 1, 3, 4) if data_format == "channels_first" else (0, 1, 3, 4, 2)
    return ops.transpose(patterns, order)


def to_channels(patterns: Tensor, scale: Tensor, channels: Channels, rule: Intensities) -> Tensor:
    """Returns the channels `(n, sy, sx, c)`, float32, of patterns `(n, sy, sx, pixels)`, fractions
    times `scale`.

    Averages become numbers as pixels do. The deflection is in tenths of the semiangle, the phase in
    tenths of a radian.
    """
    patterns = ops.cast(patterns, "float32")
    matrices = [matrix for matrix in (channels.averages, channels.moments) if matrix is not None]
    # it reads the patterns once
    products: Tensor = patterns @ ops.concatenate(matrices, axis=1) if matrices else None
    if channels.averages is None:
        averages = patterns
    else:
        averages = products[..., : channels.averages.shape[1]]
    pixels = patterns.shape[-1]
    if rule.by_pattern:
        parts = [rule.of_pattern(averages, patterns, -1)]
    else:
        parts = [rule.numbers(averages * (pixels / scale), pixels)]
    if channels.moments is not None:
        total, y, x = ops.unstack(products[..., -3:], axis=-1)
        deflection = ops.divide_no_nan(ops.stack([y, x], axis=-1), total[..., None])
        if channels.deflection:
            parts.append(TENTHS / channels.semiangle_mrad * deflection)
        if channels.phase:
            phase = _integrate(
                deflection, channels.scan_step_angstrom, channels.wavelength_angstrom
            )
            parts.append(TENTHS * phase[..., None])
    return ops.concatenate(parts, axis=-1)


def _integrate(deflection: Tensor, step: tuple[float, float], wavelength: float) -> Tensor:
    """Returns the phase whose gradient is the deflection, `(n, sy, sx)`, of scans that are not
    periodic.

    It is `integrated_centre_of_mass` of `namsa.physics.virtual_detectors`: the scan is mirrored, so
    that the gradient is periodic, and integrated in Fourier space.

    Args:
        deflection: `(n, sy, sx, 2)`, mrad, y then x.
    """
    sy, sx = deflection.shape[1:3]
    factor = 2e-3 * np.pi / wavelength
    gy = _mirrored(factor * deflection[..., 0], -1, 1)
    gx = _mirrored(factor * deflection[..., 1], 1, -1)
    ky = np.fft.fftfreq(2 * sy, step[0])[:, None]
    kx = np.fft.fftfreq(2 * sx, step[1])
    squared = ky**2 + kx**2
    squared[0, 0] = 1  # a constant has no gradient, and the mean is subtracted
    along_y = np.float32(ky / (2 * np.pi * squared))
    along_x = np.float32(kx / (2 * np.pi * squared))
    y_real, y_imag = ops.fft2((gy, ops.zeros_like(gy)))
    x_real, x_imag = ops.fft2((gx, ops.zeros_like(gx)))
    # divided by i
    real = along_y * y_imag + along_x * x_imag
    imag = -(along_y * y_real + along_x * x_real)
    phase = ops.ifft2((real, imag))[0][:, :sy, :sx]
    return phase - ops.mean(phase, axis=(1, 2), keepdims=True)


def _mirrored(gradient: Tensor, sign_y: int, sign_x: int) -> Tensor:
    """Returns a component of a gradient, `(n, sy, sx)`, with its mirrors about the last row and
    column.
    """
    rows = ops.concatenate([gradient, sign_y * gradient[:, ::-1]], axis=1)
    return ops.concatenate([rows, sign_x * rows[:, :, ::-1]], axis=2)
