"""The result of a reconstruction: images with their pixels and provenance, to save and to look
at.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from namsa.base.arrays import Array, Floats
from namsa.base.pixels import ArrayAxis, PixelGrid, depth_axis
from namsa.base.provenance_values import Provenance
from namsa.io import hdf5
from namsa.samples.image import image_or_array

from ....apply.scan_result import Maps, ScanResult
from ..trust.aberrations import is_beyond
from ..trust.consistency import is_unresolved
from ..trust.familiarity import is_outside
from ..trust.intensities import is_scaled_each
from ..trust.orientation import is_contradicted
from ..trust.thickness import is_thicker

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# arrays have no single truth value and long representations
@dataclass(frozen=True, eq=False, repr=False)
class Reconstruction(ScanResult):
    """The projected electron density of a specimen, reconstructed from a scan. Its images are
    `namsa.Image`, arrays that know their pixels and units.

    A file has density, uncertainty, familiarity and trust, as far as they are known. A density by
    depth is written too, as `density_by_depth` with an axis `depth` in Å, or without units, from 0
    at the entrance to 1 at the exit, where the thickness is not known. In the picture, places that
    are not familiar and the scan's edges are hatched, and bins by depth share one colour scale. All
    images are NaN where the pattern of the scan is lost.

    Attributes:
        density: Projected electron density, `(ny, nx)`, e/Å², float32.
        uncertainty: Estimated standard deviation of the density's error, `(ny, nx)`, e/Å². `None`
            if the network gives one prediction only, and no error of it.
        trust: How well the density explains the patterns, `(ny, nx)`, from 0 to 1
            (`train.tasks.density.trust.consistency`). `None` if it was not measured.
        bright_field: Fraction of the beam in the bright disk, `(sy, sx)`.
        mean_pattern: Mean pattern of the data, `(dy, dx)`, fraction of the beam.
        pixels: Pixels of density, uncertainty, familiarity and trust, Å.
        scan_pixels: Pixels of the bright field, Å.
        detector_pixels: Pixels of the mean pattern, mrad from the optic axis.
        provenance: Data, network, and under "notes" the notes; JSON types only.
        familiarity: Fraction of windows of held-out crystals whose distance from the training data
            is at least that of this place, a p-value, `(ny, nx)`, from 0 to 1
            (`train.tasks.density.trust.familiarity`). `None` if it was not measured.
        density_by_depth: Electron density of equal bins along the beam, `(bins, ny, nx)`, e/Å²,
            float32, the first where the beam enters. They add up to `density`. `None` if the
            network predicts projected densities.
        depth_angstrom: Thickness that the bins divide, Å. `None` if it is not known.
        truth: True density at the pixels and in the band of `density`, `(ny, nx)`, e/Å², which the
            picture shows beside it. `None` if the scan's file does not hold it.
    """

    group = "reconstruction"

    density: Array
    uncertainty: Array | None
    trust: Array | None
    bright_field: Array
    mean_pattern: Array
    pixels: PixelGrid
    scan_pixels: PixelGrid
    detector_pixels: PixelGrid
    provenance: Provenance
    familiarity: Array | None = None
    density_by_depth: Array | None = None
    depth_angstrom: float | None = None
    truth: Array | None = None

    def __post_init__(self) -> None:
        """Gives the images their pixels."""
        self._replace("density", self.pixels, "e/Å²")
        self._replace("uncertainty", self.pixels, "e/Å²")
        self._replace("trust", self.pixels, "")
        self._replace("familiarity", self.pixels, "")
        self._replace("truth", self.pixels, "e/Å²")
        self._replace("bright_field", self.scan_pixels, "fraction of the beam")
        self._replace("mean_pattern", self.detector_pixels, "fraction of the beam", units="mrad")
        bins: tuple[str, ...] = ()
        if self.density_by_depth is not None:
            bins = tuple(self._bin_names())
        self._replace("density_by_depth", self.pixels, "e/Å²", channels=bins)

    @property
    def outside(self) -> bool:
        """Whether the scan lies outside of what the network learnt: by its familiarity, by its
        aberrations, by what was estimated or given of it, because its patterns were each scaled by
        themselves or contradict the detector's orientation or the given thickness, because a
        network for thicker specimens predicts more electrons, or because the stated error is large
        beside the density's contrast.

        False if none of these was measured.
        """
        return bool(self._headline())

    @property
    def warnings(self) -> list[str]:
        """One line about each quantity, estimated or given, that the network has not learnt."""
        lines = list(self.provenance.get("estimated", {}).get("outside", []))
        thickness = self.provenance.get("thickness_outside")
        if thickness:
            lines.append(thickness)
        return lines

    @property
    def lines(self) -> list[str]:
        """A line about a scan that the network cannot be relied on for."""
        reason = self._headline()
        return [f"do not rely on this density: {reason}"] if reason else []

    @property
    def step_angstrom(self) -> tuple[float, float]:
        """Distance between neighbouring pixels of the density, (y, x), Å."""
        y, x = self.pixels.step
        return float(y), float(x)

    @property
    def axes_angstrom(self) -> tuple[Floats, Floats]:
        """Coordinates of the density's rows `(ny,)` and columns `(nx,)`, Å."""
        return self.pixels.coordinates(self.density.shape)

    def _replace(self, field: str, pixels: PixelGrid, units_of_values: str, **more: Any) -> None:
        """Makes a field an image; `None` stays."""
        values = getattr(self, field)
        if values is None:
            return
        name = field.replace("_", " ")
        image = image_or_array(np.asarray(values), pixels, name, units_of_values, **more)
        object.__setattr__(self, field, image)

    def _facts(self) -> dict[str, object]:
        """Returns why the scan lies outside; empty of one that does not."""
        return {"outside": self._headline()}

    def _large_arrays(self) -> Mapping[str, hdf5.Bands]:
        if (bins := self.density_by_depth) is None:
            return {}
        depth = depth_axis(len(bins), self.depth_angstrom or 1.0)._replace(
            units="Å" if self.depth_angstrom else ""
        )
        y, x = self.axes_angstrom
        axes = [depth, ArrayAxis("y", "Å", y), ArrayAxis("x", "Å", x)]
        return {"density_by_depth": hdf5.Bands("e/Å²", axes, iter([bins]))}

    def _figure(self, title: str) -> "Figure":
        from .picture import draw

        bins: dict[str, Array] = {}
        if self.density_by_depth is not None:
            bins = dict(zip(self._bin_names(), self.density_by_depth, strict=True))
        return draw(self, self._maps(), bins, title, self._headline())

    def _headline(self) -> str:
        """Returns what the picture says of a scan that the network cannot be relied on for; empty
        of other scans.
        """
        flagged = self.provenance.get("windows_not_familiar", 0.0)
        aberrations = self.provenance.get("aberrations")
        if is_outside(flagged) or is_beyond(aberrations) or self.warnings:
            return "outside of what the network learnt"
        if is_scaled_each(self.provenance.get("intensities")):
            return "patterns were each scaled by themselves"
        if is_contradicted(self.provenance.get("orientation")):
            return "the patterns contradict the detector's orientation"
        if self.provenance.get("pacbed", {}).get("contradicted"):
            return "the mean pattern contradicts the given thickness"
        if is_unresolved(self.provenance.get("error_over_contrast", 0.0)):
            return "the stated error is large beside the contrast"
        if is_thicker(self.provenance.get("thicker")):
            return "probably thicker than what the network learnt"
        return ""

    def _bin_names(self) -> list[str]:
        """Returns what each bin is called in the picture."""
        assert self.density_by_depth is not None
        count = len(self.density_by_depth)
        length, units = (self.depth_angstrom, "Å") if self.depth_angstrom else (100.0, "%")
        return [
            f"Depth {length * i / count:.3g}–{length * (i + 1) / count:.3g} {units}"
            for i in range(count)
        ]

    def _maps(self) -> Maps:
        """Returns the images that there are, with their units, by name."""
        images = {
            "density": (self.density, "e/Å²"),
            "uncertainty": (self.uncertainty, "e/Å²"),
            "familiarity": (self.familiarity, ""),
            "trust": (self.trust, ""),
        }
        return {
            name: (image, units) for name, (image, units) in images.items() if image is not None
        }

    @property
    def _summary(self) -> str:
        (ny, nx), (dy, dx) = self.density.shape, self.step_angstrom
        return f"{ny} × {nx} pixels of {dy:.3g} × {dx:.3g} Å, by {self.provenance['model']}"
