"""Predictions of a network for several views of one window: mirrored, transposed, and with dropout.

Where the lens is round and both axes have the same sampling, a mirrored window is as valid an input
as the window itself (`train.experiment.symmetries`). The predictions should then differ by the same
mirror only; their remaining spread measures what the network does not know. Predictions with
dropout serve the same purpose (Gal & Ghahramani, Dropout as a Bayesian approximation, 2016).
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from namsa.base.arrays import Array, Tensor
from namsa.base.errors import InputError

from ....apply.models import Model
from ....execution import backend
from ....experiment.channels import Channels
from ..trust.familiarity import inner_layer
from .mirrors import ChannelMirror, restored

if TYPE_CHECKING:  # it is loaded where a network is
    import keras


class Prediction(NamedTuple):
    """The predictions of a network from n windows, in all their views."""

    density: Array  # `(members, n, h, w)`, e/Å²
    # Variance of the density's error, `(members, n, h, w)`, (e/Å²)². `None` if the network was
    # trained without a likelihood.
    variance: Array | None = None
    # Means and standard deviations over the window of the network's inner maps, in the mean over
    # the members, `(n, 2·maps)`. `None` if they were not asked for.
    maps: Array | None = None
    # Density of each bin along the beam, `(members, n, bins, h, w)`, e/Å², which add up to
    # `density`. `None` if the network was trained on projected densities.
    by_depth: Array | None = None

    def of_each(self) -> Iterator["Prediction"]:
        """Yields the prediction of each window.

        Density and variance are `(members, h, w)`, maps `(1, 2·maps)`, and those by depth
        `(members, bins, h, w)`.
        """
        for index in range(self.density.shape[1]):
            variance = None if self.variance is None else self.variance[:, index]
            maps = None if self.maps is None else self.maps[index, None]
            by_depth = None if self.by_depth is None else self.by_depth[:, index]
            yield Prediction(self.density[:, index], variance, maps, by_depth)


Predict = Callable[[Array], Prediction]  # from windows (n, sy, sx, dy, dx), fractions of the beam

IMAGES = 32  # that the network is given at once, where windows are few: several views of them
PASSES = 8  # with dropout, where no symmetry makes an ensemble
VARIANCES = {"laplace": 2.0, "gaussian": 1.0}  # of a distribution of scale 1


class Views(NamedTuple):
    """The views of a window that a network predicts from."""

    symmetries: Sequence[int]  # numbers of the symmetries, as in `train.experiment.symmetries`
    passes: int  # predictions with dropout per symmetry. 0 is one prediction without dropout

    @property
    def members(self) -> int:
        """Number of predictions per window."""
        return len(self.symmetries) * max(1, self.passes)


def valid_symmetries(
    symmetric: bool,
    scan_shape: Sequence[int],
    detector_shape: Sequence[int],
    step_angstrom: Sequence[float],
) -> list[int]:
    """Returns the numbers of symmetries that map a window to a valid one; positions and steps, Å,
    are (y, x).
    """
    if not symmetric:
        return [0]
    transposable = (
        scan_shape[0] == scan_shape[1]
        and detector_shape[0] == detector_shape[1]
        and bool(np.isclose(step_angstrom[0], step_angstrom[1]))
    )
    return list(range(8 if transposable else 4))


def choose_views(
    model: Model, window: Sequence[int], step_angstrom: Sequence[float], passes: int | None
) -> Views:
    """Returns the views in which a network is shown a window.

    Args:
        window: Positions of the window, (y, x).
        step_angstrom: Scan step, (y, x), Å.
        passes: Predictions with dropout per symmetry. `None` takes none if there are several
            symmetries, otherwise `PASSES` if the network has dropout.
    """
    symmetric = model.conditions.symmetric and model.experiment.training.inputs.layout in (
        "scan",
        "depth",
    )
    symmetries = valid_symmetries(symmetric, window, model.conditions.detector_shape, step_angstrom)
    if passes is None:
        passes = PASSES if len(symmetries) == 1 and model.network.dropout else 0
    return Views(symmetries, passes)


def ensemble_predictor(
    network: "keras.Model", model: Model, views: Views, with_maps: bool = False
) -> Predict:
    """Returns the function that predicts densities from windows.

    Args:
        network: The Keras network, from `train.apply.weights.load_network`.
        with_maps: Whether the maps of `train.tasks.density.trust.familiarity.inner_layer` are
            described, too.

    Returns:
        Function from windows `(n, sy, sx, dy, dx)`, fractions of the beam, to predictions.

    Raises:
        InputError: If there are passes with dropout and the network has no dropout.
    """
    config = model.network
    if views.passes and not config.dropout:
        raise InputError(
            "--passes needs a network with dropout, and this one was trained without: leave it out"
        )
    _freeze_normalisation(network)
    channels = model.experiment.channels()
    channel_axis = 1 if config.data_format == "channels_first" else -1
    mirrors = [
        ChannelMirror.of(symmetry, channels, model.conditions.detector_shape)
        for symmetry in views.symmetries
    ]
    to_inputs = _inputs_function(network, model, channels)
    forward = _forward_function(network, model, views.passes > 0, with_maps)

    def predict(patterns: Array) -> Prediction:
        x = to_inputs(patterns)
        of_members = defaultdict[str, list[Array]](list)
        at_once = max(1, IMAGES // len(x))
        for start in range(0, len(mirrors), at_once):
            group = mirrors[start : start + at_once]
            images = np.concatenate([mirror.inputs(x, channel_axis) for mirror in group])
            for _ in range(max(1, views.passes)):
                for name, array in forward(images).items():
                    of_members[name] += _of_views(name, array, group)
        arrays = {name: np.stack(members) for name, members in of_members.items()}
        if with_maps:
            arrays["maps"] = arrays["maps"].mean(axis=0)
        return Prediction(**arrays)

    return predict


def _freeze_normalisation(network: "keras.Model") -> None:
    """Lets normalisations keep their learned mean and spread in training mode, which dropout
    needs.
    """
    for layer in network.layers:
        if type(layer).__name__ == "BatchNormalization":
            layer.trainable = False


def _of_views(name: str, array: Array, mirrors: Sequence[ChannelMirror]) -> list[Array]:
    """Returns what was predicted of windows in each of several views, mirrored back.

    Args:
        name: A field of `Prediction`.
        array: The predictions of all views, one view after the other.
        mirrors: The views.
    """
    of_views = np.split(array, len(mirrors))
    if name == "maps":  # means over the window
        return of_views
    return [
        restored(images, mirror.symmetry) for images, mirror in zip(of_views, mirrors, strict=True)
    ]


def _inputs_function(
    network: "keras.Model", model: Model, channels: Channels | None
) -> Callable[[Array], Array]:
    """Returns the function from windows `(n, sy, sx, dy, dx)`, fractions of the beam, to a
    network's inputs.
    """
    from keras import ops

    from ....input.normalisation import Batch, Normalisation, normalise_graph

    inputs = model.experiment.training.inputs
    config = model.network
    settings = Normalisation.of(inputs, config.data_format, "float32")
    if config.data_format == "channels_first":
        images = network.inputs[0].shape[2:]
    else:
        images = network.inputs[0].shape[1:-1]
    scan = model.conditions.scan_shape if inputs.layout == "detector" else images[-2:]

    def to_inputs(patterns: Tensor) -> Tensor:
        # Scale 1, since the patterns are fractions of the beam already; the target is not used.
        scale = ops.ones((1, 1, 1, 1))
        target = ops.zeros((1, *config.input_shape[-2:]))
        return normalise_graph(Batch(patterns, scale, target), settings, channels)[0]

    shape = (None, *scan, *model.conditions.detector_shape)
    compiled = backend.execution().compiled(to_inputs, shape=shape)
    return lambda patterns: np.asarray(compiled(patterns))


def _forward_function(
    network: "keras.Model", model: Model, dropout: bool, with_maps: bool
) -> Callable[[Array], dict[str, Array]]:
    """Returns the function from a network's inputs to what it predicts of each, by the names of
    `Prediction`.
    """
    import keras
    from keras import ops

    from ....optimization.losses import log_scale

    config = model.network
    density_scale = model.experiment.training.inputs.density_scale_e_per_angstrom2
    channels_first = config.data_format == "channels_first"
    divided = model.experiment.target.depth_bins > 1
    variance_of_scale = VARIANCES.get(model.experiment.training.loss.likelihood)
    if with_maps:
        network = keras.Model(
            network.inputs, [network.output, network.get_layer(inner_layer(config)).output]
        )

    def forward(x: Tensor) -> dict[str, Tensor]:
        outputs = network(x, training=dropout)
        y = outputs
        if with_maps:
            y, inner_maps = outputs
        arrays: dict[str, Tensor] = {}
        if divided:
            bins = density_scale * _bins(y, channels_first)
            arrays |= {"density": ops.sum(bins, 1), "by_depth": bins}
        else:
            arrays["density"] = density_scale * _plane(y, 0, channels_first)
        if variance_of_scale:
            log_b = log_scale(_plane(y, 1, channels_first))
            arrays["variance"] = variance_of_scale * density_scale**2 * ops.exp(2 * log_b)
        if with_maps:
            arrays["maps"] = _description(inner_maps, channels_first)
        return arrays

    compiled = backend.execution().compiled(forward, network.variables, network.inputs[0].shape)
    return lambda x: {name: np.asarray(array) for name, array in compiled(x).items()}


def _plane(y: Tensor, index: int, channels_first: bool) -> Tensor:
    """Returns one plane of the outputs, whose axis of channels is first or last."""
    return y[:, index] if channels_first else y[..., index]


def _bins(y: Tensor, channels_first: bool) -> Tensor:
    """Returns the planes of the outputs, one per bin along the beam, `(n, bins, h, w)`."""
    from keras import ops

    bins = y if channels_first else ops.moveaxis(y, -1, 1)
    if len(y.shape) == 5:  # a volume of one channel
        return bins[:, 0]
    return bins


def _description(inner_maps: Tensor, channels_first: bool) -> Tensor:
    """Returns the means and the standard deviations of maps, `(n, 2·maps)`."""
    from keras import ops

    maps = ops.cast(inner_maps, "float32")
    axes = range(len(maps.shape))
    image = tuple(axes[2:] if channels_first else axes[1:-1])
    return ops.concatenate([ops.mean(maps, image), ops.std(maps, image)], axis=-1)
