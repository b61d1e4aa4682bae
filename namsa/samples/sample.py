"""A sample: diffraction patterns, the density and potential of their specimen, and their
provenance.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array
from namsa.base.errors import InputError, SimulationWarning
from namsa.base.names import check_name
from namsa.base.pixels import (
    UNITS,
    PixelGrid,
    density_grid,
    fills_cell,
    pattern_grid,
    potential_grid,
    scan_grid,
    stack_shape,
)
from namsa.base.provenance_values import Provenance, value
from namsa.base.text import shorten
from namsa.config.bounds import DEFAULT_REACH_MRAD
from namsa.io import hdf5, labelled
from namsa.physics import detector_shapes, image_formation, virtual_detectors
from namsa.physics.grid import CONVENTIONAL_BAND, Grid
from namsa.samples.image import image_or_array

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Sample:
    """One pair of diffraction patterns and projected density, with its provenance. All arrays are
    NumPy arrays. Density, potential and virtual images are `namsa.Image`, arrays that know their
    pixels and units.

    Attributes:
        cbed: Fraction of the incident beam in each detector pixel, `(n, dy, dx)`, zero frequency in
            the centre.
        density: Projected electron density, `(ty, tx)`, e/Å².
        projected_potential: Projected potential, `(ny, nx)`, V·Å.
        provenance: Everything that is needed to simulate the sample again, in JSON types.
        labels: Part of the specimen that each pixel of the density belongs to, `(ty, tx)`, uint8:
            an index into `label_names` of the provenance. `None` if the specimen is of one part.
        density_by_depth: Electron density of equal bins along the beam, `(n, ty, tx)`, e/Å², the
            first where the beam enters. They add up to `density`. `None` if the density is not
            divided.
        waves: Exit waves at the lower face of the cell, complex, `(m, n, ny, nx)` on the pixels of
            the potential: m states of n positions. Σ|ψ|² over states and pixels is the fraction of
            the beam behind the specimen. The states are thermal configurations times coherent
            probes; a source that is averaged over the scan is none of them. `None` if
            `namsa.simulate` was not asked for them. Files do not hold them.

    Example:
        >>> sample.stack.shape[:2]
        (4, 5)
        >>> sample.annular(25, 40).shape
        (4, 5)
    """

    cbed: Array
    density: Array
    projected_potential: Array
    provenance: Provenance
    labels: npt.NDArray[np.uint8] | None = None
    density_by_depth: Array | None = None
    waves: Array | None = None

    def __post_init__(self) -> None:
        """Gives the images their pixels, where the provenance describes them."""
        try:
            pixels = density_grid(self.provenance)
            cell = potential_grid(self.provenance)
            extent = value(self.provenance, "extent_angstrom")
        except InputError:  # an error where the pixels are needed
            return
        lengths = np.multiply(pixels.step, self.density.shape[-2:])
        periodic = bool(np.allclose(lengths, extent, rtol=1e-6))
        units = "e/Å²"
        self._replace("density", pixels, units, periodic=periodic)
        self._replace("projected_potential", cell, "V·Å", periodic=True)
        if self.density_by_depth is not None:
            bins = tuple(f"bin {index + 1}" for index in range(len(self.density_by_depth)))
            self._replace("density_by_depth", pixels, units, periodic=periodic, channels=bins)

    @property
    def stack(self) -> Array:
        """The patterns in the shape of the scan, (sy, sx, dy, dx) for a raster, otherwise (n, dy,
        dx); no copy.
        """
        return self.cbed.reshape(stack_shape(self))

    @property
    def angles(self) -> PixelGrid:
        """The positions of the pixels of a pattern, mrad from the optic axis."""
        return pattern_grid(self.provenance)

    def to_xarray(self) -> Any:
        """Returns the arrays as an `xarray.Dataset` with coordinates and units; see
        `namsa.io.labelled`.

        Raises:
            InputError: If xarray is not installed.
        """
        return labelled.to_xarray(self)

    def to_hyperspy(self) -> Any:
        """Returns the patterns as HyperSpy's `Signal2D` with calibrated axes; see
        `namsa.io.labelled`.

        Raises:
            InputError: If HyperSpy is not installed.
        """
        return labelled.to_hyperspy(self)

    def bright_field(self) -> npt.NDArray[np.float64]:
        """Returns the bright-field image, from the disk of the aperture; shape as `annular`."""
        semiangle_mrad = value(self.provenance, "semiangle_mrad")
        values = virtual_detectors.bright_field(self.cbed, self.angles, semiangle_mrad)
        return self._image(values, f"bright field to {semiangle_mrad:g} mrad")

    def annular(self, inner_mrad: float, outer_mrad: float = np.inf) -> npt.NDArray[np.float64]:
        """Returns the image of an annular virtual detector.

        Args:
            inner_mrad: Inner angle, mrad.
            outer_mrad: Outer angle, mrad; by default all that the detector records.

        Returns:
            Fraction of the beam, `(sy, sx)` for a raster scan, otherwise `(n,)`.

        Raises:
            InputError: If the angles are no ring, or no detector pixel lies in it.

        Warns:
            SimulationWarning: If the detector or the band limit cuts the ring, or it reaches beyond
                the angle that the pixels of the simulation were chosen for.
        """
        values = virtual_detectors.annular(
            self.cbed,
            self.angles,
            inner_mrad,
            outer_mrad,
            accurate_mrad=self._accurate_mrad(),
        )
        return self._image(values, f"detector of {ring_text(inner_mrad, outer_mrad)}")

    def segmented(
        self, inner_mrad: float, outer_mrad: float, count: int = 4, rotation_deg: float = 0.0
    ) -> npt.NDArray[np.float64]:
        """Returns the images of the segments of an annular virtual detector.

        Args:
            inner_mrad: Inner angle, mrad.
            outer_mrad: Outer angle, mrad.
            count: Number of segments of equal width.
            rotation_deg: Azimuth of the first edge, degrees, from +x towards +y.

        Returns:
            Fractions of the beam, `(sy, sx, count)` for a raster scan, otherwise `(n, count)`.

        Raises:
            InputError: If the angles are no ring, or no detector pixel lies in it.
        """
        shape = self.cbed.shape[1:]
        masks = detector_shapes.segments(
            self.angles, shape, inner_mrad, outer_mrad, count, rotation_deg
        )
        return self.detect(masks)

    def detect(
        self, weights: npt.ArrayLike | detector_shapes.WeightFunction
    ) -> npt.NDArray[np.float64]:
        """Returns the images of virtual detectors of any shape.

        Args:
            weights: Weights `(dy, dx)` of one detector or `(m, dy, dx)` of m ones, as those of
                `namsa.segments` and `namsa.polygon`; or a function of the angles (y, x) of the
                pixels, mrad, that returns them.

        Returns:
            Weighted fractions of the beam, `(sy, sx)` or `(sy, sx, m)` for a raster scan, otherwise
            `(n,)` or `(n, m)`.

        Raises:
            InputError: If the weights do not have the shape of a pattern.
        """
        return self._image(detector_shapes.detect(self.cbed, self.angles, weights), "detector")

    def centre_of_mass(self) -> npt.NDArray[np.float64]:
        """Returns the mean deflection (y, x) in mrad, `(sy, sx, 2)` for a raster scan, otherwise
        `(n, 2)`.
        """
        values = virtual_detectors.centre_of_mass(self.cbed, self.angles)
        return self._image(values, "deflection", "mrad", ("y", "x"))

    def image(
        self,
        aberrations: Mapping[str, float] | None = None,
        *,
        aperture_mrad: float | None = None,
        focal_spread_angstrom: float = 0.0,
        illumination_mrad: float = 0.0,
    ) -> npt.NDArray[np.float64]:
        """Returns the images that a lens behind the specimen forms of the exit waves: those of
        high-resolution TEM for parallel illumination (`semiangle_mrad` 0).

        Args:
            aberrations: Krivanek coefficients of that lens, Å and rad; C10 = −defocus.
            aperture_mrad: Semi-angle of the objective aperture, mrad. By default there is none.
            focal_spread_angstrom: Rms of the Gaussian spread of defocus, Å; see
                `namsa.focal_spread_angstrom`.
            illumination_mrad: Rms of the Gaussian angles of illumination along each axis, mrad; see
                `namsa.physics.image_formation`.

        Returns:
            Images `(n, ny, nx)` on the pixels of the potential, as multiples of the intensity of a
            plane wave without a specimen.

        Raises:
            InputError: If the sample has no waves, or a setting is out of its range.
        """
        if self.waves is None:
            raise InputError("the sample has no exit waves: simulate it with waves=True")
        grid = Grid(
            tuple(value(self.provenance, "grid_shape")),
            tuple(value(self.provenance, "extent_angstrom")),
            value(self.provenance, "band_fraction", CONVENTIONAL_BAND),
        )
        lens = image_formation.ImagingLens(
            value(self.provenance, "energy_ev"),
            dict(aberrations or {}),
            aperture_mrad,
            focal_spread_angstrom,
            illumination_mrad,
        )
        images = image_formation.form_images(self.waves, grid, lens)
        cell = potential_grid(self.provenance)
        return image_or_array(images, cell, "image", "of a plane wave", periodic=True)

    def save(self, path: Path | str) -> None:
        """Writes the sample to an HDF5 file that py4DSTEM and HyperSpy open, see `namsa.io.hdf5`.

        Raises:
            InputError: If its provenance lacks what the file needs.
            WorkError: If the file cannot be written.

        Warns:
            SimulationWarning: If the sample has exit waves, which are not written.
        """
        if self.waves is not None:
            warnings.warn(
                f"{path} has no room for the exit waves: store sample.waves with numpy.save",
                SimulationWarning,
                stacklevel=2,
            )
        hdf5.write_samples(
            Path(path), [(check_name(self.provenance.get("id", "sample"), "the sample"), self)]
        )

    def show(self, path: Path | str | None = None) -> "Figure":
        """Draws the patterns, the specimen and virtual images, see `namsa.figures.sample_figure`.

        Args:
            path: Where to write the picture; its ending names the format (.png, .pdf, .svg).
                Default: nowhere.

        Raises:
            WorkError: If the file cannot be written.
        """
        from namsa.figures.sample_figure import show  # Matplotlib is loaded where it is needed

        return show(self, path)

    def __repr__(self) -> str:
        """Returns the shapes and the units of the arrays."""
        name = self.provenance.get("id") or self.provenance.get("formula") or "sample"
        scan = _by(self.provenance.get("scan_shape") or self.cbed.shape[:1])
        pattern = _by(self.cbed.shape[1:])
        text = f"{shorten(name)}: {scan} patterns of {pattern} pixels"
        text += f", density of {_by(self.density.shape)} pixels"
        if self.density_by_depth is not None:
            text += f", {len(self.density_by_depth)} depth bins"
        return f"<Sample {text}>"

    def _repr_html_(self) -> str:
        """Returns the HTML that a notebook shows."""
        from namsa.figures.notebook import sample_html

        return sample_html(self)

    def _accurate_mrad(self) -> float:
        """Returns the largest angle that pixels were chosen for, mrad; infinity if none is known.

        Pixels that were given have no accuracy in the provenance, and a detector ends where they
        were chosen to.
        """
        if "accuracy" not in self.provenance:
            return np.inf
        semiangle_mrad = float(value(self.provenance, "semiangle_mrad"))
        reach_mrad = self.provenance.get("reach_mrad")
        if reach_mrad is None:
            reach_mrad = np.inf if self.provenance.get("detector") else DEFAULT_REACH_MRAD
        return max(float(reach_mrad), 1.25 * semiangle_mrad)

    def _image(
        self,
        values: npt.NDArray[np.float64],
        name: str,
        value_units: str = UNITS["cbed"],
        channels: tuple[str, ...] = (),
    ) -> npt.NDArray[np.float64]:
        """Returns one value, or one vector, per position in the shape of the scan; an image of a
        raster scan.
        """
        shaped = values.reshape(*stack_shape(self)[:-2], *values.shape[1:])
        pixels = scan_grid(self.provenance)
        if pixels is None:
            return shaped
        return image_or_array(
            shaped,
            pixels,
            name,
            value_units,
            channels=channels,
            channels_last=True,
            periodic=fills_cell(pixels, self.provenance),
        )

    def _replace(self, name: str, pixels: PixelGrid, units: str, **more: object) -> None:
        """Makes a field an image."""
        title = name.replace("_", " ")
        image = image_or_array(np.asarray(getattr(self, name)), pixels, title, units, **more)
        object.__setattr__(self, name, image)


def ring_text(inner_mrad: float, outer_mrad: float) -> str:
    """Returns the angles of a ring as text, "50 to 80 mrad"."""
    if np.isinf(outer_mrad):
        return f"{inner_mrad:g} mrad to the detector's edge"
    return f"{inner_mrad:g} to {outer_mrad:g} mrad"


def _by(shape: Sequence[int]) -> str:
    """Returns a shape as text, "64×64"."""
    return "×".join(shorten(size) for size in shape)
