"""The sections of the tasks in a configuration."""

from typing import Literal

from pydantic import Field

from namsa.config.loading import Section

from .classify.section import Classify
from .embed.section import Embed
from .estimate.section import Estimate
from .segment.section import Segment


class TaskSections(Section):
    """The task of a network, and the sections of the tasks."""

    task: Literal["density", "classify", "segment", "embed", "estimate"] = Field(
        "density",
        description="what the network is for: the density of a specimen, the class of a pattern, "
        "that of each position "
        "of a scan, a few latent numbers of a pattern, learnt without labels, or thickness, "
        "defocus and tilt of a scan",
    )
    classify: Classify = Classify()
    segment: Segment = Segment()
    embed: Embed = Embed()
    estimate: Estimate = Estimate()
