"""What the configurations of all networks of this package share."""

from typing import Annotated, Literal

from pydantic import Field

from fcdensenet.config import Channels, Extent, FeatureMaps
from namsa.config.loading import Section

Slope = Annotated[float, Field(ge=0, lt=1)]
Dropout = Annotated[float, Field(ge=0, lt=1)]


class NetworkSection(Section):
    """Base class of the sections `network` of the kinds of this package. Each adds its `kind` and `input_shape`."""

    data_format: Literal["channels_last", "channels_first"] = Field(
        "channels_last", description="order of the axes in memory"
    )


Image = tuple[Channels, Extent, Extent]
Volume = tuple[Channels, Extent, Extent, Extent]
Maps = FeatureMaps


def check_multiple(input_shape: tuple[int, ...], factor: int, reason: str) -> None:
    """Raises ValueError unless all extents of an input are multiples of `factor`."""
    if any(extent % factor for extent in input_shape[1:]):
        raise ValueError(f"input_shape {list(input_shape)}: extents must be multiples of {factor}, {reason}")
