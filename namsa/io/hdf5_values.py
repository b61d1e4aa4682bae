"""Values, names and sizes in an HDF5 file as JSON has them, for `namsa.io.hdf5_process`."""

import h5py
import numpy as np

TEXT_BYTES = 64 * 2**20  # of an attribute: the provenance of a scan holds all its positions
VALUES = 64  # in a small array


def path_parts(name: str) -> list[str]:
    """Returns the names on the way to an object."""
    return [name_of_item for name_of_item in name.split("/") if name_of_item not in ("", ".")]


def encoded(name: str) -> bytes:
    """Returns a name as HDF5 stores it; h5py decodes bytes that are not UTF-8 as surrogates."""
    return name.encode(errors="surrogateescape")


def is_small(stored: h5py.h5a.AttrID | h5py.h5d.DatasetID) -> bool:
    """Returns whether an attribute or a dataset is not empty and has few values of bounded size."""
    space = stored.get_space()
    if space.get_simple_extent_type() == h5py.h5s.NULL:
        return False
    if not 0 < space.get_simple_extent_npoints() <= VALUES:
        return False
    return bool(stored.get_type().get_size() <= TEXT_BYTES)


def json_value(value: object) -> object:
    """Returns numbers, text, or a list of them; `None` for all else."""
    if isinstance(value, np.ndarray):
        return _json_array(value)
    if isinstance(value, str | bytes):
        data = value.encode(errors="surrogateescape") if isinstance(value, str) else bytes(value)
        if len(data) <= TEXT_BYTES:
            return data.decode(errors="replace")
        return None
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value)
    return None


def _json_array(array: np.ndarray) -> object:
    """Returns the values of an array as a list, or its one value; `None` if one is unknown."""
    values = [json_value(value) for value in array.ravel()]
    if not values or None in values:
        return None
    return values[0] if array.ndim == 0 else values
