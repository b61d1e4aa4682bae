"""A scan as .zspy, HyperSpy's Zarr store: version 2 of Zarr, which more programs read, chunks as in
`compression`.

HyperSpy counts the first axes of an array as navigation, the last two as signal.
"""

import importlib.util
from pathlib import Path

from namsa.base.errors import InputError
from namsa.base.folders import new_folder
from namsa.base.pixels import UNITS
from namsa.exchange.patterns import copy_patterns
from namsa.exchange.task import warn_beyond_limit
from namsa.io.calibration import FourDData
from namsa.io.compression import chunk_shape

FORMAT_VERSION = "3.1"  # of HyperSpy's hierarchical files


def write_zspy(scan: FourDData, path: Path) -> None:
    """Writes a scan; the store appears only when it is complete, and no file or folder is replaced.

    Raises:
        InputError: If the name has another ending or is taken by more than an empty folder, or zarr
            is missing.
        WorkError: If the store cannot be written.

    Warns:
        SimulationWarning: If patterns have pixels beyond the band limit of their simulation.
    """
    if path.suffix != ".zspy":
        raise InputError(f"--out {path}: end it in .zspy")
    if not importlib.util.find_spec("zarr"):
        raise InputError("a .zspy store needs the package zarr: pip install namsa[formats]")
    warn_beyond_limit(scan)
    with new_folder(path) as partial:
        _write(scan, partial, path.stem)


def _write(scan: FourDData, folder: Path, title: str) -> None:
    """Writes the store, a few rows of the scan at a time."""
    import zarr

    root = zarr.open_group(folder, mode="w", zarr_format=2)
    root.attrs.update({"file_format": "ZSpy", "file_format_version": FORMAT_VERSION})
    signal = root.create_group("Experiments").create_group(title)
    dtype = scan.data.dtype.newbyteorder("<")
    chunks = chunk_shape(scan.shape, dtype.itemsize)
    data = signal.create_array("data", shape=scan.shape, dtype=dtype, chunks=chunks)
    y, x = scan.centre_pixels or tuple((n - 1) / 2 for n in scan.shape[2:])
    row, column = scan.scan_step_angstrom
    first_row, first_column = scan.scan_origin_angstrom
    axes = [
        ("y", "Å", row, first_row, True),
        ("x", "Å", column, first_column, True),
        ("ky", "mrad", scan.pixel_mrad[0], -y * scan.pixel_mrad[0], False),
        ("kx", "mrad", scan.pixel_mrad[1], -x * scan.pixel_mrad[1], False),
    ]
    for index, (name, units, scale, offset, navigate) in enumerate(axes):
        axis = signal.create_group(f"axis-{index}")
        axis.attrs.update({"_type": "UniformDataAxis", "name": name, "units": units})
        axis.attrs.update({"size": scan.shape[index], "scale": float(scale)})
        axis.attrs.update({"offset": float(offset), "navigate": navigate, "is_binned": False})
    signal.create_group("original_metadata")
    signal.create_group("learning_results")
    metadata = signal.create_group("metadata")
    metadata.create_group("General").attrs["title"] = title
    quantity = UNITS["cbed"] if scan.normalised else ""
    metadata.create_group("Signal").attrs.update({"signal_type": "", "quantity": quantity})
    beam = {"beam_energy": scan.energy_ev / 1e3, "convergence_angle": scan.semiangle_mrad}
    metadata.create_group("Acquisition_instrument").create_group("TEM").attrs.update(beam)
    copy_patterns(scan, data)
