"""A trained network by name or place, and what it was trained for.

A place is a run directory (config.yaml and checkpoints/), one of its checkpoints, or the folder of a model: config.yaml
and one file of weights (.npz, a checkpoint's format), and beside them, where there are any, `calibration.json` and
`transfer.json` (`train.reconstruction.trust`). A name is that of a model that comes with the package, in train/models/.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from namsa.errors import InputError
from train.experiment.experiment import Experiment, load

MODELS = Path(__file__).parents[1] / "models"


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
