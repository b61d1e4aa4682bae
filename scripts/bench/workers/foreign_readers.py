"""Reads a file with py4DSTEM and HyperSpy for readers.py, in an environment of its own, since both
are GPL.

Reads the path of a file per line and answers each with one JSON line: for each reader its version
and, by array, the shape and the names, units, scales and offsets of the axes.
"""

import json
import sys
import warnings
from contextlib import redirect_stdout
from importlib.metadata import version
from typing import Any

import h5py
import hyperspy.api as hs
import numpy as np
import py4DSTEM

warnings.simplefilter("ignore")


def run(path: str) -> dict[str, Any]:
    return {
        "py4DSTEM": {"version": version("py4dstem"), "trees": with_py4dstem(path)},
        "HyperSpy": {"version": version("hyperspy"), "trees": with_hyperspy(path)},
    }


def with_py4dstem(path: str) -> dict[str, Any]:
    tree = py4DSTEM.read(path)  # one tree, or the list of their names
    if isinstance(tree, list):
        roots = [py4DSTEM.read(path, datapath=name) for name in tree]
    else:
        roots = [tree]
    trees = {}
    for root in roots:
        arrays = {name: root.tree(name) for name in ("cbed", "density", "projected_potential")}
        trees[root.name] = {name: py4dstem_array(array) for name, array in arrays.items()}
    return trees


def py4dstem_array(array: Any) -> dict[str, Any]:
    axes = []
    for name, unit, along in zip(array.dim_names, array.dim_units, array.dims, strict=True):
        axes.append(
            {
                "name": name,
                "units": unit,
                "scale": float(np.diff(along).mean()),
                "offset": float(along[0]),
            }
        )
    seen: dict[str, Any] = {
        "class": type(array).__name__,
        "shape": list(array.data.shape),
        "axes": axes,
    }
    if isinstance(array, py4DSTEM.DataCube):
        calibration = array.calibration
        seen |= {
            "origin_pixels": [float(q) for q in calibration.get_origin()],
            "semiangle_pixels": float(calibration.get_probe_semiangle()),
        }
    return seen


def with_hyperspy(path: str) -> dict[str, Any]:
    trees: dict[str, Any] = {}
    with h5py.File(path) as file:
        names = [
            (tree, array) for tree in file for array in file[tree] if "data" in file[tree][array]
        ]
    # Where one sample's name ends with another's, the reader would stack the two.
    signals = hs.load(path, file_format="EMD", stack_group=False)
    for (tree, name), signal in zip(names, signals, strict=True):
        axes = [
            {
                "name": axis.name,
                "units": str(axis.units),
                "scale": axis.scale,
                "offset": axis.offset,
            }
            for axis in sorted(signal.axes_manager._axes, key=lambda axis: axis.index_in_array)
        ]
        trees.setdefault(tree, {})[name] = {
            "class": f"{type(signal).__name__} {signal.metadata.General.title}",
            "shape": list(signal.data.shape),
            "axes": axes,
        }
    return trees


if __name__ == "__main__":
    for line in sys.stdin:
        with redirect_stdout(sys.stderr):
            answer = run(line.strip())
        print(json.dumps(answer), flush=True)
