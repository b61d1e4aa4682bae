"""A sample as objects of other libraries, with axes and units: xarray's `Dataset` and HyperSpy's `Signal2D`.

The libraries are imported when they are used; namsa does not need them.
"""

import importlib
import json
from typing import Any

import numpy as np

from namsa.errors import InputError
from namsa.pixels import OPTIONAL_UNITS, UNITS, SampleArrays, array_axes, sample_arrays, stack_shape

# Axes of the arrays that are not on the scan's positions have a name of their own.
_PREFIX = {"cbed": "", "density": "density_", "density_by_depth": "density_", "projected_potential": "potential_"}


def to_xarray(sample: SampleArrays) -> Any:
    """Returns a sample as an `xarray.Dataset`: its arrays by name, with coordinates and units.

    Patterns of a raster have the axes (y, x, ky, kx). The attribute `provenance` is JSON text, so that the dataset can
    be written to netCDF and Zarr. Arrays are not copied.

    Raises:
        InputError: If xarray is not installed, or the provenance does not describe the arrays.
    """
    xarray = _library("xarray")
    arrays = sample_arrays(sample)
    axes = array_axes(sample.provenance, {name: array.shape for name, array in arrays.items()})
    found: dict[str, Any] = {}
    coordinates: dict[str, Any] = {}
    for name, array in arrays.items():
        dims = [axis.name if axis.name == "depth" else _PREFIX[name] + axis.name for axis in axes[name]]
        shaped = array.reshape([len(axis.coordinates) for axis in axes[name]])
        found[name] = (dims, shaped, {"units": (UNITS | OPTIONAL_UNITS)[name]})
        along = zip(dims, axes[name], strict=True)
        coordinates |= {dim: (dim, axis.coordinates, {"units": axis.units}) for dim, axis in along}
    return xarray.Dataset(found, coordinates, {"provenance": json.dumps(sample.provenance, ensure_ascii=False)})


def to_hyperspy(sample: SampleArrays) -> Any:
    """Returns the patterns of a sample as HyperSpy's `Signal2D`, with the scan as navigation axes in Å.

    The patterns are not copied. HyperSpy's metadata have the beam energy and the semi-angle, its original metadata the
    provenance.

    Raises:
        InputError: If HyperSpy is not installed, or the provenance does not describe the arrays.
    """
    hyperspy = _library("hyperspy", "hyperspy.api")
    arrays = sample_arrays(sample)
    axes = array_axes(sample.provenance, {name: array.shape for name, array in arrays.items()})["cbed"]
    described = [
        {
            "name": axis.name,
            "units": axis.units,
            "size": len(axis.coordinates),
            "offset": float(axis.coordinates[0]),
            "scale": float(np.diff(axis.coordinates[:2])[0]) if len(axis.coordinates) > 1 else 1.0,
            "navigate": number < len(axes) - 2,
        }
        for number, axis in enumerate(axes)
    ]
    beam = {
        "beam_energy": sample.provenance["energy_ev"] / 1e3,  # keV
        "convergence_angle": sample.provenance["semiangle_mrad"],
        "acquisition_mode": "STEM",
    }
    return hyperspy.signals.Signal2D(
        sample.cbed.reshape(stack_shape(sample)),
        axes=described,
        metadata={
            "General": {"title": str(sample.provenance.get("id", "sample"))},
            "Signal": {"quantity": f"Intensity ({UNITS['cbed']})"},
            "Acquisition_instrument": {"TEM": beam},
        },
        original_metadata=sample.provenance,
    )


def _library(package: str, module: str = "") -> Any:
    """Imports a library that may be missing."""
    try:
        return importlib.import_module(module or package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise InputError(f"{package} is not installed: pip install {package}") from None
