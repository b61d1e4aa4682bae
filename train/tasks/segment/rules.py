"""Requirements of the task segment on a configuration."""

from fcdensenet.config import NetworkConfig

from ...experiment.experiment import Experiment
from ...networks.deeplabv3plus import DeepLabV3PlusConfig
from ...networks.function import FunctionNetworkConfig


def check(experiment: Experiment) -> None:
    """Raises ValueError, with the remedy, unless the network gives one number for each class at
    each position.
    """
    network = experiment.network
    training = experiment.training
    if not isinstance(network, NetworkConfig | DeepLabV3PlusConfig | FunctionNetworkConfig):
        raise ValueError(
            f"network.kind {network.kind} gives no image of classes, which training.task segment "
            "needs: set network.kind to fcdensenet, deeplabv3plus or function"
        )
    classes = training.segment.classes
    if network.output_channels != len(classes):
        raise ValueError(
            f"network.output_channels is {network.output_channels}, and training.segment has "
            f"{len(classes)} classes ({', '.join(classes)}): set it to {len(classes)}"
        )
    if training.inputs.layout != "scan":
        raise ValueError(
            "training.task segment labels scan positions, and training.inputs.layout is "
            f"{training.inputs.layout}: set it to scan"
        )
