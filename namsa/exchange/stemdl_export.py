"""Writes samples in the layouts of `namsa.exchange.stemdl`, and such samples as NumPy files."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import lmdb
import numpy as np
import numpy.typing as npt
from scipy.ndimage import gaussian_filter, zoom

from namsa.base.arrays import Array
from namsa.base.errors import InputError, WorkError
from namsa.base.folders import new_folder
from namsa.base.pixels import pattern_grid, scan_positions
from namsa.base.provenance_values import value
from namsa.base.text import plural
from namsa.dataset.empty import check_not_empty
from namsa.dataset.shards import Dataset
from namsa.exchange.stemdl import open_stemdl
from namsa.exchange.stemdl_stacks import write_stacks
from namsa.samples.sample import Sample

NAME = re.compile(r"batch_(train|dev|eval|test)_\d+\.(db|h5)")
SPLITS = {"eval": "dev"}  # their word, and the name of that split here
# how keys begin
INPUT = "cbed_"
OUTPUT = "2d_potential_"
BLUR_PIXELS = 1.2  # standard deviation
COVERED = 0.99  # part of the half of the cell below which a note calls the scan smaller
ROOM_BYTES = 2**26  # of the tree's pages, in the address space alone


def standardised_patterns(sample: Sample, name: str) -> npt.NDArray[np.float16]:
    """Returns patterns (n, dy, dx), each less its mean, over its deviation. Raises InputError for a
    constant one.
    """
    cbed = sample.cbed.astype(np.float64)
    deviation = cbed.std((1, 2), keepdims=True)
    wrong = np.flatnonzero(~(deviation > 0))
    if wrong.size:
        raise InputError(
            f"{name}: pattern {wrong[0]} is the same in all pixels or not finite: it has no scale"
        )
    return ((cbed - cbed.mean((1, 2), keepdims=True)) / deviation).astype(np.float16)


def standardised_potential(
    sample: Sample, shape: tuple[int, int] | None = None
) -> npt.NDArray[np.float16]:
    """Returns the projected potential (1, y, x), blurred, its half about the middle of the scan,
    resized, standardised.

    The cell is periodic, so that the half may cross its edge. The deviation is at least 1/√size.
    The authors' programs take the mean imaginary part of the slices' transmission functions in
    place of the potential, which is proportional to it for weak slices.

    Args:
        shape: Rows and columns of the result, by splines of order 4; default (ny // 2, nx // 2).
    """
    blurred = gaussian_filter(
        sample.projected_potential.astype(np.float64), BLUR_PIXELS, mode="wrap"
    )
    ny, nx = blurred.shape
    positions = (
        scan_positions(sample.provenance)
        * blurred.shape
        / value(sample.provenance, "extent_angstrom")
    )
    middle = (positions.min(0) + positions.max(0)) / 2
    rows = np.arange(ny // 2) + round(middle[0] - (ny // 2 - 1) / 2)
    columns = np.arange(nx // 2) + round(middle[1] - (nx // 2 - 1) / 2)
    half = blurred[np.ix_(rows % ny, columns % nx)]
    if shape and shape != half.shape:
        half = resized(half, shape)
    scale = max(half.std(), half.size**-0.5)
    return ((half - half.mean()) / scale).astype(np.float16)[np.newaxis]


def covered_part(sample: Sample) -> float:
    """Returns the part of the half of the cell about the middle of a scan that the scan's pixels
    cover.
    """
    sides = np.array(value(sample.provenance, "extent_angstrom")) / 2
    positions = scan_positions(sample.provenance)
    shape = value(sample.provenance, "scan_shape", None)
    reach = positions.max(0) - positions.min(0)
    if shape:  # with half a step around the outer positions
        reach *= [n / max(1, n - 1) for n in shape]
    return float(np.minimum(1, reach / sides).prod())


def resized(image: Array, shape: tuple[int, int]) -> Array:
    """Returns an image of the same area with other pixels, by splines of order 4."""
    factors = [new / old for new, old in zip(shape, image.shape, strict=True)]
    return np.asarray(zoom(image, factors, order=4, mode="nearest", grid_mode=True))


def write_stemdl(data: Path, out: Path) -> tuple[int, list[str]]:
    """Writes the samples of one split of a dataset; the folder or file appears only when it is
    complete.

    Args:
        out: The folder batch_<mode>_<rank>.db (LMDB), or the file batch_<mode>_<rank>.h5 (HDF5, as
            of `write_stacks`). Its mode names the split: train, test, dev (or eval).

    Returns:
        The number of samples, and lines about what was resized or left out, about scans that are
        smaller than the half of the cell, and about pixels beyond the simulation's band limit.

    Raises:
        InputError: If the name is another, the split has no samples, or these have several shapes.
        WorkError: If a sample is damaged or the folder cannot be written.
    """
    named = NAME.fullmatch(out.name)
    if not named:
        raise InputError(
            f"--out {out}: name it batch_<mode>_<rank>.db or .h5 with mode train, test, dev or eval"
        )
    split = SPLITS.get(named[1], named[1])
    if out.suffix == ".h5":
        return write_stacks(data, out, split)
    with Dataset(data) as dataset:
        check_not_empty(data, dataset)
        halves = _halves(dataset, split)
        if not halves:
            raise InputError(
                f"{data} has no sample of the split {split}, which {out.name} stands for"
            )
        smallest = min(y for y, _ in halves.values()), min(x for _, x in halves.values())
        with new_folder(out) as folder:
            try:
                written = _write(dataset, list(halves), folder, smallest)
            except lmdb.Error as error:
                raise WorkError(f"cannot write {out}: {error}") from None
            (folder / "lock.mdb").unlink(missing_ok=True)
    return len(halves), _remarks(list(halves.values()), smallest, written)


class WrittenSamples(NamedTuple):
    """Notes on the samples that were written."""

    beyond_limit: list[str]  # names of those with pixels beyond the band limit of their simulation
    covered_parts: list[float]  # `covered_part` of each


def _remarks(
    halves: Sequence[tuple[int, int]], smallest: tuple[int, int], written: WrittenSamples
) -> list[str]:
    """Returns lines about what was resized, about small scans and about empty pixels."""
    lines = []
    resized_count = sum(half != smallest for half in halves)
    if resized_count:
        size = "×".join(map(str, smallest))
        lines.append(
            f"{plural(resized_count, 'potential')} resized to the smallest, {size}: pixels differ "
            "in Å"
        )
    small = [share for share in written.covered_parts if share < COVERED]
    if small:
        lines.append(
            f"{plural(len(small), 'sample')} whose scan covers less than the half of the cell "
            f"whose potential is written, the least {min(small):.0%} of it: the patterns do not "
            "show the rest"
        )
    beyond = written.beyond_limit
    if beyond:
        lines.append(
            f"{plural(len(beyond), 'sample')}, as {beyond[0]}, with empty pixels, which are in the "
            "mean"
        )
    return lines


def _halves(dataset: Dataset, split: str) -> dict[str, tuple[int, int]]:
    """Returns the shapes of the central halves of the potentials, by the samples of a split."""
    halves = {}
    for name in dataset.ids:
        with dataset.view(name, check=False) as record:
            if record.header["provenance"].get("split") == split:
                ny, nx = record.projected_potential.shape
                halves[name] = (ny // 2, nx // 2)
    return halves


def _write(
    dataset: Dataset, ids: Sequence[str], folder: Path, half: tuple[int, int]
) -> WrittenSamples:
    """Writes the records, one transaction for each sample, which holds its pages in memory."""
    written = WrittenSamples([], [])
    arrays = _arrays(dataset.read_sample(ids[0]), ids[0], half)
    shapes = {key: array.shape for key, array in arrays.items()}
    sample_bytes = sum(array.nbytes + 2**13 for array in arrays.values())
    room = len(ids) * sample_bytes + ROOM_BYTES
    with lmdb.open(str(folder), map_size=room, sync=False) as environment:
        with environment.begin(write=True) as transaction:
            _put_header(transaction, shapes)
        for index, name in enumerate(ids):
            sample = dataset.read_sample(name)
            arrays = _arrays(sample, name, half)
            for key, array in arrays.items():
                if array.shape != shapes[key]:
                    raise InputError(
                        f"{name} has {key}{index} of shape {array.shape}, and {ids[0]} of "
                        f"{shapes[key]}: a file has one shape"
                    )
            with environment.begin(write=True) as transaction:
                for key, array in arrays.items():
                    transaction.put(f"{key}{index}".encode(), array.astype("<f2").tobytes())
            if pattern_grid(sample.provenance).emptiness(sample.cbed.shape[1:]):
                written.beyond_limit.append(name)
            written.covered_parts.append(covered_part(sample))
        environment.sync(True)
    return written


def _put_header(transaction: lmdb.Transaction, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Writes the records that describe the others."""
    for kind, key in (("input", INPUT), ("output", OUTPUT)):
        transaction.put(f"{kind}_name".encode(), key.encode())
        transaction.put(f"{kind}_dtype".encode(), b"float16")
        transaction.put(f"{kind}_shape".encode(), np.array(shapes[key], "<i8").tobytes())


def _arrays(sample: Sample, name: str, half: tuple[int, int]) -> dict[str, npt.NDArray[np.float16]]:
    return {
        INPUT: standardised_patterns(sample, name),
        OUTPUT: standardised_potential(sample, half),
    }


def write_npz(data: Path, out: Path) -> tuple[int, list[str]]:
    """Writes the samples of a file of the authors as `sample_<n>.npz`, in a folder that appears
    when it is complete.

    Each holds `patterns`, `potential` if there is one, and as text `name` and `attributes` (JSON).

    Args:
        data: What `open_stemdl` opens.

    Returns:
        The number of samples, and lines about what is left out or not finite.

    Raises:
        InputError: If the file cannot be read, or there is something at `out`.
        WorkError: If the folder cannot be written.
    """
    with open_stemdl(data) as file, new_folder(out) as folder:
        lines = list(file.notes)
        wrong = 0
        for index, name in enumerate(file.names):
            sample = file.read(name)
            arrays = {"patterns": sample.patterns}
            if sample.potential is not None:
                arrays["potential"] = sample.potential
            if not all(np.isfinite(array).all() for array in arrays.values()):
                wrong += 1
            texts = {"name": np.array(name), "attributes": np.array(json.dumps(sample.attributes))}
            np.savez(folder / f"sample_{index:05d}.npz", **arrays, **texts)
    if wrong:
        lines.append(
            f"{plural(wrong, 'sample')} with values that are not finite, written as they are"
        )
    return len(file.names), lines
