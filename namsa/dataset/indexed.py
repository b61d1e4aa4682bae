"""The samples of a split by their numbers, as loaders of other libraries take them.

`IndexedSamples` is a map-style dataset for `torch.utils.data.DataLoader` and a
`RandomAccessDataSource` for Grain. Both ask for a length and for items by number, and copy the
object into worker processes. Neither library is imported here.

LMDB opens a file once in a process. The objects of one dataset therefore share its open files, and
the last one closes them.
"""

import operator
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, SupportsIndex, get_args, overload

import numpy as np

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.files import Closing
from namsa.base.pixels import UNITS, raster_shape
from namsa.base.provenance_values import value
from namsa.base.text import plural, shorten
from namsa.dataset import manifest
from namsa.dataset.empty import check_not_empty
from namsa.dataset.entry import SPLITS
from namsa.dataset.record_header import OPTIONAL_TYPES
from namsa.dataset.shards import Dataset

ARRAYS = (*UNITS, *OPTIONAL_TYPES, "positions_angstrom")
Check = Literal["always", "once", "never"]
Item = dict[str, Array]


class _StoredItem(NamedTuple):
    """Views of a sample's arrays in its file, and the factor of its patterns."""

    arrays: Mapping[str, Array]
    scale: np.float32 | None  # of the patterns, if they are asked for

    def copied(self) -> Item:
        """Returns new arrays, which loaders want to own."""
        item: Item = {name: array.copy() for name, array in self.arrays.items()}
        if self.scale is not None:
            item["scale"] = self.scale  # type: ignore[assignment]
        return item


class _OpenDataset:
    """A dataset that is open in this process, and the number of objects that use it."""

    def __init__(self, directory: Path) -> None:
        self.dataset = Dataset(directory)
        self.users = 0


_open_datasets: dict[Path, _OpenDataset] = {}
_lock = threading.Lock()


def _opened(directory: Path) -> Dataset:
    """Returns the open dataset of a folder, which is opened by its first user."""
    key = directory.resolve()
    with _lock:
        if key not in _open_datasets:
            _open_datasets[key] = _OpenDataset(directory)
        shared = _open_datasets[key]
        shared.users += 1
        return shared.dataset


def _released(directory: Path) -> None:
    """Closes the dataset of a folder if no other object uses it."""
    key = directory.resolve()
    with _lock:
        shared = _open_datasets[key]
        shared.users -= 1
        if shared.users:
            return
        del _open_datasets[key]
        shared.dataset.close()


class IndexedSamples(Closing):
    """The samples of a dataset's split, `samples[0]` to `samples[len(samples) - 1]`, in the order
    of the manifest. Negative numbers count from the end; a slice gives a list of items.

    An item is a dict of new arrays as they are stored. The patterns, `cbed` `(sy, sx, dy, dx)`, are
    fractions of the incident beam times `scale`, which an item with patterns has, too. Positions
    that are no raster leave `(n, dy, dx)`. Files are mapped into memory, and no item is kept.

    Several objects of one dataset share its files, as those of the splits train and dev. They have
    the samples that were there when the first one was made. A copy in another process opens the
    files there.

    Args:
        directory: The dataset's folder.
        split: "train", "dev" or "test".
        arrays: Names of the arrays of an item: "cbed", "density", "projected_potential",
            "positions_angstrom", and "labels" and "density_by_depth" where samples have them. A
            loader stacks arrays of one shape: the shape of the projected potential may differ from
            crystal to crystal.
        check: When a record is compared with its digest: "always", which reads all of it whenever
            an item is asked for; "once", when this object first reads it; or "never". With "once"
            and "never" the place of a record's arrays is kept, so that reading it again only copies
            them.

    Attributes:
        entries: The samples' lines of the manifest: id, material, formula, space group, thickness.

    Raises:
        InputError: If there is no such dataset, split or array, or the split has no sample.
        WorkError: If a file is damaged, or open in this process otherwise, as by `namsa.Dataset`.
    """

    def __init__(
        self,
        directory: Path | str,
        split: str = "train",
        *,
        arrays: Sequence[str] = ("cbed", "density"),
        check: Check = "always",
    ) -> None:
        if split not in SPLITS:
            raise InputError(f"split is {shorten(split)}: choose {', '.join(SPLITS)}")
        if unknown := [name for name in arrays if name not in ARRAYS]:
            raise InputError(f"arrays has {shorten(unknown[0])}: choose among {', '.join(ARRAYS)}")
        if check not in get_args(Check):
            raise InputError(f"check is {shorten(check)}: choose {', '.join(get_args(Check))}")
        self._split = split
        self._directory = Path(directory)
        self._arrays = tuple(arrays)
        self._check = check
        self._stored: dict[int, _StoredItem] = {}
        self._dataset: Dataset | None = _opened(self._directory)
        try:
            check_not_empty(self._directory, self._dataset)
            self.entries = [
                entry
                for entry in manifest.present(self._directory, self._dataset.ids)
                if entry.split == split
            ]
            if not self.entries:
                raise InputError(
                    f"{directory} has no sample of the split {split}: simulate some with namsa "
                    "dataset"
                )
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self.entries)

    @overload
    def __getitem__(self, position: SupportsIndex) -> Item: ...

    @overload
    def __getitem__(self, position: slice) -> list[Item]: ...

    def __getitem__(self, position: SupportsIndex | slice) -> Item | list[Item]:
        """Returns the arrays of a sample, or a list of them for a slice.

        Raises:
            IndexError: If there is no sample of this number.
            TypeError: If it is neither an integer nor a slice.
            InputError: If the sample lacks an array, or the files are closed.
            WorkError: If its record is damaged.
        """
        if isinstance(position, slice):
            return [self._item(index) for index in range(*position.indices(len(self)))]
        try:
            index = operator.index(position)
        except TypeError:
            raise TypeError(
                f"a sample is chosen by an integer or a slice, not by {shorten(repr(position))}"
            ) from None
        if not -len(self) <= index < len(self):
            raise IndexError(
                f"there is no sample {index}: the split {self._split} of {self._directory} has "
                f"{plural(len(self), 'sample')}, numbers {-len(self)} to {len(self) - 1}"
            )
        return self._item(index % len(self))

    def _item(self, index: int) -> Item:
        """Returns the arrays of a sample, by its number from 0."""
        if self._dataset is None:
            raise InputError(f"the samples of {self._directory} are closed: open them again")
        stored = self._stored.get(index)
        if stored is None:
            stored = self._read(self._dataset, index)
            if self._check != "always":
                self._stored[index] = stored
        return stored.copied()

    def _read(self, dataset: Dataset, index: int) -> _StoredItem:
        """Returns views of a sample's arrays, which are valid until the dataset is closed."""
        name = self.entries[index].id
        with dataset.view(name, check=self._check != "never") as record:
            arrays: dict[str, Array] = {}
            for array_name in self._arrays:
                array = getattr(record, array_name)
                if array is None:
                    raise InputError(f"{name} has no {array_name}: leave it out of arrays")
                arrays[array_name] = array
            if "cbed" not in arrays:
                return _StoredItem(arrays, None)
            provenance = record.header["provenance"]
            patterns = arrays["cbed"]
            if value(provenance, "scan_shape"):
                scan = raster_shape(provenance, len(patterns))
                arrays["cbed"] = patterns.reshape(*scan, *patterns.shape[1:])
            return _StoredItem(arrays, np.float32(record.header["arrays"]["cbed"]["scale"]))

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_dataset": None, "_stored": {}}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._dataset = _opened(self._directory)

    def close(self) -> None:
        """Closes the files, if no other object of the dataset is open."""
        if self._dataset is not None:
            self._dataset = None
            self._stored.clear()
            _released(self._directory)
