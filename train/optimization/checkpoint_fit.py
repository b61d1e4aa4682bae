"""Checks whether a checkpoint is of the network and the variables of a job."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from namsa.base.errors import InputError

from ..networks import Network

Header = dict[str, Any]  # facts of a checkpoint, JSON values by name

if TYPE_CHECKING:  # headers are read without Keras
    import keras


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
        stored = header["network"].get(key, default)
        if stored != configured:
            raise InputError(
                f"{path} is of a network with {key} {stored}, the configuration says {configured}: "
                f"{remedy}"
            )
    kept_all = []
    for name, array in zip(header["variables"], arrays, strict=False):
        kept_all.append((name, array.shape, _type(array.dtype.name)))
    expected_all = []
    for variable in variables:
        expected_all.append((variable.path, tuple(variable.shape), _type(variable.dtype)))
    for kept, expected in zip(kept_all, expected_all, strict=False):
        if kept != expected:
            raise InputError(
                f"{path} holds {_describe(kept)} where the job has {_describe(expected)}: {remedy}"
            )
    if len(kept_all) != len(expected_all):
        raise InputError(
            f"{path} holds {len(kept_all)} variables, the job has {len(expected_all)}: {remedy}"
        )


def _type(name: str) -> str:
    """Returns the type of a variable's numbers: counters are int64 with TensorFlow and int32 with
    JAX.
    """
    return "int" if name in ("int32", "int64") else name


def _describe(variable: tuple[str, tuple[int, ...], str]) -> str:
    """Returns a variable's name, type and shape."""
    name, shape, dtype = variable
    return f"{name} {dtype}{list(shape)}"
