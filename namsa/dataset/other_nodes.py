"""Samples that other nodes hold: `elsewhere.json` of a dataset that is spread over node-local
storage.

They are not missing, and no run on this node simulates them again.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from namsa.base.files import write_text_atomic
from namsa.base.json_files import Name, read_typed

FILE_NAME = "elsewhere.json"


@dataclass(frozen=True)
class SamplesOfOtherNodes:
    """The contents of `elsewhere.json`."""

    config_hash: str  # the hash of the configuration's samples
    ids: list[Name]  # the samples that other nodes hold


def write_ids(directory: Path, samples_hash: str, ids: Iterable[str]) -> None:
    """Writes which samples of a configuration other nodes hold. Raises WorkError if it cannot."""
    write_text_atomic(
        directory / FILE_NAME, json.dumps({"config_hash": samples_hash, "ids": sorted(ids)})
    )


def read_ids(directory: Path, samples_hash: str) -> frozenset[str]:
    """Returns the ids of a configuration's samples that other nodes hold. Raises InputError if the
    list is damaged.
    """
    path = directory / FILE_NAME
    if not os.path.lexists(path):  # a link to nothing is a list that cannot be read
        return frozenset()
    content = read_typed(
        SamplesOfOtherNodes,
        path,
        "stage the dataset again, or delete the file if it was never staged",
    )
    if content.config_hash == samples_hash:
        return frozenset(content.ids)
    return frozenset()
