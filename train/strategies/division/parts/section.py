"""Section training.split: division of each sample over ranks."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from ....experiment.division import Axis, DivisionSection
from ....experiment.inputs import BY_PATTERN
from ....networks.registry import count_part

if TYPE_CHECKING:
    from ....experiment.experiment import Experiment


# axes along which samples of a task are divided
AXES = {"density": ("y", "x"), "segment": ("y", "x"), "estimate": ("z",)}
DEPTH_AXES = ("z", "y", "x")  # of the task density in layout depth


class SampleSplit(DivisionSection):
    """Division of each sample over ranks, which form groups of so many, each with samples of its
    own.
    """

    ways: int = Field(
        1,
        ge=1,
        le=2**15,
        description="number of ranks that a sample is divided over, along axis",
    )
    further: dict[Axis, Annotated[int, Field(ge=2, le=2**15)]] = Field(
        {},
        description="further axes along which each part is divided, with the number of ranks along "
        "each, as {x: 2}: ways times these is the number of ranks of a sample",
    )

    def check(self, experiment: "Experiment") -> None:
        training = experiment.training
        if self.ways == 1:  # counting takes a while, and every command loads a configuration
            if self.further:
                raise ValueError(
                    f"training.split.further is {self.further}, and ways, along "
                    f"{self.axis}, is 1: raise it to 2 or more, or leave further out"
                )
            return
        axes = AXES.get(training.task, ())
        if training.inputs.layout == "depth":
            axes = DEPTH_AXES
        if not axes:
            raise ValueError(
                f"training.split divides samples of the tasks {', '.join(AXES)} alone, and "
                f"training.task is {training.task}: set training.split.ways to 1"
            )
        if self.axis not in axes:
            raise ValueError(
                f"training.split.axis is {self.axis}, and samples of the task {training.task} are "
                f"divided along {' or '.join(axes)}: set it to {axes[0]}"
            )
        for further in self.further:
            others = [axis for axis in axes if axis != self.axis]
            if further in others:
                continue
            remedy = "leave it out"
            if others:
                remedy = f"set it to {' or '.join(others)}"
            raise ValueError(
                f"training.split.further has the axis {further}, and samples of the task "
                f"{training.task} whose axis is {self.axis} are divided further along "
                f"{' or '.join(others) or 'none'}: {remedy}"
            )
        if experiment.data.source.per_node:
            raise ValueError(
                "training.split divides samples over ranks, which data.source gives different "
                "samples on each node: set ways to 1, or unset node_local"
            )
        try:
            count_part(experiment.network, self)
        except ValueError as error:
            along_others = ""
            if self.further:
                numbers = ", ".join(f"{axis}: {ways}" for axis, ways in self.further.items())
                along_others = f", further: {{{numbers}}}"
            raise ValueError(
                f"training.split {{ways: {self.ways}, axis: {self.axis}{along_others}}}: "
                f"{self._fault(experiment, error)}"
            ) from None

    def _fault(self, experiment: "Experiment", error: ValueError) -> str:
        """Returns what does not fit, and of several axes along which."""
        if not self.further:
            return str(error)
        for axis, ways in {self.axis: self.ways, **self.further}.items():
            try:
                count_part(experiment.network, SampleSplit(ways=ways, axis=axis))
            except ValueError as fault:
                return f"along {axis}, {fault}"
        return str(error)

    def reads_parts(self, experiment: "Experiment") -> bool:
        return self.ways > 1 and self.whole_reason(experiment) is None

    def whole_reason(self, experiment: "Experiment") -> str | None:
        """Returns which setting makes every rank read whole samples; `None` if a rank can read its
        part alone.
        """
        inputs = experiment.training.inputs
        reasons = {
            "a split along several axes": self.further,
            f"layout {inputs.layout}": inputs.layout not in ("detector", "scan"),
            f"task {experiment.training.task}": experiment.training.task != "density",
            "inputs.augment": inputs.augment,
            "inputs.dose_electrons_per_pattern": inputs.dose_electrons_per_pattern,
            "inputs.imperfections": inputs.imperfections,
            f"inputs.normalisation {inputs.normalisation}": inputs.layout == "detector"
            and inputs.normalisation in BY_PATTERN,
            "inputs.guess dpc": inputs.guess == "dpc",
            "inputs.redraw_epochs": inputs.redraw_epochs > 1,
            "target.depth_bins": experiment.bins_shape(),
            f"target.kind {experiment.target.kind}": experiment.target.kind != "density",
            "a window of the scan": experiment.window_shapes() != experiment.sample_shapes(),
        }
        return next((f"training has {name}" for name, applies in reasons.items() if applies), None)
