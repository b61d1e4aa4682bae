"""Requirements of the task classify on a configuration."""

from ...experiment.experiment import Experiment
from ...networks.config import ClassifierSection


def check(experiment: Experiment) -> None:
    """Raises ValueError, with the remedy, unless the network gives a number per class, of one
    pattern or a sample's.
    """
    network = experiment.network
    training = experiment.training
    if not isinstance(network, ClassifierSection) or network.classes is None:
        without = " without classes" if network.kind == "resnet50" else ""
        raise ValueError(
            f"network.kind {network.kind}{without} gives no classes of a pattern, which "
            "training.task classify needs: set network.kind to resnet50, vgg, alexnet or lenet, "
            "and network.classes"
        )
    if (layout := training.inputs.layout) not in ("pattern", "detector"):
        raise ValueError(
            f"training.task classify is about patterns, and training.inputs.layout is {layout}: "
            "set it to pattern, or to detector for an answer about all patterns of a sample "
            "together"
        )
    if layout == "detector" and (
        training.classify.label == "potential_clusters" or experiment.target.at != "scan"
    ):
        raise ValueError(
            "with training.inputs.layout detector a sample has one class: set target.at to scan, "
            "and training.classify.label to a property of samples"
        )
    listed = len(training.classify.classes)
    if listed and listed != network.classes:
        raise ValueError(
            f"network.classes is {network.classes}, and training.classify.classes lists {listed}: "
            f"set it to {listed}"
        )
    if min(network.input_shape[1:]) < network.smallest_extent:
        raise ValueError(
            f"patterns of {list(network.input_shape[1:])} pixels are too small for the stages of "
            f"the network, each of which halves the grid: {network.smallest_extent} pixels are the "
            "least; use fewer stages or a larger detector"
        )
