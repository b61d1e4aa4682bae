"""Reads a file with py4DSTEM and HyperSpy for readers.py, in an environment of its own, since both
are GPL.

Reads one JSON job per line ("path", "dpc": where to write a deflection image, or null) and answers
each with one JSON line: for each reader its version and, by array, the shape and the names, units,
scales and offsets of the axes.
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


def run(job: dict[str, Any]) -> dict[str, Any]:
    return {
        "py4DSTEM": {
            "version": version("py4dstem"),
            "trees": with_py4dstem(job["path"], job["dpc"]),
        },
        "HyperSpy": {"version": version("hyperspy"), "trees": with_hyperspy(job["path"])},
    }


def with_py4dstem(path: str, dpc: str | None) -> dict[str, Any]:
    tree = py4DSTEM.read(path)  # one tree, or the list of their names
    if isinstance(tree, list):
        roots = [py4DSTEM.read(path, datapath=name) for name in tree]
    else:
        roots = [tree]
    trees = {}
    for root in roots:
        arrays = {name: root.tree(name) for name in ("cbed", "density", "projected_potential")}
        trees[root.name] = {name: py4dstem_array(array) for name, array in arrays.items()}
        if isinstance(arrays["cbed"], py4DSTEM.DataCube) and dpc:
            np.savez(dpc, **dpc_images(arrays["cbed"]))
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


def dpc_images(cube: Any) -> dict[str, np.ndarray]:
    """py4DSTEM's own bright field, deflections and phase, from nothing but the file's
    calibration.
    """
    calibration = cube.calibration
    disk = (calibration.get_origin(), calibration.get_probe_semiangle())
    bright = cube.get_virtual_image(mode="circle", geometry=disk, name="bright", verbose=False)
    reconstruction = py4DSTEM.process.phase.DPC(datacube=cube, energy=200e3, verbose=False)
    reconstruction.preprocess(
        force_com_rotation=0,
        force_com_transpose=False,
        plot_center_of_mass=False,
        plot_rotation=False,
    )
    reconstruction.reconstruct(progress_bar=False)
    return {
        "bright_field": bright.data,
        "deflection_y": reconstruction._com_measured_x,  # py4DSTEM's x is an array's first axis
        "deflection_x": reconstruction._com_measured_y,
        "phase": reconstruction.object_phase,
    }


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
            answer = run(json.loads(line))
        print(json.dumps(answer), flush=True)
