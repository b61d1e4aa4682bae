"""The parts of a model folder that do not depend on the task: the folder itself, config.yaml and weights.npz."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.config.loading import dump_yaml
from namsa.files import open_atomic, write_text_atomic

from ..experiment.data import Data
from ..experiment.experiment import Experiment
from ..optimization import checkpoint
from ..reports.results import WeightsFile
from .models import Model

HARM = 0.01  # of the network's error: accepted change of its answers by rounding the weights
SAMPLES = 48  # held-out samples on which this is measured
DTYPES = ("float16", "float32")  # of kernels, in the order in which they are tried


def write_config(experiment: Experiment, folder: Path) -> None:
    """Writes config.yaml, without the place of the samples and the limit of their simulation time."""
    training = experiment.training.model_copy(update={"simulate_seconds": None})
    shipped = experiment.model_copy(update={"data": Data(), "training": training})
    write_text_atomic(folder / "config.yaml", dump_yaml(shipped))


@dataclass(frozen=True)
class NetworkVariables:
    """The variables of a network without those of its optimizer."""

    facts: dict[str, Any]  # of the checkpoint: step, epoch and network
    names: Sequence[str]  # names of the variables
    arrays: Sequence[npt.NDArray[Any]]  # their values, float32

    @classmethod
    def of(cls, model: Model, network: Any) -> "NetworkVariables":
        """Returns the variables in a model's weights that its Keras network has."""
        header, arrays = checkpoint.read(model.weights)
        own = {variable.path for variable in network.variables}
        kept = [(name, array) for name, array in zip(header["variables"], arrays, strict=True) if name in own]
        facts = {key: header[key] for key in ("step", "epoch", "network")}
        return cls(facts, [name for name, _ in kept], [array for _, array in kept])

    def fit(self, dtype: str) -> bool:
        """Whether no kernel overflows when it is rounded."""
        with np.errstate(over="ignore"):
            return all(np.isfinite(array.astype(dtype)).all() for array in self.arrays if array.ndim > 1)

    def write(self, path: Path, dtype: str) -> WeightsFile:
        """Writes the variables, kernels in another type, and returns facts about the file."""
        with open_atomic(path) as file, np.errstate(over="ignore"):
            rounded = [array.astype(dtype) if array.ndim > 1 else array for array in self.arrays]
            checkpoint.write(file, self.facts, self.names, rounded, compress=True)
        return {
            "dtype": dtype,
            "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "digest": checkpoint.read_header(path)["digest"],
        }
