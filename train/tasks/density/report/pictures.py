"""The samples that a report shows: densities and patterns, kept in `predictions.npz`."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, TypedDict

import numpy as np
import numpy.typing as npt
from pydantic import Field

from namsa.base.errors import InputError
from namsa.base.files import open_atomic
from namsa.base.json_files import parse_json, parse_typed
from namsa.base.numpy_files import read_npz
from namsa.base.pixels import density_grid, pattern_grid, scan_positions
from namsa.base.provenance_values import value
from namsa.base.text import shorten
from namsa.dataset.records import Record
from namsa.figures.sample_figure import example_probes

from ....reports.results import EVALUATE_AGAIN
from ..results import SampleRow

Array = npt.NDArray[np.float32]
Pair = Annotated[Sequence[float], Field(min_length=2, max_length=2)]


SMALLEST_STEP = 1e-6  # Å or mrad
Step = Annotated[float, Field(ge=SMALLEST_STEP, le=1 / SMALLEST_STEP)]
# step and origin of pixels, (y, x)
Frame = tuple[Annotated[Sequence[Step], Field(min_length=2, max_length=2)], Pair]

LARGEST_FILE_BYTES = 2**30  # of all arrays, unpacked


class PictureFacts(SampleRow):
    """Facts about a sample that is shown. Frames are `namsa.base.pixels.PixelGrid`, as lists (step,
    origin) of (y, x).
    """

    energy_ev: float  # beam energy, eV
    semiangle_mrad: float  # convergence semiangle, mrad
    extent_angstrom: Pair  # size (y, x) of the cell, Å
    density_frame: Frame  # pixels of the densities, Å
    pattern_frame: Frame  # pixels of the patterns, mrad
    probes_angstrom: Sequence[Pair]  # positions (y, x) of the probes whose patterns are shown, Å


@dataclass(frozen=True)
class SamplePicture:
    """All that the report shows of one sample."""

    facts: PictureFacts  # the sample's row of `evaluation.json` and where its pixels are
    truth: Array  # density of the sample, (h, w), e/Å²
    prediction: Array  # density that the network estimates, (h, w), e/Å²
    position_averaged: Array  # mean of all patterns, (ky, kx), fraction of the beam
    patterns: Array  # patterns at `probes_angstrom`, (n, ky, kx), fraction of the beam

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays by name."""
        return {name: getattr(self, name) for name in ARRAYS}


ARRAYS = tuple(field.name for field in fields(SamplePicture) if field.name != "facts")


def picture(row: SampleRow, record: Record, prediction: Array) -> SamplePicture:
    """Returns what the report shows of a sample, whose density is estimated, (h, w), e/Å²."""
    provenance = record.provenance
    patterns = record.patterns()
    angles = pattern_grid(provenance)
    positions = scan_positions(provenance).tolist()
    semiangle_mrad = value(provenance, "semiangle_mrad")
    extent = value(provenance, "extent_angstrom")
    image = density_grid(provenance)
    probes = example_probes(patterns, angles, semiangle_mrad, positions)
    facts: PictureFacts = {
        **row,
        "energy_ev": value(provenance, "energy_ev"),
        "semiangle_mrad": semiangle_mrad,
        "extent_angstrom": extent,
        # Of a scan of one row, whose step is 0, the pixel is as high as the cell.
        "density_frame": (
            [step or side for step, side in zip(image.step, extent, strict=True)],
            image.origin,
        ),
        "pattern_frame": (angles.step, angles.origin),
        "probes_angstrom": [positions[probe] for probe in probes],
    }
    return SamplePicture(
        facts, record.density, prediction, patterns.mean(axis=0), patterns[list(probes)]
    )


# ---- Between ranks
# --------------------------------------------------------------------------------------------------


class EncodedArray(TypedDict):
    """An array in JSON types."""

    shape: Sequence[int]
    float32: str  # its values in base64, little-endian


class EncodedPicture(TypedDict):
    """A picture in JSON types."""

    facts: PictureFacts
    arrays: dict[str, EncodedArray]


def to_json(picture: SamplePicture) -> EncodedPicture:
    """Returns a picture as JSON types, so that ranks can send it."""
    arrays = {name: encode_array(array) for name, array in picture.arrays.items()}
    return {"facts": picture.facts, "arrays": arrays}


def from_json(encoded: EncodedPicture) -> SamplePicture:
    """Returns the picture that `to_json` was given."""
    arrays = {name: decode_array(array) for name, array in encoded["arrays"].items()}
    return SamplePicture(encoded["facts"], **arrays)


def encode_array(array: npt.NDArray[np.floating]) -> EncodedArray:
    """Returns an array as JSON types, in float32."""
    raw = np.ascontiguousarray(array, "<f4")
    return {"shape": raw.shape, "float32": base64.b64encode(raw.tobytes()).decode()}


def decode_array(value: EncodedArray) -> Array:
    """Returns the array that `encode_array` was given."""
    return np.frombuffer(base64.b64decode(value["float32"]), "<f4").reshape(value["shape"])


# ---- The file
# --------------------------------------------------------------------------------------------------


def write_predictions(
    path: Path, pictures: Sequence[SamplePicture], mean_image: npt.NDArray[np.floating]
) -> None:
    """Writes a `predictions.npz`, over another if there is one.

    It holds, in float32, "mean_image" (h, w), the mean of the training targets, e/Å², and
    "{id}/{name}" for each of `ARRAYS`; and "metadata": a JSON list with the facts of each picture,
    in the order of display.
    """
    arrays = {}
    for picture in pictures:
        for name, array in picture.arrays.items():
            arrays[f"{picture.facts['id']}/{name}"] = array.astype(np.float32)
    facts = [picture.facts for picture in pictures]
    metadata = np.array(json.dumps(facts, allow_nan=False))
    with open_atomic(path) as file:
        np.savez_compressed(
            file, metadata=metadata, mean_image=mean_image.astype(np.float32), **arrays
        )


def read_predictions(path: Path) -> tuple[list[SamplePicture], Array]:
    """Reads `predictions.npz`: pictures in order, and the mean image, (h, w), e/Å². Raises
    InputError for another.
    """
    arrays = read_npz(path, largest_bytes=LARGEST_FILE_BYTES)
    metadata = arrays.get("metadata", np.empty(0))
    if metadata.dtype.kind != "U" or metadata.ndim:
        raise InputError(f"{path} has no metadata: {EVALUATE_AGAIN}")
    text = metadata.tobytes().decode(
        "utf-32-be" if metadata.dtype.byteorder == ">" else "utf-32-le", "replace"
    )
    listed = parse_json(text.rstrip("\0"), f"{path}: its metadata")
    facts = parse_typed(
        list[PictureFacts], json.dumps(listed), f"{path}: its metadata", EVALUATE_AGAIN
    )
    pictures = [_read_picture(arrays, facts_of_one, path) for facts_of_one in facts]
    return pictures, _image(arrays, "mean_image", path)


def _read_picture(
    arrays: Mapping[str, npt.NDArray[np.floating]], facts: PictureFacts, path: Path
) -> SamplePicture:
    """Returns one picture of a file, whose arrays fit together."""
    images = {}
    for name in ARRAYS:
        axes = 3 if name == "patterns" else 2
        images[name] = _image(arrays, f"{facts['id']}/{name}", path, axes)
    picture = SamplePicture(facts, **images)
    same = (
        picture.truth.shape == picture.prediction.shape
        and picture.patterns.shape[1:] == picture.position_averaged.shape
    )
    if not same or len(picture.patterns) != len(facts["probes_angstrom"]):
        shapes = ", ".join(f"{name} {image.shape}" for name, image in images.items())
        raise InputError(
            f"{path}: the arrays of {shorten(facts['id'])} do not fit together, {shapes}: "
            f"{EVALUATE_AGAIN}"
        )
    return picture


def _image(
    arrays: Mapping[str, npt.NDArray[np.floating]], name: str, path: Path, axes: int = 2
) -> Array:
    """Returns an array of finite numbers with some pixels and so many axes."""
    array = arrays.get(name, np.empty(0))
    if (
        array.dtype.kind != "f"
        or array.ndim != axes
        or not array.size
        or not np.isfinite(array).all()
    ):
        raise InputError(
            f"{path} has no {shorten(name)} of {axes} axes and finite numbers: {EVALUATE_AGAIN}"
        )
    return array
