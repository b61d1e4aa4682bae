"""What each task asks of the network and of the inputs. A rule raises ValueError with a remedy."""

from collections.abc import Callable

from train.experiment.sections import Training
from train.networks.registry import Network
from train.networks.resnet50 import ResNet50Config


def _density(network: Network, training: Training) -> None:
    """An image of densities, over detector pixels or scan positions."""
    if network.kind != "fcdensenet":
        raise ValueError(
            f"network.kind {network.kind} gives no image of densities, which training.task density needs: set "
            "network.kind to fcdensenet"
        )
    likelihood, channels = training.loss.likelihood, network.output_channels
    if channels != (required := 1 if likelihood == "none" else 2):
        raise ValueError(
            f"network.output_channels is {channels}, and training.loss.likelihood {likelihood} needs {required}: "
            "set one of them"
        )
    if training.inputs.layout == "pattern":
        raise ValueError("training.inputs.layout pattern has no image of densities: set it to detector or scan")


def _classify(network: Network, training: Training) -> None:
    """One number for each class, from one pattern."""
    if not isinstance(network, ResNet50Config) or network.classes is None:
        without = " without classes" if network.kind == "resnet50" else ""
        raise ValueError(
            f"network.kind {network.kind}{without} gives no classes of a pattern, which training.task classify needs: "
            "set network.kind to resnet50 and network.classes"
        )
    if training.inputs.layout != "pattern":
        raise ValueError(
            f"training.task classify is about patterns, and training.inputs.layout is {training.inputs.layout}: set it "
            "to pattern"
        )
    listed = len(training.classify.classes)
    if listed and listed != network.classes:
        raise ValueError(
            f"network.classes is {network.classes}, and training.classify.classes lists {listed}: set it to {listed}"
        )
    smallest = 2 ** (len(network.units) + 1)
    if min(network.input_shape[1:]) < smallest:
        raise ValueError(
            f"patterns of {list(network.input_shape[1:])} pixels are too small for network.units of "
            f"{len(network.units)} stages, each of which halves the grid: {smallest} pixels are the least; use fewer "
            "stages or a larger detector"
        )


RULES: dict[str, Callable[[Network, Training], None]] = {"density": _density, "classify": _classify}
