"""The base of the configurations of all networks of this package."""

from typing import Annotated, Literal

from pydantic import Field

from fcdensenet.config import Channels, Extent, FeatureMaps
from namsa.config.loading import Section

Slope = Annotated[float, Field(ge=0, lt=1)]
Rate = Annotated[float, Field(ge=0, lt=1)]  # of dropout


class NetworkSection(Section):
    """Base class of the sections `network` of the kinds of this package. Each adds its `kind` and
    `input_shape`.
    """

    data_format: Literal["channels_last", "channels_first"] = Field(
        "channels_last", description="order of the axes in memory"
    )


Image = tuple[Channels, Extent, Extent]
Volume = tuple[Channels, Extent, Extent, Extent]
Maps = FeatureMaps


class ClassifierSection(NetworkSection):
    """Base class of the sections of networks whose output is a number for each class of an
    image.
    """

    input_shape: Image = Field(description="(channels, y, x) of an image")
    classes: Maps | None

    @property
    def smallest_extent(self) -> int:
        """The smallest extent of an image that such a network can tell something of."""
        return 1


def check_multiple(input_shape: tuple[int, ...], factor: int, reason: str) -> None:
    """Raises ValueError unless all extents of an input are multiples of `factor`."""
    if any(extent % factor for extent in input_shape[1:]):
        raise ValueError(
            f"input_shape {list(input_shape)}: extents must be multiples of {factor}, {reason}"
        )
