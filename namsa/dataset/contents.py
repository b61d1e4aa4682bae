"""Digests of the contents of a dataset's files, which tell files of the same size and age apart.

A record holds the digest of all of it, so that the contents of a shard are known from 32 bytes of
each record. Shards of the same records are equal, however LMDB has laid them out.
"""

import os
from contextlib import suppress
from pathlib import Path

from namsa.base.errors import InputError, WorkError
from namsa.base.files import open_regular, system_errors
from namsa.base.identity import digest_of, digest_of_file
from namsa.dataset import lmdb_structure, records

_DIGEST_BYTES = 16  # at the end of a record's prefix


def record_digests(path: Path) -> dict[str, str]:
    """Returns the digests that the records of a shard hold, by id. The records are not read.

    Raises:
        InputError: If there is no such file.
        WorkError: If the shard is damaged or cannot be read.
    """
    digests = {}
    with open_regular(path) as file, system_errors(f"cannot read {path}"):
        for sample_id, (offset, _) in lmdb_structure.locations(path).items():
            prefix = os.pread(file.fileno(), records.PREFIX_BYTES, offset)
            digests[sample_id] = prefix[-_DIGEST_BYTES:].hex()
    return digests


def digest_of_contents(path: Path) -> str:
    """Returns the digest of a file of a dataset: of a shard, that of its records.

    Raises:
        WorkError: If it cannot be read.
    """
    if path.suffix == ".lmdb":
        with suppress(InputError, WorkError):  # of a damaged shard, that of its bytes
            return digest_of(record_digests(path))
    with system_errors(f"cannot read {path}"):
        return digest_of_file(path)
