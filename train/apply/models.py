"""Trained networks: finds them by name or path and loads what they were trained for.

A path is one of:

- a run directory, with `config.yaml` and `checkpoints/`;
- one of its checkpoints;
- the folder of a model: `config.yaml` and one file of weights (.npz, in the format of a
  checkpoint), optionally with `calibration.json` and `transfer.json`
  (`train.tasks.density.trust.consistency`).

A name is that of a model that comes with the package, in `train/models/`.
"""

import difflib
import os
import warnings
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from fcdensenet.config import NetworkConfig
from namsa.base.digested_json import check_digest, has_digest
from namsa.base.errors import InputError
from namsa.base.folders import finish_switch
from namsa.base.json_files import read_json
from namsa.base.text import shorten
from namsa.physics.optics import probe_limit

from ..experiment import continuation
from ..experiment.conditions import Conditions
from ..experiment.experiment import Experiment, load
from ..networks.unet3d import UNet3DConfig
from ..optimization import checkpoint
from ..optimization.origin import origin_of
from ..program import PROGRAM
from ..reports.calibration_results import CALIBRATE_AGAIN
from ..tasks.scan_command import commands_of
from .digests import DIGESTS, MEASURED_FILES, check_digests

if TYPE_CHECKING:
    from keras import Model as KerasModel

MODELS = Path(__file__).parents[1] / "models"
CALIBRATION = "calibration.json"
LARGEST_FACTOR = 1e6  # that a calibration may hold
OTHER_CONFIGURATION = (
    "its config.yaml is not that of its weights: take the file again from where it is intact, or "
    "undo the changes"
)


@dataclass(frozen=True)
class ModelCalibration:
    """Measurements of `namsa-train calibrate` that reconstruction uses."""

    # Factor from the standard deviation of the network's predictions to their error. `None` if it
    # was not measured.
    uncertainty_factor: float | None = None
    # The multiple of the uncertainty within which 95.45 % of the errors lie. `None` if it was not
    # measured.
    two_sigma_factor: float | None = None
    # Weight of the variance that the network predicts, beside that between its predictions. `None`
    # stands for 1.
    predicted_weight: float | None = None
    # Fraction of the beam in the mean training pattern. `None` if it was not measured.
    transmitted_fraction: float | None = None


@dataclass(frozen=True)
class Model:
    """A trained network.

    Attributes:
        name: Name of the model's folder.
        folder: The model's folder.
        weights: File with the network's variables.
        experiment: The configuration that the network was trained with.
        conditions: What the training data were, and so what the network's input must be.
        calibration: What was measured about the network.
    """

    name: str
    folder: Path
    weights: Path
    experiment: Experiment
    conditions: Conditions
    calibration: ModelCalibration

    @property
    def network(self) -> NetworkConfig | UNet3DConfig:
        """The network of a density.

        Raises:
            InputError: If the network is for another task or target.
        """
        network = self.experiment.network
        if self.experiment.training.task != "density" or not isinstance(
            network, NetworkConfig | UNet3DConfig
        ):
            raise self.wrong_task("density")
        if (kind := self.experiment.target.kind) != "density":
            raise InputError(
                f"{self.folder} is a network for target.kind {kind}, which is trained and "
                "evaluated: this command is for networks of a density"
            )
        return network

    def keras(self) -> "KerasModel":
        """Builds the network in Keras, with its weights, for code that knows Keras alone.

        The inputs are the channels that training.inputs makes of patterns. Outputs are in the units
        of the targets: a density is in units of training.inputs.density_scale_e_per_angstrom2.
        Keras' session is cleared, so that variables have the names of the file.

        Returns:
            A `keras.Model`, which has not been compiled.

        Raises:
            InputError: If the weights cannot be read or do not fit the model's configuration.

        Example:
            >>> import namsa_train
            >>> network = namsa_train.load_model("200kv-20mrad-fast").keras()
            >>> network.name
            'fcdensenet'
        """
        from .weights import build_loaded

        return build_loaded(self, self.experiment.network)

    def wrong_task(self, asked: str) -> InputError:
        """Returns the error that the network is for another task than the one asked for."""
        task = self.experiment.training.task
        message = (
            f"{self.folder} is a network for training.task {task}, and "
            f"{commands_of(asked)[0].asked} asked for: give another --checkpoint"
        )
        commands = commands_of(task)
        if commands:
            message += f", or use {PROGRAM} {commands[0].name}"
        return InputError(message)

    @property
    def unchecked(self) -> bool:
        """Whether it is the folder of an earlier version, whose files have no digests."""
        return not (self.folder / "checkpoints").is_dir() and not (self.folder / DIGESTS).is_file()

    @property
    def undigested(self) -> list[str]:
        """The names of a run's measured files, of an earlier version, that have no digest."""
        if self.unchecked or (self.folder / DIGESTS).is_file():
            return []
        names = []
        for name in MEASURED_FILES:
            path = self.folder / name
            if path.suffix == ".json" and path.is_file() and not has_digest(read_json(path)):
                names.append(name)
        return names

    @property
    def max_q(self) -> float:
        """End of the window of the network's densities, 1/Å: the configured limit, or that of
        the probe.
        """
        conditions = self.conditions
        of_probe = probe_limit(conditions.energy_ev, conditions.semiangle_mrad)
        return self.experiment.target.max_q_per_angstrom or of_probe

    @property
    def predicts_its_error(self) -> bool:
        """Whether the network was trained with a likelihood, and so predicts the scale of its own
        error.
        """
        return self.experiment.training.loss.likelihood != "none"


def load_model(name: str | Path) -> Model:
    """Finds a trained network and loads its configuration and calibration. The weights are read
    when they are used.

    Args:
        name: Name of a model that comes with the package, or path of a run directory, checkpoint or
            model folder.

    Raises:
        InputError: If there is no such model, if its folder has no configuration or no weights, if
            its files are not those that were packed, or if a run's configuration is not that of
            its weights.

    Example:
        >>> import namsa_train
        >>> model = namsa_train.load_model("200kv-20mrad-fast")
        >>> model.max_q
        1.25
    """
    path = _find(name)
    folder = _folder_of(path)
    finish_switch(folder)
    weights = _newest_weights(path) if path.is_dir() else path
    if not (folder / "config.yaml").is_file():
        raise InputError(
            f"{folder} has no config.yaml, which says what the network was trained for"
        )
    check_digests(folder)
    experiment = load(folder / "config.yaml")
    _check_configuration(experiment, folder, weights)
    return Model(
        folder.name,
        folder,
        weights,
        experiment,
        experiment.conditions(),
        _calibration(folder, weights),
    )


def _check_configuration(experiment: Experiment, folder: Path, weights: Path) -> None:
    """Compares a run's configuration with that which made its weights, as a checkpoint states it.

    A packed network has digests of its files instead. Weights that cannot be read are reported
    when they are used.

    Raises:
        DifferentError: If a key differs that decides what was learnt.
    """
    if (folder / DIGESTS).is_file():
        return
    try:
        origin = origin_of(checkpoint.read_header(weights))
    except checkpoint.BROKEN:
        return
    if origin is not None:
        differences = continuation.compare(origin.identity, experiment, None)
        continuation.check(folder, differences, OTHER_CONFIGURATION)


def shipped() -> list[Model]:
    """Returns the models that come with the package, in the order of their names."""
    return [load_model(path.parent.name) for path in sorted(MODELS.glob("*/config.yaml"))]


def _find(name: str | Path) -> Path:
    """Returns the path of a model by its path or name. Raises InputError if there is none."""
    for path in (Path(name), MODELS / name):
        if os.path.exists(path):
            return path
    models = shipped()
    known = (f"{model.name} for {model.experiment.training.task}" for model in models)
    near = difflib.get_close_matches(str(name), [model.name for model in models], n=1)
    question = f"; did you mean {near[0]}?" if near else ""
    raise InputError(
        f"{shorten(name)} is neither a run directory, nor a checkpoint, nor a model that comes "
        f"with the package ({', '.join(known) or 'none'}){question}"
    )


def _folder_of(path: Path) -> Path:
    """Returns the folder of a model, by itself, its file of weights, or one of its checkpoints."""
    if path.is_dir():
        return path
    if path.parent.name == "checkpoints":
        return path.parent.parent
    return path.parent


def _newest_weights(folder: Path) -> Path:
    """Returns the newest checkpoint of a run, or the file of weights of a model's folder."""
    weights = sorted((folder / "checkpoints").glob("step-*.npz"))
    packed = folder / "weights.npz"
    if not weights and packed.is_file():
        return packed
    if not weights:
        weights = [path for path in sorted(folder.glob("*.npz")) if _is_checkpoint(path)]
    if not weights:
        raise InputError(
            f"{folder} has neither checkpoints/step-*.npz nor a file of weights (.npz)"
        )
    return weights[-1]


def _is_checkpoint(path: Path) -> bool:
    """Returns whether a file is in the format of a checkpoint, as other arrays of a run are not."""
    try:
        checkpoint.read_header(path)
    except checkpoint.BROKEN:
        return False
    return True


def _calibration(folder: Path, weights: Path) -> ModelCalibration:
    """Reads a model's `calibration.json`, if it has one. Warns if it is of other weights."""
    path = folder / CALIBRATION
    values = read_json(path) if path.is_file() else {}
    if not isinstance(values, dict):
        raise InputError(f"{path} holds {shorten(values)}, no JSON object: {CALIBRATE_AGAIN}")
    check_digest(values, str(path), CALIBRATE_AGAIN)
    step = values.get("step")
    if (
        isinstance(step, int)
        and weights.name.startswith("step-")
        and weights.stem != f"step-{step:09d}"
    ):
        warnings.warn(
            f"{path} is of step {step}, and the weights are {weights.name}: run {PROGRAM} "
            "calibrate again",
            stacklevel=3,
        )
    measured = {field.name: values.get(field.name) for field in fields(ModelCalibration)}
    for name, value in measured.items():
        if value is not None and not (
            isinstance(value, int | float) and 0 < value <= LARGEST_FACTOR
        ):
            raise InputError(
                f"{path}: {name} is {shorten(value)}, not a positive number up to "
                f"{LARGEST_FACTOR:g}: {CALIBRATE_AGAIN}"
            )
    return ModelCalibration(**measured)
