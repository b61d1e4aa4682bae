"""Reads samples from HDF5 files that `namsa.io.hdf5` has written."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from namsa.base.errors import InputError
from namsa.base.json_files import parse_json
from namsa.base.names import check_name
from namsa.base.pixels import OPTIONAL_UNITS, UNITS, array_axes
from namsa.base.provenance_values import Provenance
from namsa.base.text import shorten
from namsa.io.hdf5_items import Hdf5Dataset, Hdf5Group
from namsa.io.safe_hdf5 import open_hdf5
from namsa.samples.sample import Sample

# A sample may declare as many bytes, and as many times the bytes of its file; gzip reaches 1032.
SMALL_BYTES = 2**26
COMPRESSION = 1032


@dataclass(frozen=True)
class StoredSample:
    """A sample in an open file."""

    group: Hdf5Group  # the group that holds it
    name: str  # its name

    def provenance(self) -> Provenance:
        """Reads the provenance; values are checked where they are used. Raises InputError if it is
        no JSON object.
        """
        stored = self.group.attribute("provenance")
        if not isinstance(stored, str):
            raise InputError(f"{self._place()} has a provenance that is no text: {shorten(stored)}")
        provenance = parse_json(stored, f"{self._place()}, its provenance,")
        if not isinstance(provenance, dict):
            raise InputError(
                f"{self._place()} has a provenance that is no JSON object: {shorten(provenance)}"
            )
        return provenance

    def arrays(self) -> dict[str, Hdf5Dataset]:
        """Returns the arrays by name, without their data. Raises InputError if one is not what
        namsa writes.
        """
        datasets: dict[str, Hdf5Dataset] = {}
        for name in UNITS | OPTIONAL_UNITS:
            data = self.group.get(f"{name}/data")
            if data is None and name in OPTIONAL_UNITS:
                continue
            if not isinstance(data, Hdf5Dataset):
                raise InputError(f"{self._place()} has no array {name}")
            axes = {"cbed": (3, 4), "density_by_depth": (3,)}.get(name, (2,))
            if not data.is_numeric or len(data.shape) not in axes or 0 in data.shape:
                raise InputError(
                    f"{self._place()} has {name} of shape {data.shape} and type {data.dtype}: not "
                    "a sample's"
                )
            datasets[name] = data
        declared = sum(math.prod(data.shape) * data.dtype.itemsize for data in datasets.values())
        largest = SMALL_BYTES + COMPRESSION * self.group.file.path.stat().st_size
        if declared > largest:
            raise InputError(
                f"{self._place()} declares {declared} bytes, more than its file can hold "
                f"({largest})"
            )
        return datasets

    def read(self) -> Sample:
        """Reads the sample; patterns become one stack `(n, dy, dx)`.

        Raises:
            InputError: If it is not what namsa writes, or damaged.
        """
        provenance = self.provenance()
        stored = self.arrays()
        # they fit the provenance
        array_axes(provenance, {name: data.shape for name, data in stored.items()})
        arrays = {name: data[:] for name, data in stored.items()}
        cbed = arrays.pop("cbed")
        return Sample(cbed=cbed.reshape(-1, *cbed.shape[-2:]), **arrays, provenance=provenance)

    def _place(self) -> str:
        """Returns the sample's name and file for messages."""
        return f"{self.group.file.path}: {shorten(self.name)}"


def read_sample(path: Path | str, name: str | None = None) -> Sample:
    """Reads one sample of a file that `write_samples` wrote.

    Args:
        path: The file.
        name: The sample's name. Default: the first sample of the file.

    Raises:
        InputError: If the file holds no such sample.

    Example:
        >>> sample.save("silicon.h5")
        >>> bool((namsa.read_sample("silicon.h5").cbed == sample.cbed).all())
        True
    """
    with open_samples(path) as samples:
        if name is None:
            name = next(iter(samples))
        if name not in samples:
            raise InputError(
                f"{path} has no sample {shorten(name)}: it holds {shorten(', '.join(samples), 400)}"
            )
        return samples[name].read()


def read_samples(path: Path | str) -> Iterator[tuple[str, Sample]]:
    """Yields the name and the sample of each sample that `write_samples` wrote.

    Raises:
        InputError: If `path` is no such file.

    Example:
        >>> count = namsa.write_samples("one.h5", [("silicon", sample)])
        >>> [name for name, stored in namsa.read_samples("one.h5")]
        ['silicon']
    """
    with open_samples(path) as samples:
        for name, sample in samples.items():
            yield name, sample.read()


@contextmanager
def open_samples(path: Path | str) -> Iterator[dict[str, StoredSample]]:
    """Opens a file that `write_samples` wrote, and yields its samples by name. Raises InputError if
    it is none.
    """
    with open_hdf5(Path(path)) as file:
        root = Hdf5Group(file, "/")
        names = root.groups_with("provenance")
        if not names:
            raise InputError(f"{path} holds no sample that namsa wrote")
        for name in names:
            check_name(name, f"a sample of {path}")
        yield {name: StoredSample(Hdf5Group(file, f"/{name}"), name) for name in names}
