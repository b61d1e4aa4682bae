"""Samples as HDF5 in the EMD 1.0 layout (emdatasets.com), which py4DSTEM and HyperSpy open with axes and units.

A file is a tree for each sample, under the sample's name, with the arrays `cbed`, `density` and `projected_potential`.
Each is a group of `data` and of dim0, dim1, ..., one for each of its axes, with coordinates, name and units; so EMD has
it, and so HyperSpy reads it. py4DSTEM wants two things more: a `calibration` for the tree, and to be told that the
patterns are its DataCube, whose pixels and whose scan steps are square. Patterns that are not so, or that are of no
raster, are an EMD array: their axes are as they are, and nothing is made square.
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


def write(path: Path, samples: Iterable[tuple[str, Sample]]) -> int:
    """Writes `samples` as trees by name and returns their number; the file appears only when it is whole.

    A scan on a grid is stored as (sy, sx, dy, dx), other stacks as (n, dy, dx). Raises WorkError where the place
    cannot be written.
    """
    count = 0
    with _emd(path) as file:
        for name, sample in samples:
            _write_sample(_group(file, name, "root", "Root"), sample)
            count += 1
    return count


def write_images(
    path: Path,
    name: str,
    images: Mapping[str, tuple[npt.NDArray[Any], str]],
    frame: PixelGrid,
    provenance: Mapping[str, Any],
) -> None:
    """Writes `images`, (array, units) by name and all of one shape, as a tree with axes in Å; the file appears whole.

    Raises WorkError where the place cannot be written.
    """
    with _emd(path) as file:
        group = _group(file, name, "root", "Root")
        group.attrs["provenance"] = json.dumps(dict(provenance), ensure_ascii=False)
        for key, (image, units) in images.items():
            along = zip(("y", "x"), frame.coordinates(image.shape), strict=True)
            _write_array(_group(group, key, "array", "Array"), image, units, [(axis, "Å", at) for axis, at in along])


@contextmanager
def _emd(path: Path) -> Iterator[h5py.File]:
    """A file to write that takes the place of `path` when it is whole."""
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
    group.attrs["provenance"] = json.dumps(sample.provenance)
    stored = array_axes(sample.provenance, {name: getattr(sample, name).shape for name in UNITS})
    scan = [along for _, units, along in stored["cbed"][:-2] if units == "Å"]
    calibration = _calibration(sample.provenance, scan)
    bundle = _group(group, "metadatabundle", "metadatabundle")
    if calibration:
        _write_metadata(_group(bundle, "calibration", "metadata", "Calibration"), calibration)
    for name, dimensions in stored.items():
        array = _group(group, name, "array", "DataCube" if name == "cbed" and calibration else "Array")
        _write_array(array, getattr(sample, name), UNITS[name], dimensions)
    group["cbed"].create_dataset("positions_angstrom", data=sample.provenance["positions_angstrom"])


def _write_array(group: h5py.Group, values: npt.NDArray[Any], units: str, dimensions: Sequence[ArrayAxis]) -> None:
    data = group.create_dataset("data", data=values.reshape([len(along) for _, _, along in dimensions]))
    data.attrs["units"] = units
    for number, (axis, unit, along) in enumerate(dimensions):
        # Of an axis with one coordinate readers would not know the step; two of them are as good as all in EMD.
        dimension = group.create_dataset(f"dim{number}", data=along if len(along) > 1 else [along[0], along[0] + 1])
        dimension.attrs.update({"name": axis, "units": unit})


def _write_metadata(group: h5py.Group, values: dict[str, Any]) -> None:
    """`values` with their types by name; a list is one of strings."""
    for key, value in values.items():
        if isinstance(value, list):
            items = group.create_group(key)
            items.attrs.update({"type": "list_of_strings", "length": len(value)})
            for number, item in enumerate(value):
                items.create_dataset(str(number), data=item)
        else:
            kind = {bool: "bool", str: "string"}.get(type(value), "number")
            group.create_dataset(key, data=value).attrs["type"] = kind


def _group(parent: h5py.Group, name: str, kind: str, python_class: str | None = None) -> h5py.Group:
    group = parent.create_group(name)
    group.attrs["emd_group_type"] = kind
    if python_class:
        group.attrs["python_class"] = python_class  # py4DSTEM's name for it
    return group


def _calibration(p: dict[str, Any], scan: list[npt.NDArray[np.float64]]) -> dict[str, Any]:
    """py4DSTEM's numbers for the patterns, lengths in its unit A; none where it has no number for what they are."""
    steps = [float(along[1] - along[0]) for along in scan if len(along) > 1]
    pixels = p["detector_sampling_mrad"]
    if not steps or not all(np.isclose(pair[0], pair[-1], rtol=1e-6) for pair in (steps, pixels)):
        return {}
    step, pixel = steps[0], pixels[0]
    y0, x0 = (-origin / pixel for origin in p["detector_origin_mrad"])
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
        "probe_semiangle": p["semiangle_mrad"] / pixel,
        "convergence_semiangle_mrad": p["semiangle_mrad"],
        "_target_paths": ["/cbed"],  # what is to be calibrated with these numbers when the file is opened
        "_root_treepath": "",
    }


@contextmanager
def opened(path: Path) -> Iterator[dict[str, h5py.Group]]:
    """The samples' groups by name. Raises InputError where `path` is no file that `write` made."""
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    try:
        with h5py.File(path, "r") as file:
            groups = {name: group for name, group in file.items() if "provenance" in group.attrs}
            if not groups:
                raise InputError(f"{path} holds no sample that namsa wrote")
            yield groups
    except (OSError, KeyError, ValueError) as error:
        raise InputError(f"cannot read {path} as a namsa HDF5 file: {' '.join(str(error).split())}") from None


def read(path: Path) -> Iterator[tuple[str, Sample]]:
    """The (name, sample) pairs that `write` stored. Raises InputError where `path` is no such file."""
    with opened(path) as groups:
        for name, group in groups.items():
            arrays = {key: group[key]["data"][()] for key in UNITS}
            cbed = arrays.pop("cbed")
            patterns = cbed.reshape(-1, *cbed.shape[-2:])
            yield name, Sample(patterns, **arrays, provenance=json.loads(group.attrs["provenance"]))
