"""The sections of the tasks in a configuration."""

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator
from pydantic.config import JsonDict

from namsa.config.loading import Section

from . import registry
from .classify.section import Classify
from .embed.section import Embed
from .estimate.section import Estimate
from .segment.section import Segment


def _known(task: str) -> str:
    """Returns the name of a task; raises ValueError if there is none of this name."""
    if not registry.is_known(task):
        *others, last = [repr(name) for name in registry.names()]
        raise ValueError(
            f"must be {', '.join(others)} or {last}; a task of another package is known where that "
            "is installed"
        )
    return task


def _add_names(schema: JsonDict) -> None:
    """Adds the names of the tasks to the JSON schema of the key."""
    schema["enum"] = [*registry.names()]


class TaskSections(Section):
    """The task of a network, and the sections of the tasks."""

    task: Annotated[str, AfterValidator(_known)] = Field(
        "density",
        json_schema_extra=_add_names,
        description="what the network is for: the density of a specimen, the class of a pattern, "
        "that of each position "
        "of a scan, a few latent numbers of a pattern, learnt without labels, or thickness, "
        "defocus and tilt of a scan",
    )
    classify: Classify = Classify()
    segment: Segment = Segment()
    embed: Embed = Embed()
    estimate: Estimate = Estimate()
    arguments: dict[str, object] = Field(
        {}, description="arguments of a task of another package, by names that it knows"
    )

    @model_validator(mode="after")
    def _arguments_have_an_effect(self) -> "TaskSections":
        if self.arguments and self.task in registry.TASKS:
            raise ValueError(
                f"arguments are for tasks of other packages, and task is {self.task}: leave them "
                "out"
            )
        return self
