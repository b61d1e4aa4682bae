"""Writes samples in the layouts of `namsa.exchange.stemdl`, and that file's samples as NumPy files.

The HDF5 files of STEMDL's classification (doi:10.13139/OLCF/1510313) have groups `sample_<i>_<j>`. Number i is a
specimen of which the dataset has three zone axes, and j a position of its scan. `cbed_stack` (3, dy, dx), float32, has
the patterns at that position along the three, as fractions of the beam. Attributes are `space_group` (its number),
`material`, `formula`, `energy` (keV), `semi_angles` (mrad), `aberrations` (C10, C30 and C50, Å) and `zone_axes` (3, 3).
A dataset does not hold the crystal's cell, so that `abc`, `angles` and `d_hkl` are not written.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import numpy.typing as npt
from scipy.ndimage import gaussian_filter, zoom

from namsa.dataset import manifest
from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset
from namsa.dataset.strata import space_group_numbers
from namsa.errors import InputError, WorkError
from namsa.exchange.stemdl import open_stemdl
from namsa.files import new_folder
from namsa.io.hdf5 import write_file
from namsa.pixels import pattern_grid, scan_positions
from namsa.provenance_values import value
from namsa.sample import Sample
from namsa.text import plural

STACKED = 3  # zone axes of a sample
NAME = re.compile(r"batch_(train|dev|eval|test)_\d+\.(db|h5)")
SPLITS = {"eval": "dev"}  # their word, and the name of that split here
INPUT, OUTPUT = "cbed_", "2d_potential_"  # how keys begin
BLUR_PIXELS = 1.2  # standard deviation
COVERED = 0.99  # part of the half of the cell below which a scan is said to be smaller
ROOM_BYTES = 2**26  # of the tree's pages, in the address space alone


def standardised_patterns(sample: Sample, name: str) -> npt.NDArray[np.float16]:
    """Returns patterns (n, dy, dx), each less its mean, over its deviation. Raises InputError for a constant one."""
    cbed = sample.cbed.astype(np.float64)
    deviation = cbed.std((1, 2), keepdims=True)
    if wrong := np.flatnonzero(~(deviation > 0)).tolist():
        raise InputError(f"{name}: pattern {wrong[0]} is the same in all pixels or not finite: it has no scale")
    return ((cbed - cbed.mean((1, 2), keepdims=True)) / deviation).astype(np.float16)


def standardised_potential(sample: Sample, shape: tuple[int, int] | None = None) -> npt.NDArray[np.float16]:
    """Returns the projected potential (1, y, x), blurred, its half about the middle of the scan, resized, standardised.

    The cell is periodic, so that the half may cross its edge. The deviation is at least 1/√size. The authors' programs
    take the mean imaginary part of the slices' transmission functions in place of the potential, which is proportional
    to it for weak slices.

    Args:
        shape: Rows and columns of the result, by splines of order 4; default (ny // 2, nx // 2).
    """
    blurred = gaussian_filter(sample.projected_potential.astype(np.float64), BLUR_PIXELS, mode="wrap")
    ny, nx = blurred.shape
    positions = scan_positions(sample.provenance) * blurred.shape / value(sample.provenance, "extent_angstrom")
    middle = (positions.min(0) + positions.max(0)) / 2
    rows, columns = (np.arange(n // 2) + round(at - (n // 2 - 1) / 2) for at, n in zip(middle, (ny, nx), strict=True))
    half = blurred[np.ix_(rows % ny, columns % nx)]
    if shape and shape != half.shape:
        half = resized(half, shape)
    scale = max(half.std(), half.size**-0.5)
    return ((half - half.mean()) / scale).astype(np.float16)[np.newaxis]


def covered_part(sample: Sample) -> float:
    """Returns the part of the half of the cell about the middle of a scan that the scan's pixels cover."""
    sides = np.array(value(sample.provenance, "extent_angstrom")) / 2
    positions, shape = scan_positions(sample.provenance), value(sample.provenance, "scan_shape", None)
    reach = positions.max(0) - positions.min(0)
    if shape:  # with half a step around the outer positions
        reach *= [n / max(1, n - 1) for n in shape]
    return float(np.minimum(1, reach / sides).prod())


def resized(image: npt.NDArray[Any], shape: tuple[int, int]) -> npt.NDArray[Any]:
    """Returns an image of the same area with other pixels, by splines of order 4."""
    factors = [new / old for new, old in zip(shape, image.shape, strict=True)]
    found: npt.NDArray[Any] = zoom(image, factors, order=4, mode="nearest", grid_mode=True)
    return found


def write_stemdl(data: Path, out: Path) -> tuple[int, list[str]]:
    """Writes the samples of one split of a dataset; the folder or file appears only when it is complete.

    Args:
        out: The folder batch_<mode>_<rank>.db (LMDB), or the file batch_<mode>_<rank>.h5 (HDF5, as of
            `write_stacks`). Its mode names the split: train, test, dev (or eval).

    Returns:
        The number of samples, and lines about what was resized or left out, about scans that are smaller than the half
        of the cell, and about pixels beyond the simulation's band limit.

    Raises:
        InputError: If the name is another, the split has no samples, or these have several shapes.
        WorkError: If a sample is damaged or the folder cannot be written.
    """
    named = NAME.fullmatch(out.name)
    if not named:
        raise InputError(f"--out {out}: name it batch_<mode>_<rank>.db or .h5 with mode train, test, dev or eval")
    split = SPLITS.get(named[1], named[1])
    if out.suffix == ".h5":
        return write_stacks(data, out, split)
    with Dataset(data) as dataset:
        halves = _halves(dataset, split)
        if not halves:
            raise InputError(f"{data} has no sample of the split {split}, which {out.name} stands for")
        smallest = min(y for y, _ in halves.values()), min(x for _, x in halves.values())
        with new_folder(out) as folder:
            try:
                beyond, covered = _write(dataset, list(halves), folder, smallest)
            except lmdb.Error as error:
                raise WorkError(f"cannot write {out}: {error}") from None
            (folder / "lock.mdb").unlink(missing_ok=True)
    lines = []
    if resized := sum(half != smallest for half in halves.values()):
        size = "×".join(map(str, smallest))
        lines.append(f"{plural(resized, 'potential')} resized to the smallest, {size}: pixels differ in Å")
    if smaller := [part for part in covered if part < COVERED]:
        lines.append(
            f"{plural(len(smaller), 'sample')} whose scan covers less than the half of the cell whose potential is "
            f"written, the least {min(smaller):.0%} of it: the patterns do not show the rest"
        )
    if beyond:
        lines.append(f"{plural(len(beyond), 'sample')}, as {beyond[0]}, with empty pixels, which are in the mean")
    return len(halves), lines


def _halves(dataset: Dataset, split: str) -> dict[str, tuple[int, int]]:
    """Returns the shapes of the central halves of the potentials, by the samples of a split."""
    halves = {}
    for name in dataset.ids:
        with dataset.view(name, check=False) as record:
            if record.header["provenance"].get("split") == split:
                ny, nx = record.projected_potential.shape
                halves[name] = (ny // 2, nx // 2)
    return halves


def _write(dataset: Dataset, ids: Sequence[str], folder: Path, half: tuple[int, int]) -> tuple[list[str], list[float]]:
    """Writes the records, one transaction for each sample, which holds its pages in memory.

    Returns:
        The names of the samples with pixels beyond the band limit of their simulation, and `covered_part` of all.
    """
    beyond: list[str] = []
    covered: list[float] = []
    first = _arrays(dataset.read_sample(ids[0]), ids[0], half)
    shapes = {key: array.shape for key, array in first.items()}
    room = len(ids) * sum(array.nbytes + 2**13 for array in first.values()) + ROOM_BYTES
    with lmdb.open(str(folder), map_size=room, sync=False) as environment:
        with environment.begin(write=True) as transaction:
            for kind, key in (("input", INPUT), ("output", OUTPUT)):
                transaction.put(f"{kind}_name".encode(), key.encode())
                transaction.put(f"{kind}_dtype".encode(), b"float16")
                transaction.put(f"{kind}_shape".encode(), np.array(shapes[key], "<i8").tobytes())
        for number, name in enumerate(ids):
            sample = dataset.read_sample(name)
            arrays = _arrays(sample, name, half)
            for key, array in arrays.items():
                if array.shape != shapes[key]:
                    raise InputError(
                        f"{name} has {key}{number} of shape {array.shape}, and {ids[0]} of {shapes[key]}: a file has "
                        "one shape"
                    )
            with environment.begin(write=True) as transaction:
                for key, array in arrays.items():
                    transaction.put(f"{key}{number}".encode(), array.astype("<f2").tobytes())
            if pattern_grid(sample.provenance).emptiness(sample.cbed.shape[1:]):
                beyond.append(name)
            covered.append(covered_part(sample))
        environment.sync(True)
    return beyond, covered


def _arrays(sample: Sample, name: str, half: tuple[int, int]) -> dict[str, npt.NDArray[np.float16]]:
    return {INPUT: standardised_patterns(sample, name), OUTPUT: standardised_potential(sample, half)}


def write_npz(data: Path, out: Path) -> tuple[int, list[str]]:
    """Writes the samples of a file of the authors as `sample_<n>.npz`, in a folder that appears when it is complete.

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
        lines, wrong = list(file.notes), 0
        for number, name in enumerate(file.names):
            sample = file.read(name)
            arrays = {"patterns": sample.patterns}
            if sample.potential is not None:
                arrays["potential"] = sample.potential
            wrong += any(not np.isfinite(array).all() for array in arrays.values())
            texts = {"name": np.array(name), "attributes": np.array(json.dumps(sample.attributes))}
            np.savez(folder / f"sample_{number:05d}.npz", **arrays, **texts)
    if wrong:
        lines.append(f"{plural(wrong, 'sample')} with values that are not finite, written as they are")
    return len(file.names), lines


def write_stacks(data: Path, out: Path, split: str) -> tuple[int, list[str]]:
    """Writes the samples of one split of a dataset; see `namsa.exchange.stemdl_export.write_stemdl`."""
    numbers = space_group_numbers()
    with Dataset(data) as dataset:
        specimens: dict[str, list[Entry]] = {}
        for entry in manifest.present(data, dataset.ids):
            if entry.split == split:
                same = [entry.material, entry.partner, entry.thickness_angstrom, entry.kind, entry.varied]
                specimens.setdefault(json.dumps(same), []).append(entry)
        stacks = [entries[:STACKED] for entries in specimens.values() if len(entries) >= STACKED]
        if not stacks:
            raise InputError(
                f"{data} has no specimen along {STACKED} zone axes in the split {split}, which {out.name} stands for"
            )
        left_out = sum(map(len, specimens.values())) - STACKED * len(stacks)
        count = 0
        with write_file(out, {}) as (file, _):
            for i, entries in enumerate(stacks):
                samples = [dataset.read_sample(entry.id) for entry in entries]
                if len({sample.cbed.shape for sample in samples}) > 1:
                    raise InputError(f"{entries[0].id} and its other zone axes have patterns of several shapes")
                if entries[0].space_group not in numbers:
                    raise InputError(f"{entries[0].id} has space group {entries[0].space_group}, which has no number")
                provenance = samples[0].provenance
                aberrations = value(provenance, "aberrations", {})
                attributes = {
                    "space_group": numbers[entries[0].space_group],
                    "material": entries[0].material,
                    "formula": entries[0].formula,
                    "energy": value(provenance, "energy_ev") / 1e3,
                    "semi_angles": value(provenance, "semiangle_mrad"),
                    "aberrations": [aberrations.get(name, 0.0) for name in ("C10", "C30", "C50")],
                    "zone_axes": [entry.zone_axis for entry in entries],
                }
                for j, patterns in enumerate(zip(*(sample.cbed for sample in samples), strict=True)):
                    group = file.create_group(f"sample_{i}_{j}")
                    group["cbed_stack"] = np.stack(patterns).astype(np.float32)
                    group.attrs.update(attributes)
                    count += 1
    lines = [f"{plural(left_out, 'sample')} left out, which are not of three zone axes of a specimen"] * bool(left_out)
    return count, lines
