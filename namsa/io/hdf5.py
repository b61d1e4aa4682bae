"""Samples as HDF5 in the EMD 1.0 layout (emdatasets.com), which py4DSTEM and HyperSpy open with axes and units.

A file holds one tree per sample, under the sample's name, with the arrays `cbed`, `density` and `projected_potential`.
Each array is a group of `data` and of dim0, dim1, ..., one per axis, with coordinates, name and units. EMD defines this
and HyperSpy reads it. py4DSTEM needs two things more: a `calibration` of the tree, and the class DataCube for the
patterns, whose pixels and scan steps are square. Patterns that are not square, or not on a raster, are stored as a
plain EMD array with the axes that they have.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from namsa.errors import InputError, WorkError
from namsa.pixels import UNITS, ArrayAxis, PixelGrid, array_axes
from namsa.sample import Sample

# ---- Writing --------------------------------------------------------------------------------------------------------


def write_samples(path: Path, samples: Iterable[tuple[str, Sample]]) -> int:
    """Writes samples to a file, which appears only when it is complete.

    Patterns of a raster scan are stored as (sy, sx, dy, dx), others as (n, dy, dx).

    Args:
        path: File to write; its folder is created if it is missing.
        samples: Pairs of name and sample.

    Returns:
        The number of samples.

    Raises:
        WorkError: If the file cannot be written.
    """
    count = 0
    with _write_file(path) as file:
        for name, sample in samples:
            _write_sample(_create_group(file, name, "root", "Root"), sample)
            count += 1
    return count


def write_images(
    path: Path,
    name: str,
    images: Mapping[str, tuple[npt.NDArray[Any], str]],
    grid: PixelGrid,
    provenance: Mapping[str, Any],
) -> None:
    """Writes images of one shape as a tree with axes in Å; the file appears only when it is complete.

    Args:
        path: File to write; its folder is created if it is missing.
        name: Name of the tree.
        images: Array `(ny, nx)` and units of each image, by name.
        grid: Pixels of the images, Å.
        provenance: JSON types, stored with the tree.

    Raises:
        WorkError: If the file cannot be written.
    """
    with _write_file(path) as file:
        group = _create_group(file, name, "root", "Root")
        group.attrs["provenance"] = json.dumps(dict(provenance), ensure_ascii=False)
        for key, (image, units) in images.items():
            coordinates = zip(("y", "x"), grid.coordinates(image.shape), strict=True)
            axes = [ArrayAxis(axis, "Å", values) for axis, values in coordinates]
            _write_array(_create_group(group, key, "array", "Array"), image, units, axes)


@contextmanager
def _write_file(path: Path) -> Iterator[h5py.File]:
    """Yields an EMD file that takes the place of `path` when it is complete."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with h5py.File(partial, "w") as file:
                file.attrs.update({"emd_group_type": "file", "version_major": 1, "version_minor": 0})
                file.attrs["authoring_program"] = "namsa"
                yield file
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise WorkError(f"cannot write {path}: {error}") from None


def _write_sample(group: h5py.Group, sample: Sample) -> None:
    """Writes the arrays of a sample with their axes, the provenance and, if there is one, py4DSTEM's calibration."""
    group.attrs["provenance"] = json.dumps(sample.provenance)
    axes = array_axes(sample.provenance, {name: getattr(sample, name).shape for name in UNITS})
    scan = [axis.coordinates for axis in axes["cbed"][:-2] if axis.units == "Å"]
    calibration = _py4dstem_calibration(sample.provenance, scan)
    bundle = _create_group(group, "metadatabundle", "metadatabundle")
    if calibration:
        _write_metadata(_create_group(bundle, "calibration", "metadata", "Calibration"), calibration)
    for name, array_axis in axes.items():
        array = _create_group(group, name, "array", "DataCube" if name == "cbed" and calibration else "Array")
        _write_array(array, getattr(sample, name), UNITS[name], array_axis)
    group["cbed"].create_dataset("positions_angstrom", data=sample.provenance["positions_angstrom"])


def _write_array(group: h5py.Group, values: npt.NDArray[Any], units: str, axes: Sequence[ArrayAxis]) -> None:
    """Writes an array with its units and axes."""
    data = group.create_dataset("data", data=values.reshape([len(axis.coordinates) for axis in axes]))
    data.attrs["units"] = units
    for number, (name, axis_units, along) in enumerate(axes):
        # EMD allows two coordinates for all. With a single one readers would not know the axis' step.
        dimension = group.create_dataset(f"dim{number}", data=along if len(along) > 1 else [along[0], along[0] + 1])
        dimension.attrs.update({"name": name, "units": axis_units})


def _write_metadata(group: h5py.Group, values: dict[str, Any]) -> None:
    """Writes `values` with their EMD types; a list is one of strings."""
    for key, value in values.items():
        if isinstance(value, list):
            items = group.create_group(key)
            items.attrs.update({"type": "list_of_strings", "length": len(value)})
            for number, item in enumerate(value):
                items.create_dataset(str(number), data=item)
        else:
            kind = {bool: "bool", str: "string"}.get(type(value), "number")
            group.create_dataset(key, data=value).attrs["type"] = kind


def _create_group(parent: h5py.Group, name: str, kind: str, python_class: str | None = None) -> h5py.Group:
    """Creates an EMD group of a kind, and for py4DSTEM of one of its classes."""
    group = parent.create_group(name)
    group.attrs["emd_group_type"] = kind
    if python_class:
        group.attrs["python_class"] = python_class
    return group


def _py4dstem_calibration(provenance: dict[str, Any], scan: list[npt.NDArray[np.float64]]) -> dict[str, Any]:
    """Returns py4DSTEM's calibration, lengths in its unit A. Empty if its single numbers do not describe the axes."""
    steps = [float(along[1] - along[0]) for along in scan if len(along) > 1]
    pixels = provenance["detector_sampling_mrad"]
    if not steps or not all(np.isclose(pair[0], pair[-1], rtol=1e-6) for pair in (steps, pixels)):
        return {}
    step, pixel = steps[0], pixels[0]
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
        "_target_paths": ["/cbed"],  # what py4DSTEM calibrates with these numbers when it opens the file
        "_root_treepath": "",
    }


# ---- Reading --------------------------------------------------------------------------------------------------------


def read_sample(path: Path, name: str | None = None) -> Sample:
    """Reads one sample of a file that `write_samples` wrote.

    Args:
        path: The file.
        name: The sample's name. Default: the first sample of the file.

    Raises:
        InputError: If the file holds no such sample.
    """
    with open_samples(path) as groups:
        if name is None:
            name = next(iter(groups))
        if name not in groups:
            raise InputError(f"{path} has no sample {name}: it holds {', '.join(groups)}")
        return _read_group(groups[name])


def read_samples(path: Path) -> Iterator[tuple[str, Sample]]:
    """Yields the name and the sample of each sample that `write_samples` wrote.

    Raises:
        InputError: If `path` is no such file.
    """
    with open_samples(path) as groups:
        for name, group in groups.items():
            yield name, _read_group(group)


@contextmanager
def open_samples(path: Path) -> Iterator[dict[str, h5py.Group]]:
    """Opens a file that `write_samples` wrote, and yields the samples' groups by name.

    Raises:
        InputError: If `path` is no such file.
    """
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    try:
        with h5py.File(path, "r") as file:
            groups = {name: group for name, group in file.items() if "provenance" in group.attrs}
            if not groups:
                raise InputError(f"{path} holds no sample that namsa wrote")
            yield groups
    except InputError:
        raise
    except (OSError, KeyError, ValueError) as error:
        raise InputError(f"cannot read {path} as a namsa HDF5 file: {' '.join(str(error).split())}") from None


def _read_group(group: h5py.Group) -> Sample:
    """Reads the arrays and the provenance of a sample; patterns become one stack `(n, dy, dx)`."""
    arrays = {name: group[name]["data"][()] for name in UNITS}
    cbed = arrays.pop("cbed")
    return Sample(cbed=cbed.reshape(-1, *cbed.shape[-2:]), **arrays, provenance=json.loads(group.attrs["provenance"]))
