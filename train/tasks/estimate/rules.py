"""Requirements of the task estimate on a configuration."""

from ...experiment.experiment import Experiment
from ...networks.cosmoflow import CosmoFlowConfig
from .quantities import quantity_ranges


def check(experiment: Experiment) -> None:
    """Raises ValueError, with the remedy, unless the network gives a scan's numbers, and errors if
    asked.
    """
    network = experiment.network
    training = experiment.training
    if not isinstance(network, CosmoFlowConfig):
        raise ValueError(
            f"network.kind {network.kind} gives no numbers of a volume, which training.task "
            "estimate needs: set network.kind to cosmoflow"
        )
    if training.inputs.layout != "volume":
        raise ValueError(
            "training.task estimate takes a scan as a volume, and training.inputs.layout is "
            f"{training.inputs.layout}: set it to volume"
        )
    if min(network.input_shape[:2]) < 2:
        raise ValueError(
            f"network.input_shape is {list(network.input_shape)}: give 2 scan rows and columns or "
            "more"
        )
    names = training.estimate.quantities
    likelihood = training.loss.likelihood
    required = len(names) * (1 if likelihood == "none" else 2)
    if network.outputs != required:
        raise ValueError(
            f"network.outputs is {network.outputs}, and {len(names)} quantities with "
            f"training.loss.likelihood {likelihood} need {required}: set it to {required}"
        )
    if training.loss.relative:
        raise ValueError("training.loss.relative is for densities: set it to false")
    quantity_ranges(experiment, names)
