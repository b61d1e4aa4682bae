"""What the task segment asks of a configuration."""

from fcdensenet.config import NetworkConfig

from ...experiment.experiment import Experiment
from ...networks.deeplabv3plus import DeepLabV3PlusConfig


def check(experiment: Experiment) -> None:
    """Raises ValueError, with the remedy, unless the network gives one number for each class at each position."""
    network, training = experiment.network, experiment.training
    if not isinstance(network, NetworkConfig | DeepLabV3PlusConfig):
        raise ValueError(
            f"network.kind {network.kind} gives no image of classes, which training.task segment needs: set "
            "network.kind to fcdensenet or deeplabv3plus"
        )
    classes = training.segment.classes
    if network.output_channels != len(classes):
        raise ValueError(
            f"network.output_channels is {network.output_channels}, and training.segment has {len(classes)} classes "
            f"({', '.join(classes)}): set it to {len(classes)}"
        )
    if training.inputs.layout != "scan":
        raise ValueError(
            f"training.task segment labels scan positions, and training.inputs.layout is {training.inputs.layout}: set "
            "it to scan"
        )
