"""Sections of a configuration that describe a measurement: specimen, microscope, scan, simulation, detector, target."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from namsa.config.loading import Section

Shape = tuple[PositiveInt, PositiveInt]
PerElement = NonNegativeFloat | dict[str, NonNegativeFloat]


class FrozenPhonons(Section):
    """Thermal displacements in Einstein's model, drawn anew for each configuration."""

    rms_angstrom: PerElement | None = Field(
        None, description="root mean square displacement u along one axis, √U_iso; a number, or one for each element"
    )
    b_factor_angstrom2: PerElement | None = Field(None, description="or the Debye–Waller factor B = 8π²u²")
    configurations: PositiveInt = Field(1, description="configurations whose patterns are averaged")

    @model_validator(mode="after")
    def _one_displacement(self) -> "FrozenPhonons":
        if (self.rms_angstrom is None) == (self.b_factor_angstrom2 is None):
            raise ValueError("give exactly one of rms_angstrom and b_factor_angstrom2")
        return self

    def displacement_angstrom(self) -> float | dict[str, float]:
        """u, from whichever was given."""
        if self.rms_angstrom is not None:
            return self.rms_angstrom
        b = self.b_factor_angstrom2
        if isinstance(b, dict):
            return {symbol: float(np.sqrt(value / 8) / np.pi) for symbol, value in b.items()}
        return float(np.sqrt((b or 0.0) / 8) / np.pi)


class Specimen(Section):
    """From a crystal to an orthogonal supercell; the dataset takes every zone axis and every thickness."""

    zone_axes: tuple[tuple[int, int, int], ...] = Field(((0, 0, 1),), min_length=1)
    thickness_angstrom: tuple[PositiveFloat, ...] = Field((20.0,), min_length=1)
    lateral_angstrom: tuple[PositiveFloat, PositiveFloat] = Field((16.0, 16.0), description="smallest extent (y, x)")
    max_strain: float = Field(0.02, ge=0, le=0.2, description="largest strain that orthogonalisation may put in")
    max_atoms: PositiveInt = Field(200_000, description="a larger supercell is an error")
    frozen_phonons: FrozenPhonons | None = None


class Microscope(Section):
    elsewhere = {"defocus": "give aberrations.C10 in Å, which is −defocus (underfocus is C10 < 0)"}  # noqa: RUF012
    energy_ev: float = Field(200e3, ge=10e3, le=1e6, description="electron energy, 10 keV to 1 MeV, in eV")
    semiangle_mrad: float = Field(20.0, gt=0, le=200)
    aberrations: dict[str, float] = Field(
        default_factory=dict, description="Krivanek notation in Å and rad: C10 (= −defocus), C12, phi12, ... C56"
    )
    beam_tilt_mrad: tuple[float, float] = Field((0.0, 0.0), description="(y, x) of the cone's axis")
    specimen_tilt_mrad: tuple[float, float] = Field(
        (0.0, 0.0), description="(y, x), up to 87: atoms at depth z appear at y + z tan(tilt), by a tilted propagator"
    )
    source_size_angstrom: NonNegativeFloat = Field(0.0, description="FWHM of the Gaussian source at the specimen")
    source_points: PositiveInt | None = Field(
        None, description="probes along an axis that the source is made of; none: what a coherence right to 0.001 takes"
    )
    focal_spread_angstrom: NonNegativeFloat = Field(0.0, description="rms of the Gaussian spread of defocus")
    focal_points: PositiveInt | None = Field(None, description="as source_points, of the focal spread")
    chromatic_aberration_mm: PositiveFloat | None = Field(
        None, description="C_c; with energy_spread_ev it gives the focal spread"
    )
    energy_spread_ev: PositiveFloat | None = Field(None, description="FWHM")

    @model_validator(mode="after")
    def _one_focal_spread(self) -> "Microscope":
        if (self.chromatic_aberration_mm is None) != (self.energy_spread_ev is None):
            raise ValueError("chromatic_aberration_mm and energy_spread_ev go together")
        if self.energy_spread_ev and self.focal_spread_angstrom:
            raise ValueError("give focal_spread_angstrom, or chromatic_aberration_mm and energy_spread_ev, not both")
        return self


class Scan(Section):
    """A grid of probe positions, which with no step fills the periodic cell evenly; or a file of positions."""

    shape: Shape | None = Field(None, description="(y, x), default (16, 16)")
    step_angstrom: tuple[PositiveFloat, PositiveFloat] | None = Field(None, description="(y, x)")
    origin_angstrom: tuple[float, float] | Literal["random"] = Field(
        (0.0, 0.0), description="(y, x) of the first probe; 'random' draws it anew, seeded, for each sample"
    )
    file: Path | None = Field(
        None, description=".npy, .csv or .txt with two columns, (y, x) in Å, in place of shape, step and origin"
    )

    @model_validator(mode="before")
    @classmethod
    def _default_shape(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("file") is None and given.get("shape") is None:
            return given | {"shape": (16, 16)}
        return given

    @model_validator(mode="after")
    def _grid_or_file(self) -> "Scan":
        if self.file and (self.shape or self.step_angstrom or self.origin_angstrom != (0.0, 0.0)):
            raise ValueError("give a file, or shape, step_angstrom and origin_angstrom, not both")
        return self


class Simulation(Section):
    grid_shape: Shape | None = Field(None, description="(y, x) pixels; or give sampling_angstrom")
    sampling_angstrom: PositiveFloat | None = Field(None, description="largest pixel; the grid grows to a fast size")
    slice_thickness_angstrom: PositiveFloat = 2.0
    projection: Literal["infinite", "finite"] = Field(
        "infinite", description="'infinite': an atom is wholly in its slice; 'finite': as far as it lies in it (slower)"
    )
    form_factors: Literal["lobato", "kirkland"] = "lobato"
    precision: Literal["float32", "float64"] = "float32"
    backend: Literal["auto", "cpu", "cupy"] = "auto"
    engine: Literal["auto", "plain", "fused"] = "auto"
    method: Literal["auto", "multislice", "prism"] = "auto"

    @model_validator(mode="after")
    def _one_grid(self) -> "Simulation":
        if (self.grid_shape is None) == (self.sampling_angstrom is None):
            raise ValueError("give exactly one of grid_shape and sampling_angstrom")
        return self


class Detector(Section):
    """What the camera records. Intensity is conserved where it lands on the pixels.

    Pixels are squares of `pixel_mrad`, or `binning`² of the simulation's reciprocal grid; there are `shape` of them, or
    as many as reach `max_angle_mrad`, or, with neither, the band limit, where patterns end.
    """

    shape: Shape | None = Field(None, description="(y, x) pixels, a central crop; or give max_angle_mrad")
    pixel_mrad: PositiveFloat | None = Field(None, description="square pixels, the optic axis in the centre of all")
    binning: PositiveInt = Field(1, description="of the reciprocal grid's pixels, along each axis")
    max_angle_mrad: PositiveFloat | None = Field(None, description="along y and x; or give shape")
    point_spread_pixels: NonNegativeFloat = Field(0.0, description="root mean square of the Gaussian along one axis")
    electrons_per_pattern: PositiveFloat | None = Field(
        None, description="with Poisson noise: counts over this number, so that they stay fractions of the beam"
    )
    dose_electrons_per_angstrom2: PositiveFloat | None = Field(None, description="the same, by the scan's step")

    @model_validator(mode="after")
    def _one_way(self) -> "Detector":
        if self.pixel_mrad is not None and self.binning != 1:
            raise ValueError("give at most one of pixel_mrad and binning")
        for one, other in (("shape", "max_angle_mrad"), ("electrons_per_pattern", "dose_electrons_per_angstrom2")):
            if getattr(self, one) is not None and getattr(self, other) is not None:
                raise ValueError(f"give at most one of {one} and {other}")
        return self


class Target(Section):
    """The projected electron density a network learns, e/Å²."""

    at: Literal["grid", "scan"] = Field("grid", description="sampled on the simulation's grid or at probe positions")
    max_q_per_angstrom: PositiveFloat | None = Field(
        None, description="cosine window to zero at this frequency; default 2·semiangle/wavelength"
    )
