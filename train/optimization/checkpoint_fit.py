"""Checks whether a checkpoint is of the network and the variables of a job."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from namsa.base.errors import InputError

from ..networks import Network

Header = dict[str, Any]  # facts of a checkpoint, JSON values by name

if TYPE_CHECKING:  # headers are read without Keras
    import keras


class VariableType(NamedTuple):
    """Properties that a variable of a checkpoint and one of a job must have in common."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}{list(self.shape)}"


def check_fits(
    path: Path,
    header: Header,
    arrays: Sequence[np.ndarray],
    variables: Sequence["keras.Variable"],
    network: Network,
) -> None:
    """Raises InputError if a checkpoint is not of `network` and `variables`."""
    remedy = "use another --run-dir, or the configuration this run was started with"
    for key, configured in network.model_dump(mode="json").items():
        # of a key that the network of an older version has not
        default = type(network).model_fields[key].default
        stored_value = header["network"].get(key, default)
        if stored_value != configured:
            raise InputError(
                f"{path} is of a network with {key} {stored_value}, the configuration says "
                f"{configured}: {remedy}"
            )
    stored_variables = []
    for name, array in zip(header["variables"], arrays, strict=False):
        stored_variables.append(VariableType(name, array.shape, _type(array.dtype.name)))
    job_variables = []
    for variable in variables:
        shape = tuple(variable.shape)
        job_variables.append(VariableType(variable.path, shape, _type(variable.dtype)))
    for stored, expected in zip(stored_variables, job_variables, strict=False):
        if stored != expected:
            raise InputError(f"{path} holds {stored} where the job has {expected}: {remedy}")
    if len(stored_variables) != len(job_variables):
        raise InputError(
            f"{path} holds {len(stored_variables)} variables, the job has {len(job_variables)}: "
            f"{remedy}"
        )


def _type(name: str) -> str:
    """Returns the type of a variable's numbers: counters are int64 with TensorFlow and int32 with
    JAX.
    """
    return "int" if name in ("int32", "int64") else name
