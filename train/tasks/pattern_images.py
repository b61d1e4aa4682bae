"""The patterns of a sample as a network of one pattern at a time sees them."""

import numpy as np
import numpy.typing as npt

from namsa.base.pixels import raster_shape
from namsa.dataset.entry import Entry
from namsa.dataset.records import Record

from ..experiment.experiment import Experiment
from ..input import windows
from ..input.normalisation import DARKEST, Batch, Normalisation, normalise, normalise_graph

PATTERNS_AT_ONCE = 256  # in the forward pass of an evaluation


def patterns(
    experiment: Experiment, entry: Entry, record: Record, training: bool
) -> npt.NDArray[np.float32]:
    """Returns the network's images of a sample, of a training sample those that are trained on, or
    those held out.
    """
    x, _ = normalise(record, experiment.training.inputs, experiment.network.data_format)
    # one image, whose channels are the patterns
    if experiment.training.inputs.layout == "detector":
        return x[None]
    return x[chosen(experiment, entry, record, training)]


def chosen(
    experiment: Experiment, entry: Entry, record: Record, training: bool
) -> npt.NDArray[np.bool_]:
    """Returns which positions of a sample `patterns` takes, `(positions,)`."""
    fraction = experiment.training.inputs.held_out_positions
    if entry.split != "train" or not fraction:
        return np.ones(len(record.cbed), bool)
    scan = raster_shape(record.header["provenance"], len(record.cbed))
    held_out = windows.held_out_positions(scan, fraction, entry.seed).ravel()
    return np.asarray(held_out != training)


def images(experiment: Experiment, fractions: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Returns patterns `(n, dy, dx)`, fractions of the beam, as the network's images."""
    batch = Batch(
        fractions[None, :, None], np.ones((1, 1, 1, 1), np.float32), np.zeros((1, 1, 1), np.float32)
    )
    settings = Normalisation.of(
        experiment.training.inputs, experiment.network.data_format, "float32"
    )
    return np.asarray(normalise_graph(batch, settings)[0])


def intensities(experiment: Experiment, made: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Returns what images that a network makes stand for: patterns `(n, dy, dx)`, fractions of the
    beam.

    What is negative counts as dark.
    """
    inputs = experiment.training.inputs
    plane = made[:, 0] if experiment.network.data_format == "channels_first" else made[..., 0]
    numbers = np.maximum(plane, 0) / np.float32(inputs.gain)
    if inputs.normalisation == "log":
        return np.exp(numbers - np.float32(DARKEST))
    bright = numbers ** np.float32(1 / inputs.power)
    return np.asarray(bright / np.float32(plane.shape[1] * plane.shape[2]), np.float32)
