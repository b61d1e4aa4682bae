"""The samples of a split by their numbers, as loaders of other libraries take them.

`IndexedSamples` is a map-style dataset for `torch.utils.data.DataLoader` and a `RandomAccessDataSource` for Grain. Both
ask for a length and for items by number, and copy the object into worker processes. Neither library is imported here.
"""

import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.dataset import manifest
from namsa.dataset.entry import SPLITS
from namsa.dataset.record_header import OPTIONAL_TYPES
from namsa.dataset.shards import Dataset
from namsa.errors import InputError
from namsa.files import Closing
from namsa.pixels import UNITS, raster_shape
from namsa.provenance_values import value
from namsa.text import shorten

ARRAYS = (*UNITS, *OPTIONAL_TYPES, "positions_angstrom")


class IndexedSamples(Closing):
    """The samples of a dataset's split, `samples[0]` to `samples[len(samples) - 1]`, in the order of the manifest.

    An item is a dict of new arrays as they are stored. The patterns, `cbed` `(sy, sx, dy, dx)`, are fractions of the
    incident beam times `scale`, which an item with patterns has, too. Positions that are no raster leave `(n, dy, dx)`.
    A record is compared with its digest when it is read. Files are mapped into memory, and no item is kept.

    A copy in another process opens the files there. It has the samples that were there when the first one was made.
    In one process a dataset can be open once only.

    Args:
        directory: The dataset's folder.
        split: "train", "dev" or "test".
        arrays: Names of the arrays of an item: "cbed", "density", "projected_potential", "positions_angstrom", and
            "labels" and "density_by_depth" where samples have them. A loader stacks arrays of one shape: the shape of
            the projected potential may differ from crystal to crystal.

    Attributes:
        entries: The samples' lines of the manifest: id, material, formula, space group, thickness.

    Raises:
        InputError: If there is no such dataset, split or array, or the split has no sample.
        WorkError: If a file is damaged, or the dataset is open in this process already.
    """

    def __init__(
        self, directory: Path | str, split: str = "train", *, arrays: Sequence[str] = ("cbed", "density")
    ) -> None:
        if split not in SPLITS:
            raise InputError(f"split is {shorten(split)}: choose {', '.join(SPLITS)}")
        if unknown := [name for name in arrays if name not in ARRAYS]:
            raise InputError(f"arrays has {shorten(unknown[0])}: choose among {', '.join(ARRAYS)}")
        self._directory, self._arrays = Path(directory), tuple(arrays)
        self._dataset = Dataset(directory)
        try:
            self.entries = [
                entry for entry in manifest.present(self._directory, self._dataset.ids) if entry.split == split
            ]
            if not self.entries:
                raise InputError(f"{directory} has no sample of the split {split}: simulate some with namsa dataset")
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, number: int) -> dict[str, npt.NDArray[Any]]:
        """Returns the arrays of a sample.

        Raises:
            IndexError: If there is no sample of this number.
            InputError: If the sample lacks an array.
            WorkError: If its record is damaged.
        """
        name = self.entries[operator.index(number)].id
        with self._dataset.view(name) as record:
            arrays = {each: getattr(record, each) for each in self._arrays}
            if lacking := [each for each, array in arrays.items() if array is None]:
                raise InputError(f"{name} has no {lacking[0]}: leave it out of arrays")
            item = {each: array.copy() for each, array in arrays.items()}  # loaders want to own what they get
            if "cbed" in item:
                provenance, patterns = record.header["provenance"], item["cbed"]
                if value(provenance, "scan_shape"):
                    scan = raster_shape(provenance, len(patterns))
                    item["cbed"] = patterns.reshape(*scan, *patterns.shape[1:])
                item["scale"] = np.float32(record.header["arrays"]["cbed"]["scale"])
            return item

    def __getstate__(self) -> dict[str, Any]:
        return {name: each for name, each in vars(self).items() if name != "_dataset"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _dataset=Dataset(state["_directory"]))

    def close(self) -> None:
        """Closes the files."""
        self._dataset.close()
