"""The samples that a report shows: densities and patterns, kept in `predictions.npz`."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.dataset.records import Record
from namsa.files import open_atomic
from namsa.pixels import density_grid, pattern_grid
from namsa.view.signals import example_probes
from train.reports.results import SampleRow

Array = npt.NDArray[np.float32]


class PictureFacts(SampleRow):
    """Facts about a sample that is shown. Frames are `namsa.pixels.PixelGrid`, as lists (step, origin) of (y, x).

    Attributes:
        energy_ev: Beam energy, eV.
        semiangle_mrad: Convergence semiangle, mrad.
        extent_angstrom: Size (y, x) of the cell, Å.
        density_frame: Pixels of the densities, Å.
        pattern_frame: Pixels of the patterns, mrad.
        probes_angstrom: Positions (y, x) of the probes whose patterns are shown, Å.
    """

    energy_ev: float
    semiangle_mrad: float
    extent_angstrom: Sequence[float]
    density_frame: Sequence[Sequence[float]]
    pattern_frame: Sequence[Sequence[float]]
    probes_angstrom: Sequence[Sequence[float]]


@dataclass(frozen=True)
class Picture:
    """All that the report shows of one sample.

    Attributes:
        facts: The sample's row of `evaluation.json` and where its pixels are.
        truth: Density of the sample, (h, w), e/Å².
        prediction: Density that the network estimates, (h, w), e/Å².
        position_averaged: Mean of all patterns, (ky, kx), fraction of the beam.
        patterns: Patterns at `probes_angstrom`, (n, ky, kx), fraction of the beam.
    """

    facts: PictureFacts
    truth: Array
    prediction: Array
    position_averaged: Array
    patterns: Array

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays by name."""
        return {name: getattr(self, name) for name in ARRAYS}


ARRAYS = tuple(field.name for field in fields(Picture) if field.name != "facts")


def picture(row: SampleRow, record: Record, prediction: Array) -> Picture:
    """Returns what the report shows of a sample.

    Args:
        row: The sample's row of `evaluation.json`.
        record: The sample.
        prediction: Estimated density, (h, w), e/Å².
    """
    provenance, patterns = record.provenance, record.patterns()
    angles, positions = pattern_grid(provenance), provenance["positions_angstrom"]
    probes = example_probes(patterns, angles, provenance["semiangle_mrad"], positions)
    facts: PictureFacts = {
        **row,
        "energy_ev": provenance["energy_ev"],
        "semiangle_mrad": provenance["semiangle_mrad"],
        "extent_angstrom": provenance["extent_angstrom"],
        "density_frame": density_grid(provenance),
        "pattern_frame": angles,
        "probes_angstrom": [positions[probe] for probe in probes],
    }
    return Picture(facts, record.density, prediction, patterns.mean(axis=0), patterns[list(probes)])


# ---- Between ranks --------------------------------------------------------------------------------------------------


def to_json(picture: Picture) -> dict[str, Any]:
    """Returns a picture as JSON types, so that ranks can send it."""
    return {"facts": picture.facts, **{name: _encode(array) for name, array in picture.arrays.items()}}


def from_json(value: dict[str, Any]) -> Picture:
    """Returns the picture that `to_json` was given."""
    return Picture(value["facts"], **{name: _decode(value[name]) for name in ARRAYS})


def _encode(array: npt.NDArray[Any]) -> dict[str, Any]:
    raw = np.ascontiguousarray(array, "<f4")
    return {"shape": raw.shape, "float32": base64.b64encode(raw.tobytes()).decode()}


def _decode(value: dict[str, Any]) -> Array:
    return np.frombuffer(base64.b64decode(value["float32"]), "<f4").reshape(value["shape"])


# ---- The file -------------------------------------------------------------------------------------------------------


def write_predictions(path: Path, pictures: Sequence[Picture], mean_image: npt.NDArray[Any]) -> None:
    """Writes a `predictions.npz`.

    It holds, in float32, "mean_image" (h, w) and "{id}/{name}" for each of `ARRAYS`, and "metadata": a JSON list with
    the facts of each picture, in the order of display.

    Args:
        path: The file; replaced if it exists.
        pictures: The samples to show, in the order of display.
        mean_image: Mean of the training targets, (h, w), e/Å².

    Raises:
        WorkError: If the file cannot be written.
    """
    arrays = {
        f"{each.facts['id']}/{name}": array.astype(np.float32)
        for each in pictures
        for name, array in each.arrays.items()
    }
    metadata = np.array(json.dumps([each.facts for each in pictures], allow_nan=False))
    with open_atomic(path) as file:
        np.savez_compressed(file, metadata=metadata, mean_image=mean_image.astype(np.float32), **arrays)


def read_predictions(path: Path) -> tuple[list[Picture], Array]:
    """Reads a `predictions.npz`.

    Args:
        path: The file.

    Returns:
        The pictures in the order of display, and the mean image, (h, w), e/Å².

    Raises:
        OSError: If the file cannot be read.
        ValueError, KeyError: If it is no such file.
    """
    with np.load(path, allow_pickle=False) as file:
        metadata = json.loads(str(file["metadata"]))
        pictures = [Picture(facts, **{name: file[f"{facts['id']}/{name}"] for name in ARRAYS}) for facts in metadata]
        return pictures, file["mean_image"]
