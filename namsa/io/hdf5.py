"""Samples as HDF5 in the EMD 1.0 layout (emdatasets.com), which py4DSTEM and HyperSpy open with
axes and units.

A file holds one tree per sample, under the sample's name, with the arrays `cbed`, `density` and
`projected_potential`, and `density_by_depth` if the sample has it. Each array is a group of `data`
and of dim0, dim1, ..., one per axis, with coordinates, name and units. EMD defines this and
HyperSpy reads it. py4DSTEM needs two things more: a `calibration` of the tree, and the class
DataCube for the patterns, whose pixels and scan steps are square. Patterns that are not square, or
not on a raster, are stored as a plain EMD array with the axes that they have.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array
from namsa.base.files import open_atomic
from namsa.base.pixels import (
    OPTIONAL_UNITS,
    UNITS,
    ArrayAxis,
    PixelGrid,
    SampleArrays,
    array_axes,
    sample_arrays,
)
from namsa.base.provenance_values import Provenance
from namsa.io import block_digests, seal
from namsa.io.compression import Compression, storage
from namsa.io.unfailing_file import UnfailingFile

FILE_ATTRIBUTES = {
    "emd_group_type": "file",
    "version_major": 1,
    "version_minor": 0,
    "authoring_program": "namsa",
}


def write_samples(
    path: Path | str, samples: Iterable[tuple[str, SampleArrays]], compression: Compression = "none"
) -> int:
    """Writes samples to a file, which appears only when it is complete.

    Patterns of a raster scan are stored as (sy, sx, dy, dx), others as (n, dy, dx).

    Args:
        path: File to write; its folder is created if it is missing.
        samples: Pairs of name and sample.
        compression: Of the patterns: "none", "gzip", "lzf" or "bitshuffle"; see
            `namsa.io.compression`.

    Returns:
        The number of samples.

    Raises:
        InputError: If the compression needs a package that is not installed.
        WorkError: If the file cannot be written.

    Example:
        >>> namsa.write_samples("two.h5", [("first", sample), ("second", sample)])
        2
        >>> [name for name, _ in namsa.read_samples("two.h5")]
        ['first', 'second']
    """
    count = 0
    with write_file(Path(path)) as (file, target):
        for name, sample in samples:
            write_sample(create_group(file, name, "root", "Root"), sample, compression)
            target.check()
            count += 1
    return count


class Bands(NamedTuple):
    """An array that is written band after band along its first axis."""

    units: str  # of its values
    axes: Sequence[ArrayAxis]  # its axes
    bands: Iterator[npt.NDArray[np.float32]]  # consecutive parts of it, which make it up


def write_images(
    path: Path,  # file to write; its folder is created if it is missing
    name: str,
    # Array `(ny, nx)`, or `(n, ny, nx)` for a stack, and units of each image, by name.
    images: Mapping[str, tuple[Array, str]],
    grid: PixelGrid,  # pixels of the images, Å
    provenance: Mapping[str, object],  # JSON types, stored with the tree
    # Float32 arrays beside the images, of any number of axes, which need not fit into memory.
    large: Mapping[str, Bands] | None = None,
) -> None:
    """Writes images on one grid as a tree with axes in Å, complete or not at all. Raises WorkError
    if it cannot.
    """
    with write_file(path) as (file, target):
        group = create_group(file, name, "root", "Root")
        group.attrs["provenance"] = json.dumps(dict(provenance), ensure_ascii=False)
        for key, (image, units) in images.items():
            coordinates = zip(("y", "x"), grid.coordinates(image.shape[-2:]), strict=True)
            axes = [ArrayAxis("index", "", np.arange(float(len(image))))] if image.ndim == 3 else []
            axes += [ArrayAxis(axis, "Å", values) for axis, values in coordinates]
            array = create_group(group, key, "array", "Array")
            array.create_dataset("data", data=image)
            _describe_array(array, units, axes)
        for key, banded in (large or {}).items():
            array = create_group(group, key, "array", "Array")
            data = array.create_dataset(
                "data", [len(axis.coordinates) for axis in banded.axes], "float32"
            )
            row = 0
            for band in banded.bands:
                data[row : row + len(band)] = band
                row += len(band)
                target.check()
            _describe_array(array, banded.units, banded.axes)


@contextmanager
def write_file(
    path: Path,
    attributes: Mapping[str, object] = FILE_ATTRIBUTES,
    libver: tuple[str, str] | None = None,
    with_digests: bool = True,
) -> Iterator[tuple[h5py.File, UnfailingFile]]:
    """Yields a file that takes the place of `path` when it is complete, and the file that it is
    written to.

    Args:
        attributes: Of the root; by default those of an EMD file.
        libver: Oldest and newest version of the HDF5 format, as of `h5py.File`; `None` for h5py's
            own choice.
        with_digests: Whether its blocks get digests (`namsa.io.block_digests`).

    Raises:
        WorkError: If the file cannot be written.
    """
    with open_atomic(path, buffering=0, parents=True) as opened:
        target = UnfailingFile(opened)
        with h5py.File(target, "w", libver=libver) as file:
            file.attrs.update(attributes)
            yield file, target
            spans = seal.data_spans(file)
            raw = block_digests.raw_extents(file)
        target.check()
        if with_digests:
            block_digests.append(opened, raw)
        seal.append(opened, spans)


def write_sample(
    group: h5py.Group, sample: SampleArrays, compression: Compression = "none"
) -> None:
    """Writes the arrays of a sample with their axes, the provenance and, if there is one,
    py4DSTEM's calibration.

    Args:
        group: The sample's group. If it has patterns, as `cbed/data`, they are taken in place of
            the sample's.
    """
    group.attrs["provenance"] = json.dumps(sample.provenance)
    arrays = sample_arrays(sample)
    shapes = {name: array.shape for name, array in arrays.items()}
    if "cbed/data" in group:
        shapes["cbed"] = group["cbed/data"].shape
    axes = array_axes(sample.provenance, shapes)
    scan = [axis.coordinates for axis in axes["cbed"][:-2] if axis.units == "Å"]
    calibration = _py4dstem_calibration(sample.provenance, scan)
    bundle = create_group(group, "metadatabundle", "metadatabundle")
    if calibration:
        _write_metadata(create_group(bundle, "calibration", "metadata", "Calibration"), calibration)
    units = UNITS | OPTIONAL_UNITS
    for name, axes_of_array in axes.items():
        emd_class = "Array"
        compression_of_array: Compression = "none"
        if name == "cbed":
            compression_of_array = compression
            if calibration:
                emd_class = "DataCube"
        array = create_group(group, name, "array", emd_class)
        if "data" not in array:
            _write_values(array, arrays[name], axes_of_array, compression_of_array)
        _describe_array(array, units[name], axes_of_array)
    group["cbed"].create_dataset("positions_angstrom", data=sample.provenance["positions_angstrom"])


def _write_values(
    group: h5py.Group, values: Array, axes: Sequence[ArrayAxis], compression: Compression
) -> None:
    """Writes an array in the shape of its axes as `data` of a group."""
    shape = [len(axis.coordinates) for axis in axes]
    stored = storage(shape, values.itemsize, compression)
    group.create_dataset("data", data=values.reshape(shape), **stored)


def _describe_array(group: h5py.Group, units: str, axes: Sequence[ArrayAxis]) -> None:
    """Writes the units and the axes of the array `data` of a group."""
    group["data"].attrs["units"] = units
    for index, (name, axis_units, along) in enumerate(axes):
        # EMD allows two coordinates for all. With a single one readers would not know the axis'
        # step.
        dimension = group.create_dataset(
            f"dim{index}", data=along if len(along) > 1 else [along[0], along[0] + 1]
        )
        dimension.attrs.update({"name": name, "units": axis_units})


def _write_metadata(group: h5py.Group, values: Provenance) -> None:
    """Writes `values` with their EMD types; a list is one of strings."""
    for key, value in values.items():
        if isinstance(value, list):
            items = group.create_group(key)
            items.attrs.update({"type": "list_of_strings", "length": len(value)})
            for index, item in enumerate(value):
                items.create_dataset(str(index), data=item)
        else:
            kind = {bool: "bool", str: "string"}.get(type(value), "number")
            group.create_dataset(key, data=value).attrs["type"] = kind


def create_group(
    parent: h5py.Group, name: str, kind: str, python_class: str | None = None
) -> h5py.Group:
    """Returns an EMD group of a kind, and for py4DSTEM of one of its classes. It is created if it
    is missing.
    """
    group = parent.require_group(name)
    group.attrs["emd_group_type"] = kind
    if python_class:
        group.attrs["python_class"] = python_class
    return group


def _py4dstem_calibration(
    provenance: Provenance, scan: list[npt.NDArray[np.float64]]
) -> Provenance:
    """Returns py4DSTEM's calibration, lengths in its unit A. Empty if its single numbers do not
    describe the axes.
    """
    steps = [float(along[1] - along[0]) for along in scan if len(along) > 1]
    pixels = provenance["detector_sampling_mrad"]
    if not steps or not all(np.isclose(pair[0], pair[-1], rtol=1e-6) for pair in (steps, pixels)):
        return {}
    step = steps[0]
    pixel = pixels[0]
    y0, x0 = (-origin / pixel for origin in provenance["detector_origin_mrad"])
    return {
        "R_pixel_size": step,
        "R_pixel_units": "A",
        "Q_pixel_size": pixel,
        "Q_pixel_units": "mrad",
        "QR_rotation": 0.0,
        "QR_rotation_degrees": 0.0,
        "QR_flip": False,
        "qx0": y0,
        "qy0": x0,
        "qx0_mean": y0,
        "qy0_mean": x0,
        "probe_semiangle": provenance["semiangle_mrad"] / pixel,
        "convergence_semiangle_mrad": provenance["semiangle_mrad"],
        # what py4DSTEM calibrates with these numbers when it opens the file
        "_target_paths": ["/cbed"],
        "_root_treepath": "",
    }
