"""Section of a configuration with the numerical settings of the simulation."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from namsa.config.bounds import (
    DEFAULT_ACCURACY,
    LARGEST_INTERPOLATION,
    RANGES,
    Shape,
    SliceThickness,
)
from namsa.config.loading import Section

PropagatorName = Literal["paraxial", "exact"]


class Simulation(Section):
    """The numerical settings of the multislice simulation."""

    accuracy: float = Field(
        DEFAULT_ACCURACY,
        ge=RANGES["accuracy"][0],
        le=RANGES["accuracy"][1],
        description="relative error of all patterns within the detector, or within 100 mrad "
        "without one, that 'auto' chooses pixels, slices and thermal configurations "
        "for, and by which given ones are judged; of any ring ten times as much",
    )
    grid_shape: Shape | None = Field(
        None, description="number of pixels (y, x); or give sampling_angstrom"
    )
    sampling_angstrom: Annotated[float, Field(ge=1e-3, le=10)] | Literal["auto"] | None = Field(
        None,
        description="largest pixel, Å, or 'auto': for each specimen as accuracy needs, which is "
        "meant without grid_shape, too; the number of pixels is rounded up to a fast "
        "transform size",
    )
    slice_thickness_angstrom: SliceThickness | Literal["auto"] = Field(
        2.0,
        description="largest slice thickness, Å, or 'auto': slices begin at the layers of atoms, "
        "which is meant with sampling_angstrom 'auto', too",
    )
    projection: Literal["infinite", "finite"] = Field(
        "infinite",
        description="'infinite' puts an atom's whole potential into one slice; 'finite' divides it "
        "among the slices that it extends over (slower)",
    )
    propagator: PropagatorName = Field(
        "paraxial",
        description="propagation between slices: 'paraxial' is Fresnel's, as other programs have "
        "it; 'exact' holds at any angle, at the same cost",
    )
    form_factors: Literal["lobato", "kirkland"] = Field(
        "lobato", description="table of form factors: Lobato and Van Dyck (2014) or Kirkland (2010)"
    )
    precision: Literal["float32", "float64"] = Field(
        "float32", description="precision of real numbers; 'float64' is for validation"
    )
    backend: Literal["auto", "cpu", "cupy"] = Field("auto", description="where the simulation runs")
    engine: Literal["auto", "plain", "fused"] = Field(
        "auto",
        description="implementation of multislice: array operations ('plain') or compiled "
        "('fused')",
    )
    method: Literal["auto", "multislice", "prism", "scatter"] = Field(
        "auto",
        description="multislice for every probe, or the exact PRISM scattering matrix; 'auto': the "
        "faster one; 'scatter': one scattering matrix per specimen, from which all its "
        "thicknesses and microscopes are made",
    )

    interpolation: int = Field(
        1,
        ge=1,
        le=LARGEST_INTERPOLATION,
        description="PRISM with every n-th plane wave along each axis, whose exit waves are cut to "
        "1/n of the cell's sides about the probe: n² times fewer waves, and "
        "approximate; 1 is exact",
    )

    @model_validator(mode="before")
    @classmethod
    def _defaults_are_automatic(cls, values: object) -> object:
        if isinstance(values, dict) and values.get("grid_shape") is None:
            if values.get("sampling_angstrom") is None:
                values = values | {"sampling_angstrom": "auto"}
            # the default is that of data that were made before
            if values["sampling_angstrom"] == "auto":
                values = {"slice_thickness_angstrom": "auto"} | values
        return values

    @model_validator(mode="after")
    def _has_one_grid(self) -> "Simulation":
        if self.grid_shape is not None and self.sampling_angstrom is not None:
            raise ValueError("give at most one of grid_shape and sampling_angstrom")
        return self

    @property
    def follows_layers(self) -> bool:
        """Whether slices begin at the layers of atoms."""
        return self.slice_thickness_angstrom == "auto"

    @property
    def divides_atoms(self) -> bool:
        """Whether the slices that are chosen are thinner than atoms."""
        return self.follows_layers and self.projection == "finite"
