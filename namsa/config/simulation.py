"""The configuration of a simulation. Units are in the names of the keys; lengths are in Å.

The YAML file of an experiment has the sections of `SimulationConfig` and sections that belong to
other packages (`network`, `training`, `stages`, `finish`, and `data.source`). This package ignores
the latter.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from namsa.base.files import read_bytes
from namsa.base.pixels import tiles_problem
from namsa.config.bounds import DEFAULT_ACCURACY, LARGEST_SEED, Extent
from namsa.config.instrument import Detector, Microscope, Scan, Target
from namsa.config.loading import Section, config_hash, read_yaml, validate
from namsa.config.materials import Materials, Split
from namsa.config.numerics import Simulation
from namsa.config.specimen import Specimen
from namsa.config.variation import (
    OF_SPECIMEN,
    GridVariation,
    RandomVariation,
    VariedRanges,
    has_direction,
)

LARGEST_SCAN_FILE_BYTES = 2**26  # a million positions as text take half of it
# Revision of the physics for three groups of samples: those whose pixels or slices the accuracy
# chooses, others whose atoms are displaced thermally, and others. Whoever changes the values that
# follow from the settings of a group raises its number, and with it the hashes of its samples, so
# that no dataset is continued with other physics (`tests/namsa/config/test_revision.py`).
# 2: displaced atoms stay at the face that they leave. 3: pixels and slices by columns that stand
# alone, tilts and accuracies below 1 %. Then, of all groups: the intensity of the aperture's edge
# falls linearly. Then, chosen: pixels of narrow probes, and slices of dense periodic layers. Then,
# divided (chosen slices that are thinner than atoms): smaller pixels and thinner slices.
REVISIONS = {"given": 2, "chosen": 6, "divided": 7, "displaced": 3}
# The revisions with which the settings of the groups came: their hashes do not contain these.
_FIRST_REVISIONS = {"given": 1, "chosen": 2, "divided": 2, "displaced": 1}
# Dots alone would name the folder above the run directories.
NAME_PATTERN = r"^[A-Za-z0-9._-]*[A-Za-z0-9_-][A-Za-z0-9._-]*$"
SECTIONS_OF_OTHER_PACKAGES = ("network", "training", "stages", "finish")


class Data(Section):
    """The dataset: where it is stored, and how."""

    moved_keys: ClassVar[dict[str, str]] = {
        "node_local": "write data.source={node_local: ...}",
        "stage_from": "write data.source={kind: staged, folder: ...}",
        "node_samples": "write data.source={kind: drawn, folder: ..., samples: ...}",
        "keep": "write data.source={kind: memory}, or leave it out for samples on the disk",
        "slabs_from": "write data.source={kind: slabs, file: ...}",
    }

    directory: Path = Field(
        Path("data"), description="the dataset's folder; on a cluster, storage of the node"
    )
    manifest_from: Path | None = Field(
        None,
        description="a folder with the manifest that `namsa dataset --manifest-only` has written "
        "for this configuration; `directory` takes it from there, and no rank builds "
        "it",
    )
    dtype: Literal["float16", "float32"] = Field(
        "float16", description="data type of the stored patterns"
    )
    tiles: tuple[Extent, Extent, Extent, Extent] | None = Field(
        None,
        description="number of tiles of a new sample's patterns along scan y, scan x, detector y "
        "and detector x. Tiles are stored one after the other, so that a rank of "
        "training.split reads its part alone; none: no tiles",
    )
    samples_per_commit: int = Field(1, ge=1, le=10**6, description="samples per write transaction")


class SimulationConfig(Section):
    """Everything that determines a sample's bits, and where the samples are stored."""

    name: Annotated[str, Field(pattern=NAME_PATTERN, max_length=200)] = Field(
        "experiment",
        description="name of the experiment and of its run directory: letters, digits, ., _ and -, "
        "not dots alone",
    )
    seed: int = Field(
        0, ge=0, le=LARGEST_SEED, description="seed of everything that is drawn at random"
    )
    materials: Materials = Materials()
    split: Split = Split()
    specimen: Specimen = Specimen()
    microscope: Microscope = Microscope()
    variation: RandomVariation | GridVariation | None = Field(
        None,
        discriminator="rule",
        description="settings of the microscope that differ between samples, by the rule 'random' "
        "or 'grid'",
    )
    scan: Scan = Scan()
    simulation: Simulation
    detector: Detector | None = Field(
        None, description="the camera; none: the simulation's own reciprocal grid"
    )
    target: Target = Target()
    data: Data = Data()

    @model_validator(mode="after")
    def _tiles_fit(self) -> "SimulationConfig":
        if self.data.tiles:
            problem = tiles_problem(self.pattern_shape(), self.data.tiles)
            if problem:
                raise ValueError(problem)
        return self

    @model_validator(mode="after")
    def _target_fits_scan(self) -> "SimulationConfig":
        if self.target.at == "scan" and self.scan.file:
            raise ValueError(
                "target.at=scan needs a raster: give scan.shape in place of scan.file, or "
                "target.at=grid"
            )
        return self

    @model_validator(mode="after")
    def _varied_settings_are_not_fixed_too(self) -> "SimulationConfig":
        """A setting is either fixed or varied: a fixed value without effect would mislead."""
        varied = self.varied_quantities()
        doses = {"electrons_per_pattern", "dose_electrons_per_angstrom2"}
        fixed_too = []
        for name in varied:
            fixed = None if name in doses else getattr(self.microscope, name, None)
            if fixed and fixed != (0.0, 0.0):
                fixed_too.append(name)
        for name in varied:
            coefficient = name.removesuffix("_angstrom")
            if name == "defocus_angstrom":
                coefficient = "C10"
            if coefficient in self.microscope.aberrations:
                fixed_too.append(f"aberrations.{coefficient}")
        if "focal_spread_angstrom" in varied and self.microscope.chromatic_aberration_mm:
            fixed_too.append("chromatic_aberration_mm")
        if fixed_too:
            raise ValueError(
                f"variation gives what microscope.{fixed_too[0]} gives too: leave one of them out"
            )
        if "rms_displacement_angstrom" in varied and not self.specimen.frozen_phonons:
            raise ValueError(
                "variation gives thermal displacements, for which there must be "
                "specimen.frozen_phonons"
            )
        if doses & varied.keys():
            if not self.detector:
                raise ValueError(
                    "variation gives a dose, for which there must be a detector section"
                )
            if self.detector.electrons_per_pattern or self.detector.dose_electrons_per_angstrom2:
                raise ValueError(
                    "variation gives a dose, and so does the detector: leave one of them out"
                )
        return self

    @model_validator(mode="after")
    def _samples_of_a_specimen_fit_the_method(self) -> "SimulationConfig":
        """One scattering serves the samples of a specimen, which may then have any thickness."""
        varied = self.varied_quantities()
        thicknesses = self.specimen.thickness_angstrom
        scatters = self.simulation.method == "scatter"
        if "thickness_angstrom" in varied:
            if not scatters:
                raise ValueError(
                    "variation gives thickness_angstrom, for which simulation.method must be "
                    "scatter"
                )
            if len(thicknesses) > 1 or max(varied["thickness_angstrom"]) > thicknesses[0]:
                raise ValueError(
                    "variation gives thickness_angstrom up to "
                    f"{max(varied['thickness_angstrom']):g} Å, so give specimen.thickness_angstrom "
                    f"that value or a larger one, alone (now {list(thicknesses)})"
                )
        if scatters and self.target.depth_bins > 1:
            raise ValueError(
                f"target.depth_bins is {self.target.depth_bins}, which simulation.method scatter "
                "does not have: set simulation.method to auto"
            )
        several = [name for name in OF_SPECIMEN if scatters and len(varied.get(name, ())) > 1]
        if several and isinstance(self.variation, GridVariation):
            raise ValueError(
                f"variation lists values of {several[0]}, of which a specimen has one if "
                "simulation.method is scatter: give one value, or a range with rule random"
            )
        return self

    def varied_quantities(self) -> VariedRanges:
        """Returns the ranges or values of the settings that vary between samples, by name; empty if
        none do.
        """
        if self.variation is None:
            return {}
        return self.variation.quantities()

    def drawn_in_all_directions(self) -> frozenset[str]:
        """Returns the varied settings with a direction, all of which are equally likely: none is
        preferred.
        """
        is_random = isinstance(self.variation, RandomVariation)
        return frozenset(
            name for name in self.varied_quantities() if is_random and has_direction(name)
        )

    def pattern_shape(self) -> tuple[int, int, int, int]:
        """Returns the shape (sy, sx, dy, dx) of a sample's patterns.

        Raises:
            ValueError: If the configuration does not determine it.
        """
        detector = self.detector.shape if self.detector else self.simulation.grid_shape
        if detector is None:
            raise ValueError(
                "training needs a fixed pattern shape: give detector or simulation.grid_shape"
            )
        if self.scan.shape is None:
            raise ValueError("training needs a raster: give scan.shape in place of scan.file")
        return (*self.scan.shape, *detector)

    def samples_hash(self) -> str:
        """Returns a hash that changes with what decides the values of a sample with a given id.

        It is `settings_hash`, and the revision of the physics once there was another. Last digits
        depend on the processor and on versions of libraries, too, which the provenance tells.

        Raises:
            InputError: As `settings_hash`.
        """
        settings = self.settings_hash()
        group = self._group_of_revision()
        revision = REVISIONS[group]
        if revision == _FIRST_REVISIONS[group]:
            return settings
        return hashlib.sha256(f"{settings} {revision}".encode()).hexdigest()[: len(settings)]

    def _group_of_revision(self) -> Literal["given", "chosen", "divided", "displaced"]:
        """Returns which of `REVISIONS` the samples' values depend on."""
        simulation = self.simulation
        if simulation.divides_atoms:
            return "divided"
        if "auto" in (simulation.sampling_angstrom, simulation.slice_thickness_angstrom):
            return "chosen"
        if self.specimen.frozen_phonons:
            return "displaced"
        return "given"

    def settings_hash(self) -> str:
        """Returns a hash of the settings that decide a sample, which lists of samples contain.

        It depends neither on the list of materials nor on where data are stored. Files count by
        their contents.

        Raises:
            InputError: If a file cannot be read.
        """
        orientations = {"zone_axes": (), "simplest_zone_axes": None, "thickness_angstrom": ()}
        if self.simulation.method == "scatter":  # the samples are cut from the thickest
            del orientations["thickness_angstrom"]
        specimen = self.specimen.model_copy(update=orientations)
        scan = self.scan
        if scan.file:
            scan = scan.model_copy(update={"file": _digest(scan.file, "scan.file")})
        detector = self.detector
        if detector and detector.response and detector.response.mtf_file:
            digest = _digest(detector.response.mtf_file, "detector.response.mtf_file")
            response = detector.response.model_copy(update={"mtf_file": digest})
            detector = detector.model_copy(update={"response": response})
        simulation = self.simulation
        phonons = specimen.frozen_phonons
        chooses_phonons = phonons is not None and phonons.configurations == "auto"
        # accuracy then only judges
        if simulation.sampling_angstrom != "auto" and not chooses_phonons:
            simulation = simulation.model_copy(update={"accuracy": DEFAULT_ACCURACY})
        optional = [section for section in (detector, self.variation) if section]
        # samples hold what all kinds are made of
        target = self.target.model_copy(update={"kind": "density"})
        return config_hash(
            self.seed, specimen, self.microscope, scan, simulation, target, *optional
        )


def load_config(path: Path | str, overrides: Sequence[str] = ()) -> SimulationConfig:
    """Loads the simulation's sections of an experiment. Sections of other packages are ignored.

    Args:
        path: The experiment's YAML file.
        overrides: Settings as `section.key=value`.

    Raises:
        InputError: If the file cannot be read or has faults. It names all of them.

    Example:
        >>> from pathlib import Path
        >>> size = Path("silicon.yaml").write_text("simulation: {sampling_angstrom: auto}")
        >>> config = namsa.load_config("silicon.yaml", ["microscope.energy_ev=80e3"])
        >>> config.microscope.energy_ev
        80000.0
    """
    tree: dict[str, object] = read_yaml(path, overrides)
    sections = dict(tree)
    for name in SECTIONS_OF_OTHER_PACKAGES:
        sections.pop(name, None)
    data = sections.get("data")
    if isinstance(data, dict):
        sections["data"] = {name: value for name, value in data.items() if name != "source"}
    return validate(SimulationConfig, sections, str(path))


def _digest(path: Path, key: str) -> Path:
    """The hash of the contents of a file, which a key of the configuration names, as a path."""
    contents = read_bytes(path, largest_bytes=LARGEST_SCAN_FILE_BYTES, kind=key)
    return Path(hashlib.sha256(contents).hexdigest())
