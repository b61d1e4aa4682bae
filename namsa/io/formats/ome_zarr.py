"""OME-Zarr (0.4 and 0.5): axes and scales that a group of a Zarr store states of its arrays, which
are one image in several resolutions.

Source: ngff.openmicroscopy.org, the key `multiscales`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from namsa.base.arrays import Floats
from namsa.base.text import shorten
from namsa.io.file_axes import FileAxis
from namsa.io.units import as_number

Attributes = Callable[[str], dict[str, object]]  # of a group or an array, by its path


@dataclass(frozen=True)
class Multiscale:
    """An image in several resolutions."""

    group: str  # path of the group
    axes: list[object]  # as the group states them: mappings of name, type and unit
    datasets: list[dict[str, object]]  # mappings of path and transformations, the finest first
    transformations: list[object]  # of all resolutions

    @property
    def arrays(self) -> list[str]:
        """The paths of the arrays in the store, the finest first."""
        paths = [dataset["path"] for dataset in self.datasets]
        return [f"{self.group}/{path}".lstrip("/") for path in paths]


def multiscale(attributes: dict[str, object], group: str) -> Multiscale | None:
    """Returns the image that the attributes of a group describe; `None` for others."""
    stated = attributes.get("ome", attributes)
    listed = stated.get("multiscales") if isinstance(stated, dict) else None
    multiscale_group = listed[0] if isinstance(listed, list) and listed else None
    if not isinstance(multiscale_group, dict) or not isinstance(multiscale_group.get("axes"), list):
        return None
    datasets = multiscale_group.get("datasets")
    if not isinstance(datasets, list) or not datasets:
        return None
    if not all(
        isinstance(dataset, dict) and isinstance(dataset.get("path"), str) for dataset in datasets
    ):
        return None
    return Multiscale(group, multiscale_group["axes"], datasets, _listed(multiscale_group))


def finest(attributes: Attributes, arrays: Iterable[str], least_axes: int) -> Multiscale | None:
    """Returns the only image of so many axes at least that some arrays are the resolutions of."""
    groups = sorted({name.rpartition("/")[0] for name in arrays})
    images = [multiscale(attributes(group), group) for group in groups]
    candidates = [image for image in images if image is not None and len(image.axes) >= least_axes]
    return candidates[0] if len(candidates) == 1 else None


def stated_axes(attributes: Attributes, array: str, count: int) -> list[FileAxis] | None:
    """Returns the axes of an array as a group above it states them; `None` if none does."""
    group = array
    while group:
        group = group.rpartition("/")[0]
        image = multiscale(attributes(group), group)
        if image is not None and array in image.arrays and len(image.axes) == count:
            dataset = image.datasets[image.arrays.index(array)]
            return _axes(image, [*_listed(dataset), *image.transformations])
    return None


def _axes(image: Multiscale, transformations: Sequence[object]) -> list[FileAxis]:
    """Returns the axes after all transformations, the first one first."""
    count = len(image.axes)
    steps = np.full(count, np.nan)
    origins = np.zeros(count)
    for transformation in transformations:
        scale = _numbers(transformation, "scale", count)
        if scale is not None:
            steps = np.where(np.isnan(steps), scale, steps * scale)
            origins = origins * scale
        translation = _numbers(transformation, "translation", count)
        if translation is not None:
            origins = origins + translation
    axes = []
    for stated, step, origin in zip(image.axes, steps.tolist(), origins.tolist(), strict=True):
        known = stated if isinstance(stated, dict) else {}
        unit = shorten(str(known.get("unit") or ""), 40)
        axes.append(FileAxis(unit, step, origin, shorten(str(known.get("name") or ""), 40)))
    return axes


def _numbers(transformation: object, kind: str, count: int) -> Floats | None:
    """Returns the numbers of a transformation of a kind, one for each axis; `None` for others."""
    if not isinstance(transformation, dict) or transformation.get("type") != kind:
        return None
    stated = transformation.get(kind)
    if not isinstance(stated, list) or len(stated) != count:
        return None
    return np.array([as_number(value) for value in stated])


def _listed(owner: dict[str, object]) -> list[object]:
    """Returns the transformations of a dataset or an image."""
    stated = owner.get("coordinateTransformations")
    return stated if isinstance(stated, list) else []
