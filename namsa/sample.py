"""A sample: diffraction patterns, the density and potential of their specimen, and their provenance."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from namsa.io import hdf5, labelled
from namsa.names import check_name
from namsa.physics import virtual_detectors
from namsa.pixels import pattern_grid, stack_shape
from namsa.provenance_values import value

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Sample:
    """One pair of diffraction patterns and projected density, with its provenance. All arrays are NumPy arrays.

    Attributes:
        cbed: Fraction of the incident beam in each detector pixel, `(n, dy, dx)`, zero frequency in the centre.
        density: Projected electron density, `(ty, tx)`, e/Å².
        projected_potential: Projected potential, `(ny, nx)`, V·Å.
        provenance: Everything that is needed to simulate the sample again, in JSON types.
        labels: Part of the specimen that each pixel of the density belongs to, `(ty, tx)`, uint8: an index into
            `label_names` of the provenance. `None` if the specimen is of one part.
        density_by_depth: Electron density of equal bins along the beam, `(n, ty, tx)`, e/Å², the first where the beam
            enters. They add up to `density`. `None` if the density is not divided.
    """

    cbed: npt.NDArray[Any]
    density: npt.NDArray[Any]
    projected_potential: npt.NDArray[Any]
    provenance: dict[str, Any]
    labels: npt.NDArray[np.uint8] | None = None
    density_by_depth: npt.NDArray[Any] | None = None

    @property
    def stack(self) -> npt.NDArray[Any]:
        """The patterns in the shape of the scan, (sy, sx, dy, dx) for a raster, otherwise (n, dy, dx); no copy."""
        return self.cbed.reshape(stack_shape(self))

    def to_xarray(self) -> Any:
        """Returns the arrays as an `xarray.Dataset` with coordinates and units; see `namsa.io.labelled`.

        Raises:
            InputError: If xarray is not installed.
        """
        return labelled.to_xarray(self)

    def to_hyperspy(self) -> Any:
        """Returns the patterns as HyperSpy's `Signal2D` with calibrated axes; see `namsa.io.labelled`.

        Raises:
            InputError: If HyperSpy is not installed.
        """
        return labelled.to_hyperspy(self)

    def bright_field(self) -> npt.NDArray[np.float64]:
        """Returns the bright-field image, from the disk of the aperture; shape as `annular`."""
        angles, semiangle_mrad = pattern_grid(self.provenance), value(self.provenance, "semiangle_mrad")
        return self._image(virtual_detectors.bright_field(self.cbed, angles, semiangle_mrad))

    def annular(self, inner_mrad: float, outer_mrad: float = np.inf) -> npt.NDArray[np.float64]:
        """Returns the image of an annular virtual detector.

        Args:
            inner_mrad: Inner angle, mrad.
            outer_mrad: Outer angle, mrad.

        Returns:
            Fraction of the beam, `(sy, sx)` for a raster scan, otherwise `(n,)`.

        Raises:
            InputError: If no detector pixel lies in the ring.
        """
        return self._image(virtual_detectors.annular(self.cbed, pattern_grid(self.provenance), inner_mrad, outer_mrad))

    def centre_of_mass(self) -> npt.NDArray[np.float64]:
        """Returns the mean deflection (y, x) in mrad, `(sy, sx, 2)` for a raster scan, otherwise `(n, 2)`."""
        return self._image(virtual_detectors.centre_of_mass(self.cbed, pattern_grid(self.provenance)))

    def save(self, path: Path | str) -> None:
        """Writes the sample to an HDF5 file that py4DSTEM and HyperSpy open, see `namsa.io.hdf5`.

        Raises:
            InputError: If its provenance lacks what the file needs.
            WorkError: If the file cannot be written.
        """
        hdf5.write_samples(Path(path), [(check_name(self.provenance.get("id", "sample"), "the sample"), self)])

    def show(self, path: Path | str | None = None) -> "Figure":
        """Draws the patterns, the specimen and virtual images, see `namsa.figures.sample_figure`.

        Args:
            path: Where to write the picture; its ending names the format (.png, .pdf, .svg). Default: nowhere.

        Raises:
            WorkError: If the file cannot be written.
        """
        from namsa.figures.sample_figure import show  # Matplotlib is loaded where it is needed

        return show(self, path)

    def __repr__(self) -> str:
        """Returns the shapes and the units of the arrays."""
        name = self.provenance.get("id") or self.provenance.get("formula") or "sample"
        shape = self.provenance.get("scan_shape") or self.cbed.shape[:1]
        scan, pattern, density = ("×".join(map(str, size)) for size in (shape, self.cbed.shape[1:], self.density.shape))
        bins = "" if self.density_by_depth is None else f", {len(self.density_by_depth)} depth bins"
        return f"<Sample {name}: {scan} patterns of {pattern} pixels, density of {density} pixels{bins}>"

    def _repr_html_(self) -> str:
        """Returns the HTML that a notebook shows."""
        from namsa.figures.notebook import sample_html

        return sample_html(self)

    def _image(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Returns one value, or one vector, per position in the shape of the scan."""
        return values.reshape(*stack_shape(self)[:-2], *values.shape[1:])
