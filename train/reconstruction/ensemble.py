"""A network's answers to one window in several guises: turned, mirrored and with dropout.

Where the lens is round and the axes are alike, a mirrored window is as true as the window itself
(`train.experiment.symmetries`);
what comes back should differ by the mirror only, and how far it does not is a measure of what the network does not
know. So are its answers with parts of it left out (Gal & Ghahramani, Dropout as a Bayesian approximation, 2016).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fcdensenet.build import build
from namsa.errors import InputError
from train.experiment.conditions import conditions
from train.optimization import checkpoint
from train.reconstruction.models import Model

Array = npt.NDArray[Any]
Predict = Callable[[Array], Array]

PASSES = 8  # with dropout, where no symmetry makes an ensemble


def network(model: Model, image: tuple[int, int]) -> Any:
    """The Keras model with `model`'s weights for images of shape `image`. Raises InputError where they do not fit."""
    import keras

    config = model.experiment.network
    keras.utils.clear_session()  # variables are named alike whatever this process has built before
    keras.config.set_dtype_policy("float32")
    built = build(config.model_copy(update={"input_shape": (config.input_shape[0], *image)}), seed=0)
    try:
        header, arrays = checkpoint.read(model.weights)
    except checkpoint.BROKEN as error:
        raise InputError(f"cannot read the weights {model.weights}: {error}") from None
    stored = dict(zip(header["variables"], arrays, strict=True))
    for variable in built.variables:
        array = stored.get(variable.path)
        if array is None or array.shape != tuple(variable.shape):
            found = "nothing" if array is None else f"{list(array.shape)}"
            raise InputError(
                f"{model.weights} holds {found} for {variable.path} {list(variable.shape)}: it is not of config.yaml"
            )
        variable.assign(array)
    return built


def symmetries(symmetric: bool, scan: Sequence[int], detector: Sequence[int], steps: Sequence[float]) -> list[int]:
    """The symmetries under which a window stays a true one, by `train.experiment.symmetries`' numbers."""
    if not symmetric:
        return [0]
    alike = scan[0] == scan[1] and detector[0] == detector[1] and bool(np.isclose(steps[0], steps[1]))
    return list(range(8 if alike else 4))


def guises(
    model: Model, window: Sequence[int], step_angstrom: Sequence[float], passes: int | None
) -> tuple[list[int], int]:
    """In what guises a window of positions is shown: the symmetries, and how often each with dropout.

    passes: None for as many as it takes to have more than one answer
    """
    trained = conditions(model.experiment)
    symmetric = trained.symmetric and model.experiment.training.inputs.layout == "scan"
    chosen = symmetries(symmetric, window, trained.detector_shape, step_angstrom)
    if passes is None:
        passes = PASSES if len(chosen) == 1 and model.experiment.network.dropout else 0
    return chosen, passes


def mirrored(patterns: Array, symmetry: int) -> Array:
    """(n, sy, sx, dy, dx) under `symmetry`: mirrored in y, in x, then y and x exchanged."""
    if symmetry & 1:
        patterns = patterns[:, ::-1, :, ::-1, :]
    if symmetry & 2:
        patterns = patterns[:, :, ::-1, :, ::-1]
    return patterns.transpose(0, 2, 1, 4, 3) if symmetry & 4 else patterns


def restored(images: Array, symmetry: int) -> Array:
    """(n, sy, sx) of patterns that were `mirrored`, as they were."""
    if symmetry & 4:
        images = images.transpose(0, 2, 1)
    if symmetry & 1:
        images = images[:, ::-1]
    return images[:, :, ::-1] if symmetry & 2 else images


def members(built: Any, model: Model, chosen: Sequence[int], passes: int) -> Predict:
    """From windows (n, sy, sx, dy, dx), fractions of the beam, to densities (members, n, h, w) in e/Å².

    There is one member for each of the symmetries `chosen`, without dropout, or with `passes` that many for each with
    dropout. Raises InputError for passes where the network has no dropout.
    """
    import tensorflow as tf

    from train.input.batches import prepare

    inputs, network = model.experiment.training.inputs, model.experiment.network
    if passes and not network.dropout:
        raise InputError("--passes needs a network with dropout, and this one was trained without: leave it out")
    for layer in built.layers:  # what was learned about the mean and spread of activations stays
        if type(layer).__name__ == "BatchNormalization":
            layer.trainable = False
    settings = (inputs.power, inputs.gain, inputs.density_scale_e_per_angstrom2, inputs.layout)
    made = model.experiment.channels()

    @tf.function(reduce_retracing=True)
    def forward(patterns: Any) -> Any:
        ones, none = tf.ones((1, 1, 1, 1)), tf.zeros((1, *network.input_shape[1:]))  # fractions, and no target
        x, _ = prepare(patterns, ones, none, *settings, network.data_format, "float32", made)
        y = built(x, training=passes > 0)
        return inputs.density_scale_e_per_angstrom2 * (
            y[:, 0] if network.data_format == "channels_first" else y[..., 0]
        )

    def predict(patterns: Array) -> Array:
        answers = []
        for symmetry in chosen:
            turned = np.ascontiguousarray(mirrored(patterns, symmetry), np.float32)
            answers += [restored(forward(turned).numpy(), symmetry) for _ in range(max(1, passes))]
        return np.stack(answers)

    return predict
