"""Requirements of the task density on a configuration."""

from fcdensenet.config import NetworkConfig

from ...experiment.experiment import Experiment
from ...experiment.sections import Training
from ...networks.function import FunctionNetworkConfig
from ...networks.registry import Network
from ...networks.unet3d import UNet3DConfig


def check(experiment: Experiment) -> None:
    """Raises ValueError, with the remedy, unless the network gives densities over detector pixels
    or scan positions.
    """
    _check_image(experiment.network, experiment.training)
    _check_bins(experiment.network, experiment.training, experiment.target.depth_bins)
    _check_target(experiment)


def _check_image(network: Network, training: Training) -> None:
    if isinstance(network, UNet3DConfig) and training.inputs.layout == "depth":
        return
    if training.inputs.layout == "depth":
        raise ValueError("training.inputs.layout depth is for network.kind unet3d: set one of them")
    if not isinstance(network, NetworkConfig | FunctionNetworkConfig):
        raise ValueError(
            f"network.kind {network.kind} gives no image of densities, which training.task density "
            "needs: set network.kind to fcdensenet or function, or to unet3d with "
            "training.inputs.layout depth"
        )
    if training.inputs.layout == "pattern":
        raise ValueError(
            "training.inputs.layout pattern has no image of densities: set it to detector or scan"
        )


def _check_target(experiment: Experiment) -> None:
    """Checks that the target has its own scale, and that samples hold it."""
    kind = experiment.target.kind
    inputs = experiment.training.inputs
    if kind != "density" and experiment.target.depth_bins > 1:
        raise ValueError(
            f"samples hold no potential by depth: set target.depth_bins to 1, or kind {kind} to "
            "density"
        )
    for other, key, unset in (
        ("density", "density_scale_e_per_angstrom2", 1),
        ("potential", "potential_scale_v_angstrom", None),
    ):
        if other != kind and getattr(inputs, key) != unset:
            raise ValueError(
                f"training.inputs.{key} is for target.kind {other}, not {kind}: leave it out"
            )


def _check_bins(network: Network, training: Training, depth_bins: int) -> None:
    """Checks that there is an output for each bin along the beam, and for the error."""
    assert isinstance(network, NetworkConfig | UNet3DConfig | FunctionNetworkConfig)
    likelihood = training.loss.likelihood
    channels = network.output_channels
    if depth_bins > 1 and likelihood != "none":
        raise ValueError(
            f"training.loss.likelihood {likelihood} predicts the error of one density, and "
            f"target.depth_bins is {depth_bins}: set likelihood to none, or depth_bins to 1"
        )
    if isinstance(network, UNet3DConfig):
        if depth_bins == 1:
            raise ValueError(
                "training.inputs.layout depth is for densities by depth: set target.depth_bins "
                "above 1"
            )
        if channels != 1:
            raise ValueError(
                f"network.output_channels is {channels}, and a voxel has one density: set it to 1"
            )
        return
    if channels != (required := depth_bins if likelihood == "none" else 2):
        if depth_bins > 1:
            needs = f"target.depth_bins {depth_bins}"
        else:
            needs = f"training.loss.likelihood {likelihood}"
        raise ValueError(
            f"network.output_channels is {channels}, and {needs} needs {required}: set one of them"
        )
