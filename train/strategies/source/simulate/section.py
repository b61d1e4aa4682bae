"""Section data.source of kind simulate."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from ....experiment.data import SourceSection

if TYPE_CHECKING:
    from ....experiment.experiment import Experiment

# the others make their targets or classes from stored samples
_TASKS = ("density", "estimate", "embed")


class Simulate(SourceSection):
    """Samples that are drawn by the rules of the list of samples and simulated while the network
    trains.

    Held-out samples, and a few of the training split for the baseline, are simulated to
    data.directory before.
    """

    kind: Literal["simulate"] = "simulate"
    samples_per_epoch: int = Field(
        ge=1,
        le=10**9,
        description="samples of an epoch of all ranks, a multiple of `reuse`: each counts once "
        "per use",
    )
    reuse: int = Field(
        4, ge=1, le=1000, description="number of times that a simulated sample is trained on"
    )
    window: int = Field(
        256,
        ge=1,
        le=10**7,
        description="samples of a rank that are trained on in random orders, `reuse` times one "
        "after the other, while "
        "the next ones are simulated",
    )
    memory_gib: float = Field(
        2.0,
        gt=0,
        le=2**16,
        description="most memory of a rank for simulated samples, GiB; a window at least, two to "
        "simulate all the time",
    )
    workers: int | None = Field(
        None,
        ge=0,
        le=1024,
        description="processes of a rank that simulate, each on one core; 0: a thread of the "
        "training process. By "
        "default a thread if simulation.backend is a GPU, otherwise processes on half of the "
        "rank's cores",
    )
    nice: int = Field(
        10,
        ge=0,
        le=19,
        description="niceness of these processes: on a core that training needs, they give way",
    )
    new_materials: int = Field(
        0,
        ge=0,
        le=10**6,
        description="by how much materials.limit and materials.substitute.limit are raised for "
        "the draws: crystals of "
        "the same sources, without those related to a held-out one, as split.by says",
    )
    baseline_samples: int = Field(
        32,
        ge=1,
        le=10**6,
        description="samples of the training split, or a few more, that are simulated to "
        "data.directory: the mean "
        "image of the evaluation is theirs",
    )

    @property
    def simulates(self) -> bool:
        return True

    def decides(self) -> dict[str, object]:
        return self.model_dump(mode="json", exclude={"memory_gib", "workers", "nice"})

    def check(self, experiment: "Experiment") -> None:
        training = experiment.training
        inputs = experiment.training.inputs
        if self.samples_per_epoch % self.reuse:
            raise ValueError(
                f"data.source.samples_per_epoch is {self.samples_per_epoch}, no multiple of reuse "
                f"{self.reuse}: set it to {-(-self.samples_per_epoch // self.reuse) * self.reuse}"
            )
        if training.task not in _TASKS:
            raise ValueError(
                f"data.source of kind simulate is for the tasks {', '.join(_TASKS)}; "
                f"{training.task} needs all samples before it trains: use kind simulated"
            )
        if experiment.split.train == 0:
            raise ValueError(
                "data.source of kind simulate draws materials of the training split: raise "
                "split.train"
            )
        faults = (
            (
                training.samples is not None,
                "training.samples",
                "it has data.source.samples_per_epoch",
            ),
            (
                training.split.ways > 1,
                "training.split.ways",
                "ranks that divide samples would simulate each twice",
            ),
            (
                inputs.redraw_epochs > 1,
                "training.inputs.redraw_epochs",
                "a sample is gone after data.source.reuse uses",
            ),
            (
                inputs.held_out_positions > 0,
                "training.inputs.held_out_positions",
                "its samples are not evaluated",
            ),
        )
        for wrong, name, reason in faults:
            if wrong:
                raise ValueError(
                    f"data.source of kind simulate does not go with {name}: {reason}: unset it"
                )
