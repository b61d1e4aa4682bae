"""Predictions of a network for several views of one window: mirrored, transposed, and with dropout.

Where the lens is round and both axes have the same sampling, a mirrored window is as valid an input as the window
itself (`train.experiment.symmetries`). The predictions should then differ by the same mirror only; their remaining
spread measures what the network does not know. Predictions with dropout serve the same purpose (Gal & Ghahramani,
Dropout as a Bayesian approximation, 2016).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fcdensenet.build import build
from namsa.errors import InputError
from train.optimization import checkpoint
from train.reconstruction.models import Model

Array = npt.NDArray[Any]

# From windows (n, sy, sx, dy, dx), fractions of the beam, to densities (members, n, h, w), e/Å².
Predict = Callable[[Array], Array]

PASSES = 8  # with dropout, where no symmetry makes an ensemble


class Views(NamedTuple):
    """The views of a window that a network predicts from.

    Attributes:
        symmetries: Numbers of the symmetries, as in `train.experiment.symmetries`.
        passes: Predictions with dropout per symmetry. 0 is one prediction without dropout.
    """

    symmetries: Sequence[int]
    passes: int

    @property
    def members(self) -> int:
        """Number of predictions per window."""
        return len(self.symmetries) * max(1, self.passes)


def load_network(model: Model, image_shape: tuple[int, int]) -> Any:
    """Builds a model's Keras network and loads its weights.

    Args:
        model: The trained network.
        image_shape: Height and width of the network's images.

    Raises:
        InputError: If the weights cannot be read or do not fit the model's configuration.
    """
    import keras

    config = model.experiment.network
    keras.utils.clear_session()  # otherwise the variables' names depend on what this process has built before
    keras.config.set_dtype_policy("float32")
    network = build(config.model_copy(update={"input_shape": (config.input_shape[0], *image_shape)}), seed=0)
    try:
        header, arrays = checkpoint.read(model.weights)
    except checkpoint.BROKEN as error:
        raise InputError(f"cannot read the weights {model.weights}: {error}") from None
    stored = dict(zip(header["variables"], arrays, strict=True))
    for variable in network.variables:
        array = stored.get(variable.path)
        if array is None or array.shape != tuple(variable.shape):
            content = "nothing" if array is None else f"{list(array.shape)}"
            raise InputError(
                f"{model.weights} holds {content} for {variable.path} {list(variable.shape)}: it does not belong to "
                "config.yaml"
            )
        variable.assign(array)
    return network


def valid_symmetries(
    symmetric: bool, scan_shape: Sequence[int], detector_shape: Sequence[int], step_angstrom: Sequence[float]
) -> list[int]:
    """Returns the numbers of the symmetries that map a window to a valid window.

    Args:
        symmetric: Whether the lens is round and the detector centred.
        scan_shape: Positions of the window, (y, x).
        detector_shape: Pixels of the detector, (y, x).
        step_angstrom: Scan step, (y, x), Å.
    """
    if not symmetric:
        return [0]
    transposable = (
        scan_shape[0] == scan_shape[1]
        and detector_shape[0] == detector_shape[1]
        and bool(np.isclose(step_angstrom[0], step_angstrom[1]))
    )
    return list(range(8 if transposable else 4))


def choose_views(model: Model, window: Sequence[int], step_angstrom: Sequence[float], passes: int | None) -> Views:
    """Returns the views in which a network is shown a window.

    Args:
        model: The trained network.
        window: Positions of the window, (y, x).
        step_angstrom: Scan step, (y, x), Å.
        passes: Predictions with dropout per symmetry. `None` takes none if there are several symmetries, otherwise
            `PASSES` if the network has dropout.
    """
    symmetric = model.conditions.symmetric and model.experiment.training.inputs.layout == "scan"
    symmetries = valid_symmetries(symmetric, window, model.conditions.detector_shape, step_angstrom)
    if passes is None:
        passes = PASSES if len(symmetries) == 1 and model.experiment.network.dropout else 0
    return Views(symmetries, passes)


def mirrored(patterns: Array, symmetry: int) -> Array:
    """Returns patterns `(n, sy, sx, dy, dx)` under a symmetry: mirrored in y, in x, then y and x exchanged."""
    if symmetry & 1:
        patterns = patterns[:, ::-1, :, ::-1, :]
    if symmetry & 2:
        patterns = patterns[:, :, ::-1, :, ::-1]
    return patterns.transpose(0, 2, 1, 4, 3) if symmetry & 4 else patterns


def restored(images: Array, symmetry: int) -> Array:
    """Returns the images `(n, sy, sx)` that were predicted from `mirrored` patterns in the original orientation."""
    if symmetry & 4:
        images = images.transpose(0, 2, 1)
    if symmetry & 1:
        images = images[:, ::-1]
    return images[:, :, ::-1] if symmetry & 2 else images


def ensemble_predictor(network: Any, model: Model, views: Views) -> Predict:
    """Returns the function that predicts densities from windows.

    Args:
        network: The Keras network of `load_network`.
        model: The trained network that it belongs to.
        views: The views of a window.

    Returns:
        Function from windows `(n, sy, sx, dy, dx)`, fractions of the beam, to densities `(members, n, h, w)`, e/Å².

    Raises:
        InputError: If there are passes with dropout and the network has no dropout.
    """
    import tensorflow as tf

    from train.input.normalisation import Batch, Normalisation, normalise_graph

    inputs, config = model.experiment.training.inputs, model.experiment.network
    if views.passes and not config.dropout:
        raise InputError("--passes needs a network with dropout, and this one was trained without: leave it out")
    for layer in network.layers:  # dropout needs training mode, but normalisation keeps its learned mean and spread
        if type(layer).__name__ == "BatchNormalization":
            layer.trainable = False
    settings = Normalisation.of(inputs, config.data_format, "float32")
    channels = model.experiment.channels()

    @tf.function(autograph=False, reduce_retracing=True)
    def forward(patterns: Any) -> Any:
        # Scale 1, since the patterns are fractions of the beam already; the target is not used.
        scale, target = tf.ones((1, 1, 1, 1)), tf.zeros((1, *config.input_shape[1:]))
        x, _ = normalise_graph(Batch(patterns, scale, target), settings, channels)
        y = network(x, training=views.passes > 0)
        return inputs.density_scale_e_per_angstrom2 * (y[:, 0] if config.data_format == "channels_first" else y[..., 0])

    def predict(patterns: Array) -> Array:
        predictions = []
        for symmetry in views.symmetries:
            view = np.ascontiguousarray(mirrored(patterns, symmetry), np.float32)
            predictions += [restored(forward(view).numpy(), symmetry) for _ in range(max(1, views.passes))]
        return np.stack(predictions)

    return predict
