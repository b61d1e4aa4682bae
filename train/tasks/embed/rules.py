"""Requirements of the task embed on a configuration."""

import math

from ...experiment.experiment import Experiment
from ...experiment.inputs import BY_PATTERN
from ...networks.cvae import CVAEConfig


def check(experiment: Experiment) -> None:
    """Raises ValueError, with the remedy, unless the network is an autoencoder of patterns whose
    latent numbers are fewer than the pixels.
    """
    network = experiment.network
    training = experiment.training
    if not isinstance(network, CVAEConfig):
        raise ValueError(
            f"network.kind {network.kind} has no latent numbers of a pattern, which training.task "
            "embed needs: set network.kind to cvae"
        )
    if training.inputs.layout != "pattern":
        raise ValueError(
            "training.task embed is about patterns, and training.inputs.layout is "
            f"{training.inputs.layout}: set it to pattern"
        )
    if training.inputs.normalisation in BY_PATTERN:
        raise ValueError(
            f"training.inputs.normalisation {training.inputs.normalisation} does not keep a "
            "pattern's intensity, and training.task embed makes it again: set it to power or log"
        )
    pixels = math.prod(network.input_shape)
    if network.latent >= pixels:
        raise ValueError(
            f"patterns of {pixels} pixels are too small for {network.latent} latent numbers: lower "
            "network.latent or use a larger detector"
        )
