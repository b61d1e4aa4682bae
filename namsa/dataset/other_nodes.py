"""Samples that other nodes hold: `elsewhere.json` of a dataset that is spread over node-local storage.

They are not missing, and no run on this node simulates them again.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from namsa.errors import WorkError
from namsa.files import write_text_atomic

FILE_NAME = "elsewhere.json"


def write_ids(directory: Path, samples_hash: str, ids: Iterable[str]) -> None:
    """Writes which samples of a configuration other nodes hold.

    Args:
        directory: This node's folder of the dataset.
        samples_hash: `SimulationConfig.samples_hash` of the samples.
        ids: Their ids.

    Raises:
        WorkError: If the list cannot be written.
    """
    write_text_atomic(directory / FILE_NAME, json.dumps({"config_hash": samples_hash, "ids": sorted(ids)}))


def read_ids(directory: Path, samples_hash: str) -> frozenset[str]:
    """Returns the ids of the samples of a configuration that other nodes hold.

    Raises:
        WorkError: If the list is damaged.
    """
    path = directory / FILE_NAME
    if not path.exists():
        return frozenset()
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return frozenset(content["ids"]) if content["config_hash"] == samples_hash else frozenset()
    except (OSError, ValueError, TypeError, KeyError):
        raise WorkError(f"{path} cannot be read or is damaged: stage the dataset again") from None
