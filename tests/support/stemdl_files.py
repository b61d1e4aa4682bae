"""Files in the layouts of the authors' programs, written with lmdb and h5py alone."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import h5py
import lmdb
import numpy as np

from namsa.base.arrays import Array

PATTERNS = np.arange(3 * 4 * 6 * 5).reshape(3, 4, 6, 5).astype(np.float16)  # samples of 4 patterns
POTENTIALS = np.arange(3 * 7 * 9).reshape(3, 1, 7, 9).astype(np.float32)


def numbers(*values: int) -> bytes:
    return np.array(values, np.int64).tobytes()


def write_db(
    folder: Path,
    changes: Iterable[tuple[bytes, bytes | None]] = (),
    output: bytes = b"2d_potential_",
    count: int = 3,
    patterns: Array = PATTERNS,
    potentials: Array = POTENTIALS,
) -> Path:
    """Writes samples, again from the first if there are fewer than `count`; a change to None leaves
    a record out.
    """
    records: dict[bytes, bytes | None] = {
        b"input_dtype": patterns.dtype.name.encode(),
        b"input_shape": numbers(*patterns.shape[1:]),
        b"output_shape": numbers(*potentials.shape[1:]),
        b"output_dtype": potentials.dtype.name.encode(),
        b"output_name": output,
        b"input_name": b"cbed_",
        b"header_entries": bytes(6),
    }
    for i in range(count):
        source = i % len(patterns)
        records |= {
            b"cbed_%d" % i: patterns[source].tobytes(),
            output + b"%d" % i: potentials[source].tobytes(),
        }
    records |= dict(changes)
    with lmdb.open(str(folder), map_size=2**26) as env, env.begin(write=True) as transaction:
        for key, value in records.items():
            if value is not None:
                transaction.put(key, value)
    return folder


def write_stacks(path: Path, stacks: Array, groups: Sequence[str]) -> Path:
    """Writes an HDF5 file of STEMDL's classification: stacks (n, 3, y, x), and the space group of
    each.
    """
    with h5py.File(path, "w") as file:
        for index, (stack, group) in enumerate(zip(stacks, groups, strict=True)):
            sample = file.create_group(f"sample_{index // 4}_{index % 4}")
            sample["cbed_stack"] = stack
            sample.attrs["space_group"] = group
    return path
