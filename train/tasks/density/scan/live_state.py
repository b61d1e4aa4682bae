"""The state of a live reconstruction, kept after each strip.

An interrupted reconstruction continues from it to the same result.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.files import open_atomic
from namsa.base.identity import check_same
from namsa.base.numpy_files import read_npz

from .scan_images import ScanImages

LARGEST_BYTES = 2**33
SUMS = ("weights", "first", "second")  # of a blend
IMAGES = ("bright_field", "intensity", "moments", "counts", "distances")
# arrays that every state has
NEEDED = ("pattern", "survey_sum", "digests", "familiar_first", "transforms", *IMAGES)


@dataclass(frozen=True, eq=False)
class LiveState:
    """A live reconstruction between two strips."""

    strips: int  # strips that were added
    rows_read: int  # rows of the scan that were read
    next_row: int  # row of the scan that the next strip begins with
    survey_rows: int  # rows in the sum of the mean pattern
    # Sums of the images (`densities_weights` and so on), `transforms` of the aberrations,
    # `bright_field`, `intensity`, `moments`, `counts`, `distances`, `pattern` (the mean of the
    # first rows), `survey_sum` and `digests` (of the rows that were read: another scan may have
    # taken the file's place).
    arrays: dict[str, Array]

    def restore(self, images: ScanImages) -> None:
        """Puts the images into this state. Raises InputError if they are of another shape."""
        targets = image_arrays(images)
        if any(
            getattr(self.arrays.get(name), "shape", None) != target.shape
            for name, target in targets.items()
        ):
            raise InputError(
                "the kept state is of images of another shape: remove it and begin again"
            )
        for name, target in targets.items():
            target[...] = self.arrays[name]
        images.strips = self.strips


def image_arrays(images: ScanImages) -> dict[str, Array]:
    """Returns the arrays of images that grow, by the names of `LiveState.arrays`."""
    blends = {"densities": images.densities, "scores": images.scores, "familiar": images.familiar}
    if images.bins:
        blends["bins"] = images.bins
    sums = {}
    for name, blend in blends.items():
        for sum_name in SUMS:
            sums[f"{name}_{sum_name}"] = getattr(blend, sum_name)
    return {
        **sums,
        "transforms": images.aberrations.transforms,
        **{name: getattr(images, name) for name in IMAGES},
    }


def write_state(path: Path, identity: Mapping[str, object], state: LiveState) -> None:
    """Writes a state, which appears only when it is complete.

    Args:
        identity: The data, the network and the arguments, in JSON types.

    Raises:
        WorkError: If the file cannot be written.
    """
    counts = [state.strips, state.rows_read, state.next_row, state.survey_rows]
    header = json.dumps({"identity": identity, "counts": counts}).encode()
    with open_atomic(path) as file:
        np.savez(file, header=np.frombuffer(header, np.uint8), **state.arrays)


def read_state(path: Path, identity: Mapping[str, object] | None) -> LiveState:
    """Reads a state.

    Args:
        path: The file.
        identity: As for `write_state`. `None` takes any.

    Raises:
        InputError: If the file is no state, or one of other data, another network or other
            arguments.
    """
    arrays = read_npz(path, largest_bytes=LARGEST_BYTES, kind="the state of a live reconstruction")
    try:
        header = json.loads(arrays.pop("header").tobytes())
        stored = dict(header["identity"])
        strips, rows_read, next_row, survey_rows = map(int, header["counts"])
    except (KeyError, TypeError, ValueError):
        raise InputError(
            f"{path} is no state of a live reconstruction: remove it and begin again"
        ) from None
    if "network" not in stored:
        raise InputError(
            f"{path} was written by an earlier version, which kept no digest of the network: "
            "remove it to begin again"
        )
    if identity is not None:
        check_same(
            f"the live reconstruction in {path}",
            stored,
            json.loads(json.dumps(identity)),
            changes_nothing=lambda key: False,
            remedy="remove the file to begin again, or give what it was made with",
        )
    if missing := sorted(set(NEEDED) - set(arrays)):
        raise InputError(f"{path} lacks {', '.join(missing)}: remove it to begin again")
    return LiveState(strips, rows_read, next_row, survey_rows, arrays)
