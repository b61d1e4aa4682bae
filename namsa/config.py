"""The simulation's half of an experiment's configuration. Units are in the names; inside, lengths are Å.

An experiment's YAML has the sections of `SimulationConfig` and those of the floors above it
(`network`, `training`), which this package carries along unread.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from namsa.settings import Section, config_hash, read_yaml, validate

Shape = tuple[PositiveInt, PositiveInt]
FLOORS_ABOVE = ("network", "training")


class Materials(Section):
    """Where crystals come from."""

    builtin: Literal["all"] | tuple[str, ...] = Field((), description="'all' or names that `namsa crystals` lists")
    cif: tuple[Path, ...] = Field((), description="CIF files, or folders of them, relative to the working directory")
    max_atomic_number: int = Field(103, ge=1, le=103, description="leave out crystals with heavier elements")
    limit: PositiveInt | None = Field(None, description="at most this many materials, chosen by hash")


class Split(Section):
    """Fractions of the materials, assigned by a hash of the reduced formula: no formula is in two splits."""

    train: float = Field(0.90, ge=0, le=1)
    dev: float = Field(0.05, ge=0, le=1)
    test: float = Field(0.05, ge=0, le=1)

    @model_validator(mode="after")
    def _sums_to_one(self) -> "Split":
        if abs(self.train + self.dev + self.test - 1) > 1e-9:
            raise ValueError(f"train + dev + test must be 1, not {self.train + self.dev + self.test:g}")
        return self


class FrozenPhonons(Section):
    """Thermal displacements in Einstein's model, drawn anew for each configuration."""

    rms_angstrom: float | dict[str, float] = Field(
        0.08, description="root mean square displacement along one axis; a number, or one for each element"
    )
    configurations: PositiveInt = Field(1, description="configurations whose patterns are averaged")


class Specimen(Section):
    """From a crystal to an orthogonal supercell; the dataset takes every zone axis and every thickness."""

    zone_axes: tuple[tuple[int, int, int], ...] = Field(((0, 0, 1),), min_length=1)
    thickness_angstrom: tuple[PositiveFloat, ...] = Field((20.0,), min_length=1)
    lateral_angstrom: tuple[PositiveFloat, PositiveFloat] = Field((16.0, 16.0), description="smallest extent (y, x)")
    max_strain: float = Field(0.02, ge=0, le=0.2, description="largest strain that orthogonalisation may put in")
    max_atoms: PositiveInt = Field(200_000, description="a larger supercell is an error")
    frozen_phonons: FrozenPhonons | None = None


class Microscope(Section):
    energy_ev: float = Field(200e3, ge=10e3, le=1e6, description="electron energy, 10 keV to 1 MeV, in eV")
    semiangle_mrad: float = Field(20.0, gt=0, le=200)
    aberrations: dict[str, float] = Field(
        default_factory=dict, description="Krivanek notation in Å and rad: C10 (= −defocus), C12, phi12, ... C50"
    )


class Scan(Section):
    """A grid of probe positions; with no step it fills the periodic cell evenly."""

    shape: Shape = (16, 16)
    step_angstrom: tuple[PositiveFloat, PositiveFloat] | None = Field(None, description="(y, x)")
    origin_angstrom: tuple[float, float] | Literal["random"] = Field(
        (0.0, 0.0), description="(y, x) of the first probe; 'random' draws it anew, seeded, for each sample"
    )


class Simulation(Section):
    grid_shape: Shape | None = Field(None, description="(y, x) pixels; or give sampling_angstrom")
    sampling_angstrom: PositiveFloat | None = Field(None, description="largest pixel; the grid grows to a fast size")
    slice_thickness_angstrom: PositiveFloat = 2.0
    form_factors: Literal["lobato", "kirkland"] = "lobato"
    precision: Literal["float32", "float64"] = "float32"
    backend: Literal["auto", "cpu", "cupy"] = "auto"

    @model_validator(mode="after")
    def _one_grid(self) -> "Simulation":
        if (self.grid_shape is None) == (self.sampling_angstrom is None):
            raise ValueError("give exactly one of grid_shape and sampling_angstrom")
        return self


class Detector(Section):
    """Square pixels centred on the optic axis; intensity is conserved where it lands on them."""

    shape: Shape
    pixel_mrad: PositiveFloat


class Target(Section):
    """The projected electron density a network learns, e/Å²."""

    at: Literal["grid", "scan"] = Field("grid", description="sampled on the simulation's grid or at probe positions")
    max_q_per_angstrom: PositiveFloat | None = Field(
        None, description="cosine window to zero at this frequency; default 2·semiangle/wavelength"
    )


class Data(Section):
    directory: Path = Field(Path("data"), description="the dataset's folder; node-local storage on a cluster")
    node_local: bool = Field(False, description="each node holds only the shards its own ranks wrote")
    dtype: Literal["float16", "float32"] = "float16"
    samples_per_commit: PositiveInt = 1


class SimulationConfig(Section):
    """Everything that decides a sample's bits, and where the samples go."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")] = "experiment"
    seed: int = Field(0, ge=0)
    materials: Materials = Materials()
    split: Split = Split()
    specimen: Specimen = Specimen()
    microscope: Microscope = Microscope()
    scan: Scan = Scan()
    simulation: Simulation
    detector: Detector | None = Field(None, description="none: the simulation's own reciprocal grid")
    target: Target = Target()
    data: Data = Data()

    def samples_hash(self) -> str:
        """Changes where a sample of the same id would: not with the list of materials, nor with where data lies."""
        specimen = self.specimen.model_copy(update={"zone_axes": (), "thickness_angstrom": ()})
        detector = (self.detector,) if self.detector else ()
        return config_hash(specimen, self.microscope, self.scan, self.simulation, self.target, *detector)


def load(path: Path, overrides: Sequence[str] = ()) -> SimulationConfig:
    """An experiment's simulation sections; the sections of the floors above are left to them.

    Raises InputError that names every fault.
    """
    tree: dict[str, Any] = read_yaml(path, overrides)
    return validate(SimulationConfig, {k: v for k, v in tree.items() if k not in FLOORS_ABOVE}, str(path))
