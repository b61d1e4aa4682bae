"""Samples and images as objects of other libraries, with axes and units: xarray's `Dataset` and
HyperSpy's `Signal2D`.

The libraries are imported when they are used; namsa does not need them.
"""

import importlib
import json
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.pixels import (
    OPTIONAL_UNITS,
    UNITS,
    ArrayAxis,
    SampleArrays,
    array_axes,
    sample_arrays,
    stack_shape,
)

if TYPE_CHECKING:
    import xarray
    from hyperspy.signals import BaseSignal

# Axes of the arrays that are not on the scan's positions have a name of their own.
_PREFIX = {
    "cbed": "",
    "density": "density_",
    "density_by_depth": "density_",
    "projected_potential": "potential_",
}


def to_xarray(sample: SampleArrays) -> "xarray.Dataset":
    """Returns a sample as an `xarray.Dataset`: its arrays by name, with coordinates and units.

    Patterns of a raster have the axes (y, x, ky, kx). The attribute `provenance` is JSON text, so
    that the dataset can be written to netCDF and Zarr. Arrays are not copied.

    Raises:
        InputError: If xarray is not installed, or the provenance does not describe the arrays.
    """
    xarray = _library("xarray")
    arrays = sample_arrays(sample)
    axes = array_axes(sample.provenance, {name: array.shape for name, array in arrays.items()})
    variables: dict[str, object] = {}
    coordinates: dict[str, object] = {}
    for name, array in arrays.items():
        dimensions = []
        for axis in axes[name]:
            dimension = axis.name if axis.name == "depth" else _PREFIX[name] + axis.name
            coordinates[dimension] = (dimension, axis.coordinates, {"units": axis.units})
            dimensions.append(dimension)
        shaped = array.reshape([len(axis.coordinates) for axis in axes[name]])
        variables[name] = (dimensions, shaped, {"units": (UNITS | OPTIONAL_UNITS)[name]})
    attributes = {"provenance": json.dumps(sample.provenance, ensure_ascii=False)}
    return xarray.Dataset(variables, coordinates, attributes)


def to_hyperspy(sample: SampleArrays) -> "dict[str, BaseSignal]":
    """Returns the patterns of a sample as HyperSpy's `Signal2D`, with the scan as navigation axes
    in Å.

    The patterns are not copied. HyperSpy's metadata have the beam energy and the semi-angle, its
    original metadata the provenance.

    Raises:
        InputError: If HyperSpy is not installed, or the provenance does not describe the arrays.
    """
    arrays = sample_arrays(sample)
    shapes = {name: array.shape for name, array in arrays.items()}
    beam = {
        "beam_energy": sample.provenance["energy_ev"] / 1e3,  # keV
        "convergence_angle": sample.provenance["semiangle_mrad"],
        "acquisition_mode": "STEM",
    }
    metadata = {
        "General": {"title": str(sample.provenance.get("id", "sample"))},
        "Signal": {"quantity": f"Intensity ({UNITS['cbed']})"},
        "Acquisition_instrument": {"TEM": beam},
    }
    return signal(
        sample.cbed.reshape(stack_shape(sample)),
        array_axes(sample.provenance, shapes)["cbed"],
        metadata,
        sample.provenance,
    )


def signal(
    array: Array,
    axes: Sequence[ArrayAxis],
    metadata: Mapping[str, object],
    original_metadata: Mapping[str, object],
) -> Any:
    """Returns HyperSpy's `Signal2D` of an array, without copying it. Its last two axes are those of
    the images.

    Args:
        array: The values.
        axes: An axis for each dimension, of equal steps.
        metadata: HyperSpy's metadata.
        original_metadata: Those of the program that made the values.

    Raises:
        InputError: If HyperSpy is not installed.
    """
    hyperspy = _library("hyperspy", "hyperspy.api")
    described = []
    for index, axis in enumerate(axes):
        coordinates = axis.coordinates
        scale = 1.0
        if len(coordinates) > 1:
            scale = float(coordinates[1] - coordinates[0])
        described.append(
            {
                "name": axis.name,
                "units": axis.units,
                "size": len(coordinates),
                "offset": float(coordinates[0]),
                "scale": scale,
                "navigate": index < len(axes) - 2,
            }
        )
    return hyperspy.signals.Signal2D(
        array, axes=described, metadata=metadata, original_metadata=original_metadata
    )


def _library(package: str, module: str = "") -> ModuleType:
    """Imports a library that may be missing."""
    try:
        return importlib.import_module(module or package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise InputError(f"{package} is not installed: pip install {package}") from None
