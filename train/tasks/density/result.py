"""The result of a reconstruction: images with their pixels and provenance, to save and to look at."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from namsa.arrays import Array, Floats
from namsa.io import hdf5
from namsa.pixels import ArrayAxis, PixelGrid, depth_axis

from ...apply.aberrations import is_beyond
from ...apply.familiarity import UNFAMILIAR, is_outside
from ...apply.orientation import is_contradicted
from ...apply.scan_result import Maps, ScanResult
from ...apply.trust import is_unresolved

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)  # arrays have no single truth value and long representations
class Reconstruction(ScanResult):
    """The projected electron density of a specimen, reconstructed from a scan.

    A file has density, uncertainty, familiarity and trust, as far as they are known. A density by depth is written too,
    as `density_by_depth` with an axis `depth` in Å, or without units, from 0 at the entrance to 1 at the exit, where
    the thickness is not known. In the picture, places that are not familiar are hatched, and bins by depth share one
    colour scale. All images are NaN where the pattern of the scan is lost.

    Attributes:
        density: Projected electron density, `(ny, nx)`, e/Å², float32.
        uncertainty: Estimated standard deviation of the density's error, `(ny, nx)`, e/Å². `None` if the network gives
            one prediction only, and no error of it.
        trust: How well the density explains the patterns, `(ny, nx)`, from 0 to 1 (`train.apply.trust`).
            `None` if it was not measured.
        bright_field: Fraction of the beam in the bright disk, `(sy, sx)`.
        mean_pattern: Mean pattern of the data, `(dy, dx)`, fraction of the beam.
        pixels: Pixels of density, uncertainty, familiarity and trust, Å.
        scan_pixels: Pixels of the bright field, Å.
        detector_pixels: Pixels of the mean pattern, mrad from the optic axis.
        provenance: Data, network, and under "said" the notes; JSON types only.
        familiarity: Share of the windows of unseen crystals that are as far from the training data as this place, or
            farther, `(ny, nx)`, from 0 to 1 (`train.apply.familiarity`). `None` if it was not measured.
        density_by_depth: Electron density of equal bins along the beam, `(bins, ny, nx)`, e/Å², float32, the first
            where the beam enters. They add up to `density`. `None` if the network predicts projected densities.
        depth_angstrom: Thickness that the bins divide, Å. `None` if it is not known.
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
    provenance: dict[str, Any]
    familiarity: Array | None = None
    density_by_depth: Array | None = None
    depth_angstrom: float | None = None

    @property
    def outside(self) -> bool:
        """Whether the scan lies outside of what the network learnt: by its familiarity, by its aberrations, by what was
        estimated of it, because the patterns contradict the detector's orientation, or because the stated error is as
        large as the density's contrast.

        False if none of these was measured.
        """
        return bool(self._headline())

    @property
    def warnings(self) -> list[str]:
        """One line about each estimated quantity that lies outside of what the network learnt."""
        return list(self.provenance.get("estimated", {}).get("outside", []))

    @property
    def step_angstrom(self) -> tuple[float, float]:
        """Distance between neighbouring pixels of the density, (y, x), Å."""
        y, x = self.pixels.step
        return float(y), float(x)

    @property
    def axes_angstrom(self) -> tuple[Floats, Floats]:
        """Coordinates of the density's rows `(ny,)` and columns `(nx,)`, Å."""
        return self.pixels.coordinates(self.density.shape)

    def _large_arrays(self) -> Mapping[str, hdf5.Bands]:
        if (bins := self.density_by_depth) is None:
            return {}
        depth = depth_axis(len(bins), self.depth_angstrom or 1.0)._replace(units="Å" if self.depth_angstrom else "")
        y, x = self.axes_angstrom
        axes = [depth, ArrayAxis("y", "Å", y), ArrayAxis("x", "Å", x)]
        return {"density_by_depth": hdf5.Bands("e/Å²", axes, iter([bins]))}

    def _figure(self, title: str) -> "Figure":
        from namsa.figures.density_figure import MapPanel, MeanPattern, density_figure, map_panel

        bins = {} if self.density_by_depth is None else dict(zip(self._bin_names(), self.density_by_depth, strict=True))
        return density_figure(
            [
                *(map_panel(name, image, self.pixels, units) for name, (image, units) in self._maps().items()),
                map_panel("bright field", self.bright_field, self.scan_pixels, "fraction of the beam"),
                *(MapPanel(name, image, self.pixels, "e/Å²", smooth=True) for name, image in bins.items()),
            ],
            title,
            pattern=MeanPattern(self.mean_pattern, self.detector_pixels, self.provenance["semiangle_mrad"]),
            hatched=None if self.familiarity is None else (self.familiarity < UNFAMILIAR, self.pixels),
            warning=self._headline(),
            one_scale=tuple(bins),
        )

    def _headline(self) -> str:
        """Returns what the picture says of a scan that the network cannot be relied on for; empty of other scans."""
        flagged, aberrations = self.provenance.get("windows_not_familiar", 0.0), self.provenance.get("aberrations")
        if is_outside(flagged) or is_beyond(aberrations) or self.warnings:
            return "outside of what the network learnt"
        if is_contradicted(self.provenance.get("orientation")):
            return "the patterns contradict the detector's orientation"
        if is_unresolved(self.provenance.get("error_over_contrast", 0.0)):
            return "the stated error is as large as the contrast"
        return ""

    def _bin_names(self) -> list[str]:
        """Returns what each bin is called in the picture."""
        assert self.density_by_depth is not None
        count = len(self.density_by_depth)
        length, units = (self.depth_angstrom, "Å") if self.depth_angstrom else (100.0, "%")
        return [f"Depth {length * i / count:.3g}–{length * (i + 1) / count:.3g} {units}" for i in range(count)]

    def _maps(self) -> Maps:
        """Returns the images that there are, with their units, by name."""
        images = {
            "density": (self.density, "e/Å²"),
            "uncertainty": (self.uncertainty, "e/Å²"),
            "familiarity": (self.familiarity, ""),
            "trust": (self.trust, ""),
        }
        return {name: (image, units) for name, (image, units) in images.items() if image is not None}

    @property
    def _summary(self) -> str:
        (ny, nx), (dy, dx) = self.density.shape, self.step_angstrom
        return f"{ny} × {nx} pixels of {dy:.3g} × {dx:.3g} Å, by {self.provenance['model']}"
