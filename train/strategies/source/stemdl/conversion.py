"""A sample of namsa from one of the authors' files.

Patterns are averaged over squares to the detector's pixels, and potentials resized to the grid's.
Where the file states its beam, its numbers are the sample's. The rest is the configuration's.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.pixels import binned
from namsa.dataset.entry import Entry
from namsa.exchange.stemdl import StemdlSample
from namsa.exchange.stemdl_export import resized
from namsa.io.units import positive
from namsa.samples.sample import Sample

from ....experiment.conditions import Conditions
from ....experiment.experiment import Experiment
from ....experiment.inputs import BY_PATTERN
from ....reports.words import times

SAME = 1e-6  # relative difference of two numbers that count as one


class _Beam(NamedTuple):
    energy_ev: float
    semiangle_mrad: float


def as_sample(
    stored: StemdlSample, entry: Entry, experiment: Experiment, changes: set[str]
) -> Sample:
    """Returns a sample of namsa; adds to `changes` what was averaged or resized.

    Raises:
        InputError: If its shapes or numbers do not fit the configuration.
    """
    patterns = _detector_patterns(stored, entry, experiment, changes)
    potential = _grid_potential(stored, entry, experiment, changes)
    trained = experiment.conditions()
    beam = _stated_beam(stored.attributes, trained, changes)
    (sy, sx, _, _), image = experiment.sample_shapes()
    extent = experiment.specimen.lateral_angstrom
    provenance = {
        "id": entry.id,
        "material": entry.material,
        "formula": entry.formula,
        "space_group": entry.space_group,
        "source": f"stemdl {stored.name}",
        "split": entry.split,
        "config_hash": experiment.samples_hash(),
        "attributes": stored.attributes,
        "energy_ev": beam.energy_ev,
        "semiangle_mrad": beam.semiangle_mrad,
        "thickness_angstrom": entry.thickness_angstrom,
        "extent_angstrom": list(extent),
        "grid_shape": list(potential.shape),
        "detector_sampling_mrad": list(trained.detector_pixels.step),
        "detector_origin_mrad": list(trained.detector_pixels.origin),
        "density_sampling_angstrom": [side / n for side, n in zip(extent, image, strict=True)],
        "density_origin_angstrom": [0.0, 0.0],
        "scan_shape": [sy, sx],
        "positions_angstrom": _positions((sy, sx), trained).tolist(),
    }
    return Sample(patterns, np.zeros(image, np.float32), potential, provenance)


def _detector_patterns(
    stored: StemdlSample, entry: Entry, experiment: Experiment, changes: set[str]
) -> Array:
    """Returns the patterns on the detector's pixels, `(positions, dy, dx)`."""
    sy, sx, dy, dx = experiment.sample_shapes()[0]
    patterns = stored.patterns.reshape(-1, *stored.patterns.shape[-2:])
    if len(patterns) != sy * sx:
        raise InputError(
            f"{entry.id} has {len(patterns)} patterns, and scan.shape {[sy, sx]} has {sy * sx}: "
            "set it to their rows and columns"
        )
    side = patterns.shape[1] // dy
    if patterns.shape[1:] != (side * dy, side * dx):
        raise InputError(
            f"{entry.id} has patterns of {times(patterns.shape[1:])} pixels, which are no squares "
            f"of the detector's {times((dy, dx))}: set detector.shape, or simulation.grid_shape "
            "without a detector, to theirs"
        )
    if patterns.min() < 0 and experiment.training.inputs.normalisation not in BY_PATTERN:
        raise InputError(
            f"{entry.id} has negative numbers, as patterns have that are standardised already: set "
            "training.inputs.normalisation=standardised, or root_of_stored"
        )
    if side > 1:
        patterns = binned(patterns, side) / side**2
        changes.add(f"patterns averaged over {side}×{side} pixels")
    return patterns


def _grid_potential(
    stored: StemdlSample, entry: Entry, experiment: Experiment, changes: set[str]
) -> npt.NDArray[np.float32]:
    """Returns the potential on the grid's pixels, `(y, x)`; one pixel of zero if there is none."""
    if stored.potential is None:
        if experiment.training.task == "density":
            raise InputError(
                f"{entry.id} has no potential: training.task density cannot learn from it"
            )
        return np.zeros((1, 1), np.float32)
    image = experiment.sample_shapes()[1]
    potentials = stored.potential.reshape(-1, *stored.potential.shape[-2:]).astype(np.float32)
    if len(potentials) > 1:
        raise InputError(f"{entry.id} has {len(potentials)} potentials, and one is read")
    potential = potentials[0]
    if potential.shape != image and np.isfinite(potential).all():
        changes.add(f"potentials resized from {times(potential.shape)} to {times(image)}")
        potential = resized(potential, image)
    return potential


def _stated_beam(attributes: Mapping[str, object], trained: Conditions, changes: set[str]) -> _Beam:
    """Returns energy and semiangle as the file states them, otherwise the configuration's."""
    energy_ev = trained.energy_ev
    semiangle_mrad = trained.semiangle_mrad
    energy_kev = stated_number(attributes, "energy_keV", "energy")
    if energy_kev is not None and abs(1e3 * energy_kev / energy_ev - 1) > SAME:
        changes.add(
            f"energy of {energy_kev:g} keV as the file states it, the configuration's is "
            f"{energy_ev / 1e3:g}"
        )
        energy_ev = 1e3 * energy_kev
    semiangle_rad = stated_number(attributes, "semi_angles_rad")
    if semiangle_rad is not None and abs(1e3 * semiangle_rad / semiangle_mrad - 1) > SAME:
        changes.add(
            f"semiangle of {1e3 * semiangle_rad:g} mrad as the file states it, the configuration's "
            f"is {semiangle_mrad:g}"
        )
        semiangle_mrad = 1e3 * semiangle_rad
    return _Beam(energy_ev, semiangle_mrad)


def _positions(scan_shape: tuple[int, int], trained: Conditions) -> Array:
    """Returns the positions of a scan, row by row, `(positions, 2)` as (y, x), Å."""
    rows, columns = scan_shape
    indices = np.stack(np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"), -1)
    return indices.reshape(-1, 2) * np.array(trained.scan_step_angstrom)


def stated_number(attributes: Mapping[str, object], *names: str) -> float | None:
    """Returns the first of some attributes that is a positive number, or a list of equal ones."""
    for name in names:
        stored = attributes.get(name)
        numbers = stored if isinstance(stored, list) else [stored]
        values = [positive(value) for value in numbers]
        if values and values[0] is not None and len(set(values)) == 1:
            return values[0]
    return None
