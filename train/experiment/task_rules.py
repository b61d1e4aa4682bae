"""What each task asks of the network and of the inputs. A rule raises ValueError with a remedy."""

import math
from collections.abc import Callable

from fcdensenet.config import NetworkConfig

from ..networks.cosmoflow import CosmoFlowConfig
from ..networks.cvae import CVAEConfig
from ..networks.deeplabv3plus import DeepLabV3PlusConfig
from ..networks.registry import Network
from ..networks.resnet50 import ResNet50Config
from ..networks.unet3d import UNet3DConfig
from .sections import Training


def _density(network: Network, training: Training) -> None:
    """An image of densities, over detector pixels or scan positions."""
    if isinstance(network, UNet3DConfig) and training.inputs.layout == "depth":
        if training.split.ways > 1:
            raise ValueError("training.split does not divide samples of training.inputs.layout depth: set ways to 1")
        return
    if training.inputs.layout == "depth":
        raise ValueError("training.inputs.layout depth is for network.kind unet3d: set one of them")
    if network.kind != "fcdensenet":
        raise ValueError(
            f"network.kind {network.kind} gives no image of densities, which training.task density needs: set "
            "network.kind to fcdensenet, or to unet3d with training.inputs.layout depth"
        )
    if training.inputs.layout == "pattern":
        raise ValueError("training.inputs.layout pattern has no image of densities: set it to detector or scan")


def check_bins(network: Network, training: Training, depth_bins: int) -> None:
    """Raises ValueError unless a network of densities has an output for each bin along the beam, and for its error."""
    assert isinstance(network, NetworkConfig | UNet3DConfig)
    likelihood, channels = training.loss.likelihood, network.output_channels
    if depth_bins > 1 and likelihood != "none":
        raise ValueError(
            f"training.loss.likelihood {likelihood} predicts the error of one density, and target.depth_bins is "
            f"{depth_bins}: set likelihood to none, or depth_bins to 1"
        )
    if isinstance(network, UNet3DConfig):
        if depth_bins == 1:
            raise ValueError("training.inputs.layout depth is for densities by depth: set target.depth_bins above 1")
        if channels != 1:
            raise ValueError(f"network.output_channels is {channels}, and a voxel has one density: set it to 1")
        return
    if channels != (required := depth_bins if likelihood == "none" else 2):
        needs = f"target.depth_bins {depth_bins}" if depth_bins > 1 else f"training.loss.likelihood {likelihood}"
        raise ValueError(f"network.output_channels is {channels}, and {needs} needs {required}: set one of them")


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


def _segment(network: Network, training: Training) -> None:
    """One number for each class, at each scan position."""
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


def _embed(network: Network, training: Training) -> None:
    """A few numbers of one pattern, from which the pattern is made again."""
    if not isinstance(network, CVAEConfig):
        raise ValueError(
            f"network.kind {network.kind} has no latent numbers of a pattern, which training.task embed needs: set "
            "network.kind to cvae"
        )
    if training.inputs.layout != "pattern":
        raise ValueError(
            f"training.task embed is about patterns, and training.inputs.layout is {training.inputs.layout}: set it "
            "to pattern"
        )
    pixels = math.prod(network.input_shape)
    if network.latent >= pixels:
        raise ValueError(
            f"patterns of {pixels} pixels are too small for {network.latent} latent numbers: lower network.latent or "
            "use a larger detector"
        )


def _estimate(network: Network, training: Training) -> None:
    """A few numbers of a scan, and with a likelihood as many logarithms of their errors."""
    if not isinstance(network, CosmoFlowConfig):
        raise ValueError(
            f"network.kind {network.kind} gives no numbers of a volume, which training.task estimate needs: set "
            "network.kind to cosmoflow"
        )
    if training.inputs.layout != "volume":
        raise ValueError(
            f"training.task estimate takes a scan as a volume, and training.inputs.layout is {training.inputs.layout}: "
            "set it to volume"
        )
    if min(network.input_shape[:2]) < 2:
        raise ValueError(f"network.input_shape is {list(network.input_shape)}: give 2 scan rows and columns or more")
    names, likelihood = training.estimate.quantities, training.loss.likelihood
    required = len(names) * (1 if likelihood == "none" else 2)
    if network.outputs != required:
        raise ValueError(
            f"network.outputs is {network.outputs}, and {len(names)} quantities with training.loss.likelihood "
            f"{likelihood} need {required}: set it to {required}"
        )
    if training.loss.relative:
        raise ValueError("training.loss.relative is for densities: set it to false")
    if training.split.ways > 1:
        raise ValueError("training.split divides samples of the task density alone: set training.split.ways to 1")


RULES: dict[str, Callable[[Network, Training], None]] = {
    "density": _density,
    "classify": _classify,
    "segment": _segment,
    "embed": _embed,
    "estimate": _estimate,
}
