"""The simulation's half of an experiment's configuration. Units are in the names; inside, lengths are Å.

An experiment's YAML has the sections of `SimulationConfig` and those of the floors above it
(`network`, `training`), which this package carries along unread.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, model_validator

from namsa.config.instrument import Detector, Microscope, Scan, Simulation, Specimen, Target
from namsa.config.loading import Section, config_hash, read_yaml, validate
from namsa.config.materials import Materials, Split
from namsa.config.variation import GridVariation, RandomVariation
from namsa.errors import InputError

FLOORS_ABOVE = ("network", "training")


class Data(Section):
    directory: Path = Field(Path("data"), description="the dataset's folder; node-local storage on a cluster")
    node_local: bool = Field(False, description="each node holds only a part: what its own ranks wrote, or were staged")
    stage_from: Path | None = Field(
        None,
        description="a dataset on a shared file system that is brought to directory, the node's own, before training; "
        "nothing is then simulated",
    )
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
    variation: RandomVariation | GridVariation | None = Field(
        None,
        discriminator="rule",
        description="a rule, random or grid, and what of the microscope differs between samples",
    )
    scan: Scan = Scan()
    simulation: Simulation
    detector: Detector | None = Field(None, description="none: the simulation's own reciprocal grid")
    target: Target = Target()
    data: Data = Data()

    @model_validator(mode="after")
    def _target_fits_scan(self) -> "SimulationConfig":
        if self.target.at == "scan" and self.scan.file:
            raise ValueError("target.at=scan needs a raster: give scan.shape in place of scan.file, or target.at=grid")
        return self

    @model_validator(mode="after")
    def _varied_is_not_set(self) -> "SimulationConfig":
        """A value is set or varies: one that is set and has no effect would be a trap."""
        varied = self.variation.given() if self.variation else {}
        doses = {"electrons_per_pattern", "dose_electrons_per_angstrom2"}
        set_too = [name for name in varied if name not in doses and any(getattr(self.microscope, name, ()))]
        if "defocus_angstrom" in varied and "C10" in self.microscope.aberrations:
            set_too.append("aberrations.C10")
        if set_too:
            raise ValueError(f"variation gives what microscope.{set_too[0]} gives too: leave one of them out")
        if doses & varied.keys():
            if not self.detector:
                raise ValueError("variation gives a dose, for which there must be a detector section")
            if self.detector.electrons_per_pattern or self.detector.dose_electrons_per_angstrom2:
                raise ValueError("variation gives a dose, and so does the detector: leave one of them out")
        return self

    def pattern_shape(self) -> tuple[int, int, int, int]:
        """Of a sample's patterns, (sy, sx, dy, dx). Raises ValueError where the configuration does not fix it."""
        detector = self.detector.shape if self.detector else self.simulation.grid_shape
        if detector is None:
            raise ValueError("training needs a fixed pattern shape: give detector or simulation.grid_shape")
        if self.scan.shape is None:
            raise ValueError("training needs a raster: give scan.shape in place of scan.file")
        return (*self.scan.shape, *detector)

    def samples_hash(self) -> str:
        """Changes where a sample of the same id would: not with the list of materials, nor with where data lies.

        Raises InputError where the scan's file cannot be read: its contents count, not its name.
        """
        specimen = self.specimen.model_copy(update={"zone_axes": (), "thickness_angstrom": ()})
        scan = self.scan.model_copy(update={"file": _digest(self.scan.file)}) if self.scan.file else self.scan
        given = [section for section in (self.detector, self.variation) if section]
        return config_hash(self.seed, specimen, self.microscope, scan, self.simulation, self.target, *given)


def _digest(path: Path) -> Path:
    try:
        return Path(hashlib.sha256(path.read_bytes()).hexdigest())
    except OSError as error:
        raise InputError(f"cannot read scan.file {path}: {error.strerror}") from None


def load(path: Path, overrides: Sequence[str] = ()) -> SimulationConfig:
    """An experiment's simulation sections; the sections of the floors above are left to them.

    Raises InputError that names every fault.
    """
    tree: dict[str, Any] = read_yaml(path, overrides)
    return validate(SimulationConfig, {k: v for k, v in tree.items() if k not in FLOORS_ABOVE}, str(path))
