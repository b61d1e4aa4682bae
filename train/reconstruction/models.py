"""A trained network by name or place, and what it was trained for.

A place is a run directory (config.yaml and checkpoints/), one of its checkpoints, or the folder of a model: config.yaml
and one file of weights (.npz, a checkpoint's format), and beside them, where there are any, `calibration.json` and
`transfer.json` (`train.reconstruction.trust`). A name is that of a model that comes with the package, in train/models/.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from namsa.errors import InputError
from namsa.physics.optics import wavelength_angstrom
from train.experiment.experiment import Experiment, load

MODELS = Path(__file__).parents[1] / "models"

Pair = tuple[float, float]


@dataclass(frozen=True)
class Model:
    """Where a network's weights are, the experiment that they are of, and what was measured about it.

    calibration: `uncertainty_factor`, by which the spread of predictions is multiplied to be their error, and
    `transmitted_fraction`, the part of the beam that the mean training pattern holds; either may be missing
    """

    name: str
    folder: Path
    weights: Path
    experiment: Experiment
    calibration: dict[str, Any]


def find(name: str) -> Model:
    """The model at the place or of the name `name`. Raises InputError, with a list of names, where there is none."""
    place = next((place for place in (Path(name), MODELS / name) if place.exists()), None)
    if place is None:
        shipped = ", ".join(sorted(path.parent.name for path in MODELS.glob("*/config.yaml"))) or "none"
        raise InputError(
            f"--checkpoint {name} is neither a run directory, nor a checkpoint, nor a model that comes with the "
            f"package ({shipped})"
        )
    folder = place if place.is_dir() else place.parent.parent if place.parent.name == "checkpoints" else place.parent
    weights = _newest(place) if place.is_dir() else place
    if not (folder / "config.yaml").is_file():
        raise InputError(f"{folder} has no config.yaml, which says what the network was trained for")
    calibration = folder / "calibration.json"
    measured = json.loads(calibration.read_text(encoding="utf-8")) if calibration.is_file() else {}
    return Model(folder.name, folder, weights, load(folder / "config.yaml"), measured)


def _newest(folder: Path) -> Path:
    found = sorted((folder / "checkpoints").glob("step-*.npz")) or sorted(folder.glob("*.npz"))
    weights = [path for path in found if path.name != "predictions.npz"]
    if not weights:
        raise InputError(f"{folder} has neither checkpoints/step-*.npz nor a file of weights (.npz)")
    return weights[-1]


@dataclass(frozen=True)
class Conditions:
    """What the training samples are of; pairs are (y, x).

    first_edge: the detector's first pixels' outer edges, in pixels from the optic axis
    """

    energy_ev: float
    semiangle_mrad: float
    scan_shape: tuple[int, int]
    scan_step_angstrom: Pair
    detector_shape: tuple[int, int]
    pixel_mrad: Pair
    first_edge: Pair
    symmetric: bool

    @property
    def reach_mrad(self) -> float:
        """The radius of the circle that the detector holds."""
        edges = zip(self.first_edge, self.detector_shape, self.pixel_mrad, strict=True)
        return min(min(-first, first + count) * pixel for first, count, pixel in edges)


def conditions(experiment: Experiment) -> Conditions:
    """What `experiment`'s samples are of.

    A cell is as large as the crystal needs: what depends on it (a scan that fills it, a detector without pixel_mrad)
    is given for the smallest, `specimen.lateral_angstrom`.
    """
    patterns, _ = experiment.sample_shapes()
    scan, detector = patterns[:2], patterns[2:]
    cell, microscope, camera = experiment.specimen.lateral_angstrom, experiment.microscope, experiment.detector
    step = experiment.scan.step_angstrom or (cell[0] / scan[0], cell[1] / scan[1])
    if camera and camera.pixel_mrad:
        pixel, edge = (camera.pixel_mrad, camera.pixel_mrad), (-detector[0] / 2, -detector[1] / 2)
    else:
        binning = camera.binning if camera else 1
        pitch = 1e3 * binning * wavelength_angstrom(microscope.energy_ev)
        pixel = (pitch / cell[0], pitch / cell[1])
        offset = (binning // 2 + 0.5) / binning
        edge = (-(detector[0] // 2) - offset, -(detector[1] // 2) - offset)
    round_lens = all(name.endswith("0") for name, value in microscope.aberrations.items() if value)
    varied = experiment.variation.given() if experiment.variation else {}
    tilted = any((*microscope.beam_tilt_mrad, *microscope.specimen_tilt_mrad)) or any("tilt" in name for name in varied)
    centred = all(-2 * first == count for first, count in zip(edge, detector, strict=True))
    return Conditions(
        microscope.energy_ev,
        microscope.semiangle_mrad,
        scan,
        step,
        detector,
        pixel,
        edge,
        symmetric=round_lens and not tilted and centred,
    )


def not_in_the_file(experiment: Experiment) -> str:
    """One line about what a network was trained for and no data file says."""
    thickness = experiment.specimen.thickness_angstrom
    electrons = dose(experiment)
    noise = f"at {electrons} electrons a pattern" if electrons else "without noise"
    others = {name: value for name, value in experiment.microscope.aberrations.items() if name != "C10" and value}
    lens = f", {others}" if others else ""
    return (
        f"not in the file, so not checked: trained for thickness {span(thickness)} Å, "
        f"defocus {span(defocus(experiment))} Å{lens}, {noise}"
    )


def defocus(experiment: Experiment) -> tuple[float, ...]:
    """Of the entrance, in Å, underfocus positive: the one value, or those between which it varies."""
    varied = experiment.variation.given() if experiment.variation else {}
    return varied.get("defocus_angstrom", (0.0 - experiment.microscope.aberrations.get("C10", 0.0),))


def dose(experiment: Experiment) -> str | None:
    """Electrons a pattern that a network was trained for, in words; None without noise."""
    given = experiment.training.inputs.dose_electrons_per_pattern
    if given is None:
        return None
    return span(given if isinstance(given, tuple) else (given,))


def span(values: Sequence[float]) -> str:
    """In words, from the least to the most."""
    least, most = min(values), max(values)
    return f"{least:g}" if least == most else f"{least:g} to {most:g}"
