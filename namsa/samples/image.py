"""Images with pixels and units: what samples and reconstructions return where a microscope or a
crystal has an image.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.files import open_atomic
from namsa.base.pixels import ArrayAxis, PixelGrid
from namsa.figures.interpolation import resampled
from namsa.io import labelled, tiff

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Description(NamedTuple):
    """Quantity, place and units of an image."""

    name: str  # as "density"
    value_units: str  # of the values, as "e/Å²"; empty for fractions and numbers
    pixels: PixelGrid  # in `units`
    units: str = "Å"  # of lengths, or "mrad"
    channels: tuple[str, ...] = ()  # names of the images of a stack
    channels_last: bool = False  # whether the axis of the channels is the last, or the first
    periodic: bool = False  # whether the image covers a period of the cell along both axes


class Image(np.ndarray[Any, np.dtype[Any]]):
    """An image, or a stack of images on the same pixels: a NumPy array that knows its pixels.

    It is used as the array that it is. Calculations and parts of it are plain arrays; a copy is an
    image.

    Attributes:
        array: The values, a plain NumPy array; no copy.
        sampling: Distance between neighbouring pixels, (y, x), in `units`.
        units: Units of lengths: "Å", or "mrad" for diffraction patterns.
        value_units: Units of the values, as "e/Å²".
        name: What the image shows.
        pixels: Distance and origin of the pixels.
    """

    _described: Description | None

    def __new__(cls, values: npt.ArrayLike, described: Description) -> "Image":
        image = np.asarray(values).view(cls)
        image._described = described
        return image

    def __array_finalize__(self, template: Array | None) -> None:
        described = getattr(template, "_described", None)
        if described is not None and template is not None and self.shape != template.shape:
            described = None  # reshaped: the axes are not those of the pixels
        self._described = described

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **settings: Any) -> Any:
        """Returns the plain array of a calculation."""
        out = settings.get("out")
        if out:
            settings["out"] = tuple(_plain(array) for array in out)
        result = getattr(ufunc, method)(*(_plain(value) for value in inputs), **settings)
        if out and len(out) == 1:
            return out[0]
        return result

    def __getitem__(self, key: Any) -> Any:
        return self.array[key]

    @property
    def T(self) -> Array:  # type: ignore[override]
        """The transposed values, a plain array, as of `transpose` and `swapaxes`."""
        return self.array.T

    def transpose(self, *axes: int) -> Array:  # type: ignore[override]
        """Returns the transposed values, a plain array."""
        return self.array.transpose(*axes)

    def swapaxes(self, first: SupportsIndex, second: SupportsIndex) -> Array:
        """Returns the values with two axes exchanged, a plain array."""
        return self.array.swapaxes(first, second)

    def __reduce__(self) -> str | tuple[object, ...]:
        if self._described is None:
            return self.array.__reduce__()
        return Image, (self.array, self._described)

    def __repr__(self) -> str:
        if self._described is None:
            return repr(self.array)
        size = " × ".join(str(length) for length in self.shape)
        y, x = self.sampling
        text = f"{self.name}: {size} pixels of {y:.4g} × {x:.4g} {self.units}"
        return f"<Image {text}, {self.value_units or 'without unit'}>"

    def _repr_png_(self) -> bytes | None:
        """Returns the picture that a notebook shows."""
        if self._described is None:
            return None
        file = io.BytesIO()
        self.show().savefig(file, format="png")
        return file.getvalue()

    @property
    def array(self) -> Array:
        """The values, a plain NumPy array; no copy."""
        return self.view(np.ndarray)

    @property
    def sampling(self) -> tuple[float, float]:
        """Distance between neighbouring pixels, (y, x), in `units`."""
        y, x = self.pixels.step
        return float(y), float(x)

    @property
    def units(self) -> str:
        """Units of lengths: "Å", or "mrad" for diffraction patterns."""
        return self._facts.units

    @property
    def value_units(self) -> str:
        """Units of the values, as "e/Å²"; empty for fractions and numbers."""
        return self._facts.value_units

    @property
    def name(self) -> str:
        """The quantity that the image shows."""
        return self._facts.name

    @property
    def pixels(self) -> PixelGrid:
        """Distance and origin of the pixels, in `units`."""
        return self._facts.pixels

    def tile(self, times: int | Sequence[int] = 2) -> "Image":
        """Returns the image beside itself.

        Args:
            times: How often along y and x; one number is for both.

        Raises:
            InputError: If it is not a whole number from 1, or the image is no period of the
                crystal, so that there would be seams.
        """
        ty, tx = _pair(times)
        if min(ty, tx) < 1 or (int(ty), int(tx)) != (ty, tx):
            raise InputError(f"tile({times}): give whole numbers from 1, as tile((2, 3))")
        if not self._facts.periodic:
            raise InputError(
                f"{self.name} does not cover one period of the simulated cell, and would have "
                "seams: tile sample.projected_potential, or scan the whole cell"
            )
        return Image(np.tile(self._stack(), (1, int(ty), int(tx))), self._facts)._like(self)

    def interpolate(self, sampling: float | Sequence[float]) -> "Image":
        """Returns the image on other pixels of the same area, by Fourier interpolation.

        Finer pixels show the same frequencies, and no new ones. Coarser pixels leave out the
        frequencies that they cannot hold.

        Args:
            sampling: Distance between pixels (y, x), in `units`; one number is for both. What
                divides the image into whole pixels is taken: see `sampling` of the result.

        Raises:
            InputError: If it is not above 0, or asks for more than 100 million pixels.
        """
        wanted_steps = _pair(sampling)
        if not min(wanted_steps) > 0:
            raise InputError(f"interpolate({sampling}): give a sampling above 0 {self.units}")
        stack = self._stack()
        axes = []
        for count, step, wanted_step in zip(
            stack.shape[1:], self.sampling, wanted_steps, strict=True
        ):
            axes.append(max(1, round(count * step / wanted_step)))
        shape = (axes[0], axes[1])
        if len(stack) * shape[0] * shape[1] > 1e8:
            raise InputError(
                f"interpolate({sampling}) gives {shape[0]} × {shape[1]} pixels, and 100 million "
                "are the most: give a larger sampling"
            )
        old_step = np.array(self.sampling)
        step = np.array(stack.shape[1:]) * old_step / shape
        origin = np.array(self.pixels.origin) + (step - old_step) / 2
        pixels = PixelGrid(step.tolist(), origin.tolist(), self.pixels.limit)
        finer = np.array([resampled(image, shape) for image in stack])
        return Image(finer, self._facts._replace(pixels=pixels))._like(self)

    def show(self, path: Path | str | None = None) -> "Figure":
        """Draws the image, each image of a stack in a panel.

        Args:
            path: Where to write the picture; its ending names the format (.png, .pdf, .svg).
                Default: nowhere.

        Raises:
            InputError: If Matplotlib does not know the format.
            WorkError: If the file cannot be written.
        """
        from namsa.figures import image_figure, panels

        facts = self._facts
        figure = image_figure.draw(
            self._stack(), facts.pixels, facts.name, (facts.units, facts.value_units), self.channels
        )
        if path is not None:
            panels.write_figure(figure, Path(path))
        return figure

    def save(self, path: Path | str) -> None:
        """Writes the image.

        Args:
            path: The file. `.npy` has the array, `.tif` the values as 32-bit numbers with the
                pixels' size as ImageJ and HyperSpy read it, one page an image; any other ending is
                a picture, as `show` writes it.

        Raises:
            InputError: If the ending is unknown.
            WorkError: If the file cannot be written.
        """
        file = Path(path)
        if file.suffix.lower() == ".npy":
            with open_atomic(file) as opened:
                np.save(opened, self.array)
        elif file.suffix.lower() in (".tif", ".tiff"):
            tiff.write_images(file, self._stack(), self.sampling, self.units)
        else:
            self.show(file)

    def to_hyperspy(self) -> Any:
        """Returns HyperSpy's `Signal2D` with calibrated axes; the images of a stack are along a
        navigation axis.

        Raises:
            InputError: If HyperSpy is not installed.
        """
        stack = self._stack()
        y, x = self.pixels.coordinates(stack.shape[1:])
        axes = [ArrayAxis("y", self.units, y), ArrayAxis("x", self.units, x)]
        quantity = f"{self.name} ({self.value_units})" if self.value_units else self.name
        metadata = {"General": {"title": self.name}, "Signal": {"quantity": quantity}}
        if self.ndim == 2:
            return labelled.signal(stack[0], axes, metadata, {})
        count = np.arange(len(stack), dtype=np.float64)
        axes.insert(0, ArrayAxis("image", "", count))
        return labelled.signal(stack, axes, metadata, {})

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the images of a stack; empty for one image."""
        if self.ndim == 2:
            return ()
        return self._facts.channels or tuple(str(i) for i in range(len(self._stack())))

    @property
    def _facts(self) -> Description:
        if self._described is None:
            raise InputError(
                "this array was made of an image by reshaping it, and has no pixels and units: "
                "use those of the image"
            )
        return self._described

    def _stack(self) -> Array:
        """Returns the values as (images, y, x)."""
        if self.ndim == 2:
            return self.array[None]
        return np.moveaxis(self.array, -1, 0) if self._facts.channels_last else self.array

    def _like(self, other: "Image") -> "Image":
        """Returns this stack (images, y, x) with the axes of the image that it was made of."""
        if other.ndim == 2:
            return Image(self.array[0], self._facts)
        if self._facts.channels_last:
            return Image(np.moveaxis(self.array, 0, -1), self._facts)
        return self


def image_or_array(
    values: Array, pixels: PixelGrid | None, name: str, value_units: str, **more: Any
) -> Array:
    """Returns an image, or the array itself if it is none: one value per position of no raster, or
    a single point without size.

    Args:
        values: `(y, x)`, or a stack.
        pixels: Their pixels; `None` if there are none.
        name: What they show.
        value_units: Units of the values.
        more: Further fields of `Description`.
    """
    if pixels is None or values.ndim not in (2, 3) or not values.size or not min(pixels.step) > 0:
        return values
    return Image(values, Description(name, value_units, pixels, **more))


def _pair(given: Any) -> tuple[Any, Any]:
    """Returns one number twice, or two numbers."""
    if np.ndim(given) == 0:
        return given, given
    if len(given) != 2:
        raise InputError(f"give one number, or two as (y, x), and not {given}")
    return given[0], given[1]


def _plain(value: object) -> object:
    return value.array if isinstance(value, Image) else value
