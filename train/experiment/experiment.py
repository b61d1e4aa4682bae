"""Configuration of an experiment: the sections of the simulation, the network and the training."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import model_validator

from fcdensenet.config import NetworkConfig
from namsa.config.loading import read_yaml, validate
from namsa.config.simulation import SimulationConfig
from train.experiment.channels import Channels, channel_count, make_channels
from train.experiment.conditions import conditions
from train.experiment.sections import Training
from train.experiment.symmetries import broken_by


class Experiment(SimulationConfig):
    """One experiment, from crystals to the report.

    Attributes:
        network: Section network.
        training: Section training.
    """

    network: NetworkConfig
    training: Training

    def sample_shapes(self) -> tuple[tuple[int, int, int, int], tuple[int, int]]:
        """Returns the shapes of a sample's patterns, `(sy, sx, dy, dx)`, and of its density, `(ty, tx)`.

        Raises:
            ValueError: If the configuration does not fix them.
        """
        return self.pattern_shape(), self.network.input_shape[1:]

    def channels(self) -> Channels | None:
        """Returns the network's input channels; see `train.experiment.channels.make_channels`.

        Raises:
            ValueError: If the channels do not fit the layout or the detector.
        """
        return make_channels(self.training.inputs, conditions(self))

    @model_validator(mode="after")
    def _noise_is_drawn_once(self) -> "Experiment":
        detector = self.detector.model_dump() if self.detector else {}
        varied = self.varied_quantities()
        for name in ("electrons_per_pattern", "dose_electrons_per_angstrom2"):
            if self.training.inputs.dose_electrons_per_pattern and (detector.get(name) or name in varied):
                raise ValueError(
                    f"training.inputs.dose_electrons_per_pattern draws noise on samples that {name} gives noise "
                    "already, which would be that of no dose: unset one of them"
                )
        return self

    @model_validator(mode="after")
    def _augmented_samples_are_true(self) -> "Experiment":
        microscope = self.microscope.model_dump() | self.varied_quantities()
        if self.training.inputs.augment and (reason := broken_by(microscope, self.drawn_in_all_directions())):
            raise ValueError(reason)
        return self

    @model_validator(mode="after")
    def _samples_are_counted_once(self) -> "Experiment":
        if self.training.samples and self.data.node_local:
            raise ValueError(
                "training.samples counts the samples of all nodes, which data.node_local keeps apart: unset one of them"
            )
        return self

    @model_validator(mode="after")
    def _output_channels_fit_the_loss(self) -> "Experiment":
        likelihood, channels = self.training.loss.likelihood, self.network.output_channels
        if channels != (required := 1 if likelihood == "none" else 2):
            raise ValueError(
                f"network.output_channels is {channels}, and training.loss.likelihood {likelihood} needs {required}: "
                "set one of them"
            )
        return self

    @model_validator(mode="after")
    def _recompute_without_norms(self) -> "Experiment":
        if self.training.recompute and self.network.block_norm:
            raise ValueError("training.recompute does not go with network.block_norm: set one of them to false")
        return self

    @model_validator(mode="after")
    def _network_fits_data(self) -> "Experiment":
        patterns = self.pattern_shape()
        scan, detector, layout = patterns[:2], patterns[2:], self.training.inputs.layout
        planes, image = (scan, detector) if layout == "detector" else (detector, scan)
        channels = channel_count(self.channels(), planes[0] * planes[1]) + 2 * self.training.inputs.coordinates
        required = (channels, *image)
        if self.network.input_shape != required:
            raise ValueError(
                f"network.input_shape is {list(self.network.input_shape)}, but the data give {list(required)} "
                f"({self.training.inputs.channel_summary()}, scan {list(scan)}, detector {list(detector)}): "
                f"set it to {list(required)}"
            )
        target = scan if self.target.at == "scan" else self.simulation.grid_shape
        if target != image:
            raise ValueError(
                f"the target's shape is {target and list(target)}, the network's image {list(image)}: "
                "use target.at=scan with layout scan, target.at=grid with a detector of the grid's shape"
            )
        return self


def load(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """Loads an experiment.

    Args:
        path: YAML file.
        overrides: `section.key=value`, applied to the file's values.

    Returns:
        The experiment.

    Raises:
        InputError: If the configuration is not valid; names every fault.
    """
    return validate(Experiment, read_yaml(path, overrides), str(path))
