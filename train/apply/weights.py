"""The Keras network of a trained model, with its weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from namsa.base.errors import InputError

from ..networks import Network, build
from ..optimization import checkpoint

if TYPE_CHECKING:
    import keras


class StoredNetwork(Protocol):
    """The part of `train.apply.models.Model` that this module needs."""

    @property
    def weights(self) -> Path:
        """File with the network's variables."""
        ...

    @property
    def network(self) -> Network:
        """The network of a density."""
        ...


def load_network(
    model: StoredNetwork,
    image_shape: tuple[int, int],
    config: Network | None = None,
    digest: str | None = None,
) -> "keras.Model":
    """Builds a model's Keras network and loads its weights.

    Args:
        image_shape: Pixels of the network's image, (y, x).
        config: The model's network; `None` if it is that of a density.
        digest: As for `build_loaded`.

    Raises:
        InputError: If the weights cannot be read or do not fit the model's configuration.
    """
    config = config or model.network
    input_shape = (*config.input_shape[:-2], *image_shape)
    return build_loaded(model, config.model_copy(update={"input_shape": input_shape}), digest)


def build_loaded(model: StoredNetwork, config: Network, digest: str | None = None) -> "keras.Model":
    """Builds a configuration's Keras network with a model's weights.

    Args:
        digest: The digest that the weights must have, from `weights_digest`. `None` takes any.

    Raises:
        InputError: If the weights cannot be read, do not fit the configuration, are not finite, or
            have another digest.
    """
    import keras

    # otherwise the variables' names depend on what this process has built before
    keras.utils.clear_session()
    keras.config.set_dtype_policy("float32")
    network = build(config, seed=0)
    with _readable(model):
        header, arrays = checkpoint.read(model.weights)
    if digest is not None:
        check_unchanged(model, digest, header["digest"])
    stored = dict(zip(header["variables"], arrays, strict=True))
    for variable in network.variables:
        array = stored.get(variable.path)
        if array is None or array.shape != tuple(variable.shape):
            content = "nothing" if array is None else f"{list(array.shape)}"
            raise InputError(
                f"{model.weights} holds {content} for {variable.path} {list(variable.shape)}: it "
                "does not belong to config.yaml"
            )
        if not np.isfinite(array).all():
            count = int(np.sum(~np.isfinite(array)))
            raise InputError(
                f"{model.weights}: {count} of {array.size} values of {variable.path} are not "
                "finite, and so would be every answer: take an earlier checkpoint, or train again"
            )
        # converted by NumPy: JAX would compile a conversion for each shape
        variable.assign(array.astype(variable.dtype))
    return network


def weights_digest(model: StoredNetwork) -> str:
    """Returns the digest of a model's weights as their file states it, without reading them.

    `build_loaded` compares it with the weights.

    Raises:
        InputError: If the file cannot be read.
    """
    with _readable(model):
        return str(checkpoint.read_header(model.weights)["digest"])


def check_unchanged(model: StoredNetwork, before: str, now: str) -> None:
    """Raises InputError if the digest of a model's weights is not what it was before."""
    if now != before:
        raise InputError(
            f"{model.weights} was replaced while it was in use (its digest was {before} and is "
            f"{now}): run the same command again"
        )


@contextmanager
def _readable(model: StoredNetwork) -> Iterator[None]:
    """Raises InputError if the file of the weights is broken."""
    try:
        yield
    except checkpoint.BROKEN as error:
        raise InputError(f"cannot read the weights {model.weights}: {error}") from None
