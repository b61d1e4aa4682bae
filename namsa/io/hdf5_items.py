"""Groups and datasets of an HDF5 file that `namsa.io.safe_hdf5` has opened."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from namsa.base.arrays import Array
from namsa.io.confined_library import Value


class Hdf5Access(Protocol):
    """An open file as its groups and datasets need it."""

    path: Path

    def find(self, name: str) -> "Hdf5Group | Hdf5Dataset | None":
        """Returns a group or a dataset by its path; `None` if there is none."""

    def request(self, what: str, **arguments: object) -> Any:
        """Returns the answer to a request."""

    def read_into(
        self,
        array: Array,
        dataset: "Hdf5Dataset",
        ranges: Sequence[tuple[int, int]],
    ) -> None:
        """Reads a part of a dataset into an array."""


@dataclass(frozen=True)
class Hdf5Item:
    """A group or a dataset of an open file."""

    file: Hdf5Access = field(repr=False)  # the file
    name: str  # its path, from the root

    def attribute(self, name: str) -> Value | None:
        """Returns an attribute; `None` if it is missing, empty, or no number or text."""
        value: Value | None = self.file.request("attribute", path=self.name, name=name)
        return value

    def referred(self, name: str) -> "Hdf5Group | Hdf5Dataset | None":
        """Returns what an attribute refers to; `None` for nothing."""
        path = self.file.request("reference", path=self.name, name=name)
        return None if path is None else self.file.find(str(path))

    def attributes(self, names: Sequence[str]) -> dict[str, Value]:
        """Returns those of some attributes of which `attribute` is not `None`, by one request."""
        values: dict[str, Value] = self.file.request(
            "attributes", path=self.name, names=list(names)
        )
        return values


class Hdf5Group(Hdf5Item):
    """A group of an open file."""

    def children(self) -> list[str]:
        """Returns the names in the group."""
        return [str(name) for name in self.file.request("children", path=self.name)]

    def leads_nowhere(self, name: str) -> bool:
        """Returns whether a name in the group is a link to a file that does not exist in the
        folder.
        """
        return bool(self.file.request("leads_nowhere", path=self.name, name=name))

    def groups_with(self, attribute: str) -> list[str]:
        """Returns the names of the groups in the group that have an attribute."""
        names = self.file.request("groups_with", path=self.name, attribute=attribute)
        return [str(name) for name in names]

    def get(self, name: str) -> "Hdf5Group | Hdf5Dataset | None":
        """Returns a group or a dataset by its path from here; `None` if there is none."""
        return self.file.find(f"{self.name.rstrip('/')}/{name}")


@dataclass(frozen=True)
class Hdf5Dataset(Hdf5Item):
    """A dataset of an open file, as far as NumPy arrays are like it.

    Attributes:
        shape: Its shape.
        dtype: Type of its numbers; that of nothing (kind "V") if it holds no plain numbers.
        chunks: Shape of the pieces that it is stored in; `None` if it is stored as a whole.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    chunks: tuple[int, ...] | None

    @property
    def is_numeric(self) -> bool:
        """Whether it holds integers or real numbers."""
        return self.dtype.kind in "uif"

    @property
    def parent(self) -> Hdf5Group:
        """The group that holds the dataset."""
        return Hdf5Group(self.file, self.name.rpartition("/")[0] or "/")

    def scales(self) -> list[str]:
        """Returns the path of the dimension scale of each axis; empty for none."""
        return [str(name) for name in self.file.request("scales", path=self.name)]

    def value(self) -> Value | None:
        """Returns the whole of a small dataset; `None` if it is large, empty, or no number or
        text.
        """
        value: Value | None = self.file.request("value", path=self.name)
        return value

    def __getitem__(self, index: tuple[slice, ...] | slice) -> Array:
        """Reads a part, a slice for each of the first axes. Raises DamagedFileError if HDF5 cannot
        read it.
        """
        slices = index if isinstance(index, tuple) else (index,)
        slices += (slice(None),) * (len(self.shape) - len(slices))
        ranges = []
        shape = []
        steps = []
        for span, size in zip(slices, self.shape, strict=True):
            start, stop, step = span.indices(size)
            ranges.append((start, stop))
            shape.append(max(0, stop - start))
            steps.append(slice(None, None, step))
        array = np.empty(shape, self.dtype)
        if array.size:
            self.file.read_into(array, self, ranges)
        return array[tuple(steps)]
