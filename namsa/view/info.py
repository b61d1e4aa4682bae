"""The contents of datasets and HDF5 files: samples, materials, and arrays with axes and units."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from namsa.base import provenance_values
from namsa.base.arrays import Array, Floats
from namsa.base.pixels import OPTIONAL_UNITS, UNITS, array_axes, sample_arrays
from namsa.base.provenance_values import Provenance
from namsa.dataset import manifest, shards
from namsa.dataset.entry import SPLITS, Entry
from namsa.dataset.failures import unresolved_failures
from namsa.dataset.strata import Strata, count_strata
from namsa.io.hdf5_items import Hdf5Dataset
from namsa.samples import sample_file


@dataclass(frozen=True)
class AxisInfo:
    """An axis whose values are origin + i · sampling."""

    name: str  # name, as "ky"
    units: str  # units; empty for a plain index
    origin: float  # value of index 0
    sampling: float | None  # step; `None` for an axis of one value


@dataclass(frozen=True)
class ArrayInfo:
    """One array of a sample."""

    dtype: str  # NumPy's name of the type
    # The patterns of a raster scan have its two axes in place of their number.
    shape: list[int]
    units: str  # units of the values
    axes: list[AxisInfo]  # the axes, slowest first


@dataclass(frozen=True)
class SampleInfo:
    """One sample."""

    id: str  # its name
    arrays: dict[str, ArrayInfo]  # its arrays by name
    provenance: Provenance  # its provenance, JSON types


@dataclass(frozen=True)
class FileInfo:
    """An HDF5 file that namsa wrote."""

    path: str  # the file
    bytes: int  # its size
    samples: int  # number of samples
    contents: list[SampleInfo]  # the samples

    @property
    def ids(self) -> list[str]:
        """The names of the samples."""
        return [sample.id for sample in self.contents]

    def as_json(self) -> dict[str, object]:
        """Returns the attributes in JSON types."""
        return asdict(self)


@dataclass(frozen=True)
class DatasetInfo:
    """A dataset: its manifest, and the samples that exist."""

    path: str  # the folder
    entries: int  # number of samples in the manifest
    skipped: int  # number of samples that cannot be built
    failed: int  # number of samples whose simulation failed
    failures: dict[str, str]  # the reasons by sample
    samples: int  # number of samples that exist
    materials: int  # number of their materials
    splits: dict[str, int]  # number of samples by split
    strata: Strata  # number of samples by split, and within it by element, symmetry and the rest
    # Materials that were found to be the same crystal, by the one that is kept.
    merged: Mapping[str, Sequence[str]]
    shards: int  # number of shards
    bytes: int  # their size
    first: SampleInfo | None  # the first sample; `None` if there is none yet
    ids: list[str]  # the names of the samples that exist

    def as_json(self) -> dict[str, object]:
        """Returns the attributes in JSON types, without `ids`.

        Of these there may be tens of thousands.
        """
        attributes = asdict(self)
        del attributes["ids"]
        return attributes


def describe_dataset(directory: Path) -> DatasetInfo:
    """Describes a dataset by its manifest and its first sample.

    Raises:
        InputError: If the folder holds no dataset.
    """
    header = manifest.read_header(directory)
    entries = manifest.read(directory)
    paths = shards.shard_paths(directory)
    first_record = None
    with shards.Dataset(directory) as dataset:
        present = [entry for entry in entries if entry.id in dataset]
        if present:
            first_record = _describe_record(dataset, present[0].id)
        failures = unresolved_failures(directory, header["samples_hash"], dataset.ids)
    skipped = [entry for entry in entries if entry.skipped]
    names = {entry.material for entry in present}
    return DatasetInfo(
        path=str(directory),
        entries=len(entries),
        skipped=len(skipped),
        failed=len(failures),
        failures=failures,
        samples=len(present),
        materials=len(names),
        splits=_split_sizes(present),
        strata=count_strata(present),
        merged=header.get("merged", {}),
        shards=len(paths),
        bytes=sum(path.stat().st_size for path in paths),
        first=first_record,
        ids=[entry.id for entry in present],
    )


def _split_sizes(entries: Sequence[Entry]) -> dict[str, int]:
    """Returns the number of samples by split."""
    sizes = Counter(entry.split for entry in entries)
    return {name: sizes[name] for name in SPLITS}


def describe_file(path: Path) -> FileInfo:
    """Describes an HDF5 file that namsa wrote, without reading its arrays.

    Raises:
        InputError: If it is no such file.
    """
    contents = []
    with sample_file.open_samples(path) as samples:
        for name, sample in samples.items():
            contents.append(describe_sample(name, sample.provenance(), sample.arrays()))
    return FileInfo(str(path), path.stat().st_size, len(contents), contents)


def describe_sample(
    name: str, provenance: Provenance, arrays: Mapping[str, Array | Hdf5Dataset]
) -> SampleInfo:
    """Describes a sample.

    Args:
        arrays: Its arrays by name; only `shape` and `dtype` are used, so that HDF5 datasets are not
            read.
    """
    units = UNITS | OPTIONAL_UNITS
    described = {}
    axes_of = array_axes(provenance, {key: array.shape for key, array in arrays.items()})
    for key, axes in axes_of.items():
        described[key] = ArrayInfo(
            dtype=np.dtype(arrays[key].dtype).name,
            shape=[len(axis.coordinates) for axis in axes],
            units=units[key],
            axes=[_describe_axis(*axis) for axis in axes],
        )
    return SampleInfo(name, described, provenance)


def _describe_axis(name: str, units: str, coordinates: Floats) -> AxisInfo:
    sampling = float(coordinates[1] - coordinates[0]) if len(coordinates) > 1 else None
    return AxisInfo(name, units, float(coordinates[0]), sampling)


def _describe_record(data: shards.Dataset, name: str) -> SampleInfo:
    with data.view(name) as record:
        # so that messages name the sample
        provenance_values.check(record.header["provenance"] | {"id": name})
        return describe_sample(name, record.provenance, sample_arrays(record))
