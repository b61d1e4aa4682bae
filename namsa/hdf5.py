"""Samples as HDF5 in the EMD 0.2 layout (emdatasets.com): every array with its axes and units."""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from namsa.errors import InputError, WorkError
from namsa.simulate import Sample

_Axis = tuple[str, str, npt.NDArray[np.float64]]  # name, units, coordinates


def write(path: Path, samples: Iterable[tuple[str, Sample]]) -> int:
    """Writes `samples` as groups by name and returns their number; the file appears only when it is whole.

    A scan on a grid is stored as (sy, sx, dy, dx), other stacks as (n, dy, dx). Raises WorkError where the place
    cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    count = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with h5py.File(partial, "w") as file:
            file.attrs.update({"version_major": 0, "version_minor": 2})
            for name, sample in samples:
                _write_sample(file.create_group(name), sample)
                count += 1
        os.replace(partial, path)
    except OSError as error:
        raise WorkError(f"cannot write {path}: {error}") from None
    finally:
        partial.unlink(missing_ok=True)
    return count


def _write_sample(group: h5py.Group, sample: Sample) -> None:
    provenance = sample.provenance
    group.attrs["provenance"] = json.dumps(provenance)
    scan_shape, (dy, dx) = provenance["scan_shape"], sample.cbed.shape[1:]
    positions = np.array(provenance["positions_angstrom"])
    detector = _plane(
        ("ky", "kx"), "mrad", (dy, dx), provenance["detector_sampling_mrad"], provenance["detector_origin_mrad"]
    )
    if scan_shape:
        sy, sx = scan_shape
        raster = positions.reshape(sy, sx, 2)
        scan: list[_Axis] = [("y", "Å", raster[:, 0, 0]), ("x", "Å", raster[0, :, 1])]
        _write_emd(group, "cbed", sample.cbed.reshape(sy, sx, dy, dx), "fraction of the beam", scan + detector)
    else:
        axes: list[_Axis] = [("position", "", np.arange(len(positions), dtype=np.float64)), *detector]
        _write_emd(group, "cbed", sample.cbed, "fraction of the beam", axes)
    group["cbed"].create_dataset("positions_angstrom", data=positions)
    sampling, origin = provenance["density_sampling_angstrom"], provenance["density_origin_angstrom"]
    _write_emd(
        group, "density", sample.density, "e/Å^2", _plane(("y", "x"), "Å", sample.density.shape, sampling, origin)
    )
    cell = [extent / n for extent, n in zip(provenance["extent_angstrom"], provenance["grid_shape"], strict=True)]
    potential = sample.projected_potential
    _write_emd(
        group, "projected_potential", potential, "V*Å", _plane(("y", "x"), "Å", potential.shape, cell, [0.0, 0.0])
    )


def _plane(
    names: tuple[str, str], units: str, shape: tuple[int, ...], sampling: list[float], origin: list[float]
) -> list[_Axis]:
    return [(name, units, origin[i] + sampling[i] * np.arange(shape[i])) for i, name in enumerate(names)]


def _write_emd(parent: h5py.Group, name: str, data: npt.NDArray[Any], units: str, axes: list[_Axis]) -> None:
    group = parent.create_group(name)
    group.attrs["emd_group_type"] = 1
    group.create_dataset("data", data=data).attrs["units"] = units
    for number, (axis, unit, coordinates) in enumerate(axes, start=1):
        dimension = group.create_dataset(f"dim{number}", data=coordinates)
        dimension.attrs.update({"name": axis, "units": unit})


def read(path: Path) -> Iterator[tuple[str, Sample]]:
    """The (name, sample) pairs that `write` stored. Raises InputError where `path` is no such file."""
    try:
        with h5py.File(path, "r") as file:
            groups = {name: group for name, group in file.items() if "provenance" in group.attrs}
            if not groups:
                raise InputError(f"{path} holds no sample that namsa wrote")
            for name, group in groups.items():
                arrays = {key: group[key]["data"][()] for key in ("cbed", "density", "projected_potential")}
                cbed = arrays.pop("cbed")
                patterns = cbed.reshape(-1, *cbed.shape[-2:])
                yield name, Sample(patterns, **arrays, provenance=json.loads(group.attrs["provenance"]))
    except (OSError, KeyError, ValueError) as error:
        raise InputError(f"cannot read {path} as a namsa HDF5 file: {' '.join(str(error).split())}") from None
