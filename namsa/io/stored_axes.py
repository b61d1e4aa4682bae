"""The axes of a dataset in an HDF5 file, as other programs store them."""

import math
import re
from collections.abc import Sequence

import numpy as np

from namsa.base.errors import InputError
from namsa.base.json_files import parse_json
from namsa.base.text import shorten
from namsa.io.confined_library import Value
from namsa.io.file_axes import NO_AXIS, FileAxis, axis_of_coordinates
from namsa.io.hdf5_items import Hdf5Dataset, Hdf5Group
from namsa.io.nion_swift import swift_axes, swift_properties
from namsa.io.units import as_number

MOST_COORDINATES = 2**22  # of an axis


def stored_axes(data: Hdf5Dataset) -> list[FileAxis]:
    """Returns the axes in the stored order: HyperSpy's, EMD's, those of NXdata or of Nion Swift, or
    those that dimension scales of HDF5 have, as NSID and netCDF write them; or without units.
    """
    group = data.parent
    count = len(data.shape)
    if group.get("axis-0") is not None:
        return [_hyperspy_axis(group, index, size) for index, size in enumerate(data.shape)]
    for axes_in in (_emd_axes, _nexus_axes, _swift_axes, _scale_axes):
        axes = axes_in(data)
        if len(axes) == count:
            return axes
    return [FileAxis("", 1.0, 0.0)] * count


def text(value: Value | None) -> str:
    """Returns an attribute as text of bounded length; empty if it is missing."""
    return "" if value is None else shorten(value)


def json_object(stored: str) -> dict[str, object]:
    """Returns a JSON object; an empty one for other text, which another program may store under the
    same name.
    """
    try:
        value = parse_json(stored, "provenance")
    except InputError:
        return {}
    return value if isinstance(value, dict) else {}


def stored_swift_properties(data: Hdf5Dataset) -> dict[str, object]:
    """Returns Nion Swift's properties of a data item; empty without them."""
    stored = data.attribute("properties")
    if isinstance(stored, str):
        return swift_properties(json_object(stored))
    return {}


def _hyperspy_axis(group: Hdf5Group, dimension: int, size: int) -> FileAxis:
    """Returns an axis from the attributes of HyperSpy, or from its coordinates."""
    axis = group.get(f"axis-{dimension}")
    if axis is None:
        return NO_AXIS
    units = text(axis.attribute("units"))
    name = text(axis.attribute("name"))
    step = as_number(axis.attribute("scale"))
    if math.isnan(step) and isinstance(axis, Hdf5Group):
        uneven = _vector_axis(axis.get("axis"), size)
        if uneven is not None:
            return uneven._replace(units=units, name=name)
    return FileAxis(units, step, as_number(axis.attribute("offset")), name)


def _emd_axes(data: Hdf5Dataset) -> list[FileAxis]:
    """Returns the axes of EMD, whose coordinates are dim0, dim1, ... or, in older files, dim1,
    dim2, ...; fewer if some are missing.
    """
    group = data.parent
    offset = 0 if group.get("dim0") is not None else 1
    axes = []
    for index, size in enumerate(data.shape):
        axis = _vector_axis(group.get(f"dim{offset + index}"), size)
        if axis is not None:
            axes.append(axis)
    return axes


def _vector_axis(
    vector: Hdf5Dataset | Hdf5Group | None, size: int, known_as: str = ""
) -> FileAxis | None:
    """Returns an axis of `size` indices from its coordinates; `None` if they are no numbers."""
    if not isinstance(vector, Hdf5Dataset) or not vector.is_numeric:
        return None
    if len(vector.shape) != 1 or not 2 <= vector.shape[0] <= MOST_COORDINATES:
        return None
    name = known_as or text(vector.attribute("name")) or text(vector.attribute("long_name"))
    units = text(vector.attribute("units"))
    return axis_of_coordinates(vector[:], size, units, name)


def _nexus_axes(data: Hdf5Dataset) -> list[FileAxis]:
    """Returns the axes of NXdata: the attribute `axes` of the group, or of the signal, names one
    dataset per axis, and NAME_indices says which axis it is where that is another.

    A name "." stands for none. Of a dataset of one coordinate the step is not known.
    """
    group = data.parent
    names = group.attribute("axes") or data.attribute("axes")
    if isinstance(names, str):
        names = re.split("[:,]", names.strip("[]"))
    if not isinstance(names, list) or len(names) > len(data.shape):
        return []
    listed = [str(name) for name in names]
    spans = [_indices(group, name) for name in listed]
    if len(listed) != len(data.shape) and not all(spans):
        return []
    axes = [NO_AXIS] * len(data.shape)
    for index, name in enumerate(listed):
        if name in ("", "."):
            continue
        span = spans[index] or [index]
        if max(span) >= len(data.shape):
            continue
        if len(span) > 1:
            number_of_axis, axis = _measured_axis(group.get(name), data.shape, span)
        else:
            number_of_axis = span[0]
            axis = _vector_axis(group.get(name), data.shape[number_of_axis], name)
        if axis is not None:
            axes[number_of_axis] = axis._replace(name=name)
    if all(axis is NO_AXIS for axis in axes):
        return []
    return axes


def _indices(group: Hdf5Group, name: str) -> list[int]:
    """Returns the axes of the signal that NXdata's NAME_indices lists; none if it is missing."""
    stored = group.attribute(f"{name}_indices") if name not in ("", ".") else None
    listed = stored if isinstance(stored, list) else [stored]
    indices = []
    for value in listed:
        number = as_number(value)
        if number >= 0 and number == int(number):
            indices.append(int(number))
    return indices


def _measured_axis(
    positions: Hdf5Dataset | Hdf5Group | None, shape: Sequence[int], span: Sequence[int]
) -> tuple[int, FileAxis | None]:
    """Returns the axis along which positions of several axes change most, and its mean
    coordinates.
    """
    sizes = tuple(shape[axis] for axis in span)
    if not isinstance(positions, Hdf5Dataset) or not positions.is_numeric:
        return span[0], None
    if positions.shape != sizes or math.prod(sizes) > MOST_COORDINATES:
        return span[0], None
    values = positions[:].astype(np.float64)
    changes = []
    for axis in range(len(sizes)):
        changes.append(float(np.abs(np.diff(values, axis=axis)).mean()) if sizes[axis] > 1 else 0)
    along = int(np.argmax(changes))
    others = tuple(axis for axis in range(len(sizes)) if axis != along)
    units = text(positions.attribute("units"))
    return span[along], axis_of_coordinates(
        values.mean(axis=others), sizes[along], units, positions.name.rpartition("/")[2]
    )


def _swift_axes(data: Hdf5Dataset) -> list[FileAxis]:
    """Returns the axes of Nion Swift's calibrations."""
    properties = stored_swift_properties(data)
    listed = properties.get("dimensional_calibrations", properties.get("spatial_calibrations"))
    return swift_axes(listed) if isinstance(listed, list) else []


def _scale_axes(data: Hdf5Dataset) -> list[FileAxis]:
    """Returns the axes of HDF5's dimension scales; none if no axis has one."""
    axes = []
    for size, name in zip(data.shape, data.scales(), strict=True):
        scale = data.file.find(name) if name else None
        axes.append(_vector_axis(scale, size) or NO_AXIS)
    return [] if all(axis is NO_AXIS for axis in axes) else axes
