"""Sections of a configuration that describe a measurement: microscope, scan, detector, target."""

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from namsa.config.aberrations import aberration_problem
from namsa.config.bounds import (
    DepthBins,
    Dose,
    Energy,
    Extent,
    FocalSpread,
    Position,
    Semiangle,
    Shape,
    SourceSize,
    Steps,
    Tilt,
)
from namsa.config.loading import Section
from namsa.config.presets import detector_values, microscope_values
from namsa.config.response import Response


class Microscope(Section):
    """The illumination: energy, aperture, aberrations, tilts and partial coherence."""

    key_hints: ClassVar[dict[str, str]] = {
        "defocus": "give aberrations.C10 in Å, which is −defocus (underfocus is C10 < 0)",
        "spherical": "give aberrations.C30 in Å: 1 mm is 1e7 Å",
        "astigmatism": "give aberrations.C12 in Å, and phi12 in rad",
    }
    preset: (
        Literal["corrected-80kv", "corrected-200kv", "corrected-300kv", "uncorrected-200kv"] | None
    ) = Field(
        None,
        exclude=True,
        description="energy, semiangle and aberrations of a kind of microscope; other keys "
        "override it",
    )
    energy_ev: Energy = Field(200e3, description="electron energy, 10 keV to 1 MeV, in eV")
    semiangle_mrad: Semiangle = Field(
        20.0,
        description="convergence semiangle, mrad; below one pixel of the reciprocal grid, as 0, "
        "the illumination is parallel",
    )
    aberrations: dict[str, float] = Field(
        default_factory=dict,
        description="coefficients in Krivanek's notation, Å and rad: C10 (= −defocus), C12, phi12, "
        "... C56",
    )
    aperture_edge: Literal["intensity", "amplitude"] = Field(
        "intensity",
        description="what falls linearly over the reciprocal pixel of the aperture's edge: the "
        "intensity, with which the disk has the solid angle of semiangle_mrad, or the "
        "amplitude, as abTEM and data that were made before have it",
    )
    beam_tilt_mrad: tuple[Tilt, Tilt] = Field(
        (0.0, 0.0), description="tilt (y, x) of the cone's axis, mrad"
    )
    specimen_tilt_mrad: tuple[Tilt, Tilt] = Field(
        (0.0, 0.0),
        description="tilt (y, x) of the specimen, mrad, at most 87: a tilted propagator makes "
        "atoms at depth z appear at y + z·tan(tilt)",
    )
    source_size_angstrom: SourceSize = Field(
        0.0, description="full width at half maximum of the Gaussian source at the specimen, Å"
    )
    source_points: int | None = Field(
        None,
        ge=1,
        le=64,
        description="number of coherent probes per axis that sample the source; none: as many as "
        "give the coherence an accuracy of 0.001",
    )
    focal_spread_angstrom: FocalSpread = Field(
        0.0, description="root mean square of the Gaussian spread of defocus, Å"
    )
    focal_points: int | None = Field(
        None,
        ge=1,
        le=64,
        description="number of coherent probes that sample the focal spread; none: as for "
        "source_points",
    )
    chromatic_aberration_mm: float | None = Field(
        None,
        gt=0,
        le=1000,
        description="coefficient C_c, mm; with energy_spread_ev it gives the focal spread",
    )
    energy_spread_ev: float | None = Field(
        None, gt=0, le=1000, description="full width at half maximum of the energy distribution, eV"
    )
    high_tension_ripple_ppm: float = Field(
        0.0,
        ge=0,
        le=1000,
        description="root mean square fluctuation of the accelerating voltage, 1e-6 of it; adds to "
        "the focal spread of chromatic_aberration_mm in quadrature",
    )
    lens_current_ripple_ppm: float = Field(
        0.0,
        ge=0,
        le=1000,
        description="root mean square fluctuation of the lens current, 1e-6 of it; adds to the "
        "focal spread of chromatic_aberration_mm in quadrature",
    )

    @field_validator("aberrations")
    @classmethod
    def _aberrations_have_ranges(cls, values: dict[str, float]) -> dict[str, float]:
        for name, value in values.items():
            problem = aberration_problem(name, value)
            if problem:
                raise ValueError(problem)
        return values

    @model_validator(mode="before")
    @classmethod
    def _of_preset(cls, values: object) -> object:
        if isinstance(values, dict):
            return microscope_values(values)
        return values

    @model_validator(mode="after")
    def _has_one_focal_spread(self) -> "Microscope":
        ripples = self.high_tension_ripple_ppm or self.lens_current_ripple_ppm
        fluctuates = self.energy_spread_ev is not None or ripples > 0
        if (self.chromatic_aberration_mm is not None) != fluctuates:
            raise ValueError(
                "chromatic_aberration_mm goes together with energy_spread_ev, "
                "high_tension_ripple_ppm or lens_current_ripple_ppm"
            )
        if fluctuates and self.focal_spread_angstrom:
            raise ValueError(
                "give focal_spread_angstrom, or chromatic_aberration_mm and energy_spread_ev "
                "(or ripples), not both"
            )
        return self


class Scan(Section):
    """The probe positions: a raster or a file. A raster without a step fills the periodic cell
    evenly.
    """

    shape: Shape | None = Field(None, description="number of positions (y, x); default (16, 16)")
    step_angstrom: Steps | None = Field(
        None, description="distance (y, x) between positions, Å; none: the raster fills the cell"
    )
    origin_angstrom: tuple[Position, Position] | Literal["random"] = Field(
        (0.0, 0.0),
        description="position (y, x) of the first probe, Å; 'random' draws it for each sample from "
        "the sample's seed",
    )
    file: Path | None = Field(
        None,
        description=".npy, .csv or .txt file with two columns, (y, x) in Å, in place of shape, "
        "step and origin",
    )

    @model_validator(mode="before")
    @classmethod
    def _default_shape(cls, values: object) -> object:
        if isinstance(values, dict) and values.get("file") is None and values.get("shape") is None:
            return values | {"shape": (16, 16)}
        return values

    @model_validator(mode="after")
    def _is_raster_or_file(self) -> "Scan":
        if self.file and (self.shape or self.step_angstrom or self.origin_angstrom != (0.0, 0.0)):
            raise ValueError("give a file, or shape, step_angstrom and origin_angstrom, not both")
        return self


class Detector(Section):
    """The camera. The intensity that falls on its pixels is conserved.

    Pixels are squares of `pixel_mrad`, or of `binning` × `binning` pixels of the simulation's
    reciprocal grid. Their number is `shape`, or as many as reach `max_angle_mrad`. With neither,
    the pixels reach the band limit, where the patterns end.
    """

    preset: Literal["empad", "empad-g2", "merlin", "merlin-quad", "arina"] | None = Field(
        None,
        exclude=True,
        description="a detector, whose number of pixels is taken; with max_angle_mrad, its longer "
        "side reaches that",
    )
    shape: Shape | None = Field(
        None, description="number of pixels (y, x), a crop about the centre; or give max_angle_mrad"
    )
    pixel_mrad: float | None = Field(
        None,
        ge=1e-3,
        le=1000,
        description="side of the square pixels, mrad; the optic axis is in the centre of the "
        "detector",
    )
    binning: Extent = Field(
        1, description="pixels of the reciprocal grid per detector pixel, along each axis"
    )
    max_angle_mrad: float | None = Field(
        None, gt=0, le=1000, description="largest angle along y and x, mrad; or give shape"
    )
    point_spread_pixels: float = Field(
        0.0,
        ge=0,
        le=1000,
        description="root mean square width of the Gaussian point spread along one axis, pixels",
    )
    electrons_per_pattern: Dose | None = Field(
        None,
        description="dose for Poisson noise; counts are divided by it, so that patterns stay "
        "fractions of the beam",
    )
    dose_electrons_per_angstrom2: Dose | None = Field(
        None, description="dose for Poisson noise, electrons per Å² of the scan's steps"
    )
    response: Response | None = Field(
        None, description="modulation transfer, counting loss and saturation; none: ideal"
    )

    @model_validator(mode="before")
    @classmethod
    def _of_preset(cls, values: object) -> object:
        if isinstance(values, dict):
            return detector_values(values)
        return values

    @model_validator(mode="after")
    def _has_no_contradiction(self) -> "Detector":
        if self.pixel_mrad is not None and self.binning != 1:
            raise ValueError("give at most one of pixel_mrad and binning")
        if self.shape is not None and self.max_angle_mrad is not None:
            raise ValueError("give at most one of shape and max_angle_mrad")
        doses = (self.electrons_per_pattern, self.dose_electrons_per_angstrom2)
        if None not in doses:
            raise ValueError(
                "give at most one of electrons_per_pattern and dose_electrons_per_angstrom2"
            )
        return self


class Target(Section):
    """The image that a network learns: the projected electron density, e/Å², or the projected
    potential, V·Å.
    """

    kind: Literal["density", "potential", "standardised_potential"] = Field(
        "density",
        description="'density', 'potential', or 'standardised_potential': the potential less its "
        "mean, over its standard deviation. A dataset holds density and potential, so "
        "that all kinds can be learnt from it",
    )
    at: Literal["grid", "scan"] = Field(
        "grid",
        description="where the target is sampled: on the simulation's grid or at the probe "
        "positions",
    )
    max_q_per_angstrom: float | None = Field(
        None,
        ge=1e-3,
        le=100,
        description="frequency at which the cosine window reaches zero, 1/Å; default "
        "2·semiangle/wavelength, of parallel illumination the simulation's band limit",
    )
    depth_bins: DepthBins = Field(
        1,
        description="number of equal bins along the beam over the specimen's thickness; of more "
        "than one, samples hold the density of each bin too, which add up to the "
        "projected density",
    )
