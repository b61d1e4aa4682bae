"""Section training.split: division of each sample over ranks."""

from typing import TYPE_CHECKING

from pydantic import Field

from ....experiment.division import DivisionSection
from ....networks.registry import count

if TYPE_CHECKING:
    from ....experiment.experiment import Experiment


AXES = {"density": ("y", "x"), "estimate": ("z",)}  # along which samples of a task are divided


class SampleSplit(DivisionSection):
    """Division of each sample over ranks, which form groups of so many, each with samples of its own."""

    ways: int = Field(1, ge=1, le=2**15, description="number of ranks that a sample is divided over")

    def check(self, experiment: "Experiment") -> None:
        training = experiment.training
        if self.ways == 1:  # counting takes a while, and every command loads a configuration
            return
        if training.inputs.layout == "depth":
            raise ValueError("training.split does not divide samples of training.inputs.layout depth: set ways to 1")
        axes = AXES.get(training.task, ())
        if not axes:
            raise ValueError(
                f"training.split divides samples of the tasks {' and '.join(AXES)} alone, and training.task is "
                f"{training.task}: set training.split.ways to 1"
            )
        if self.axis not in axes:
            raise ValueError(
                f"training.split.axis is {self.axis}, and samples of the task {training.task} are divided along "
                f"{' or '.join(axes)}: set it to {axes[0]}"
            )
        if experiment.data.source.per_node:
            raise ValueError(
                "training.split divides samples over ranks, which data.source gives different samples on each node: "
                "set ways to 1, or unset node_local"
            )
        try:
            count(experiment.network, ways=self.ways, axis=self.axis_index)
        except ValueError as error:
            raise ValueError(f"training.split {{ways: {self.ways}, axis: {self.axis}}}: {error}") from None

    def reads_parts(self, experiment: "Experiment") -> bool:
        return self.ways > 1 and self.whole_reason(experiment) is None

    def whole_reason(self, experiment: "Experiment") -> str | None:
        """Returns which setting makes every rank read whole samples; `None` if a rank can read its part alone."""
        inputs = experiment.training.inputs
        reasons = {
            f"layout {inputs.layout}": inputs.layout not in ("detector", "scan"),
            f"task {experiment.training.task}": experiment.training.task != "density",
            "inputs.augment": inputs.augment,
            "inputs.dose_electrons_per_pattern": inputs.dose_electrons_per_pattern,
            "inputs.imperfections": inputs.imperfections,
            "inputs.normalisation standardised": inputs.layout == "detector" and inputs.normalisation == "standardised",
            "inputs.guess dpc": inputs.guess == "dpc",
            "inputs.redraw_epochs": inputs.redraw_epochs > 1,
            "target.depth_bins": experiment.bins_shape(),
            f"target.kind {experiment.target.kind}": experiment.target.kind != "density",
            "a window of the scan": experiment.window_shapes() != experiment.sample_shapes(),
        }
        return next((f"training has {name}" for name, applies in reasons.items() if applies), None)
