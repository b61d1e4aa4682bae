"""Datasets without samples: none was made yet, or the simulation of all of them failed."""

from collections.abc import Mapping
from pathlib import Path

from namsa.base.errors import InputError
from namsa.base.text import plural
from namsa.dataset import manifest
from namsa.dataset.failures import most_common_reasons, unresolved_failures
from namsa.dataset.shards import Dataset


def failures_of(directory: Path, dataset: Dataset) -> dict[str, str]:
    """Returns {id: reason} of the samples of a dataset whose simulation failed."""
    samples_hash = dataset.config_hash
    if samples_hash is None:  # there is no sample; the manifest has the hash, too
        if not (directory / manifest.FILE_NAME).exists():
            return {}
        samples_hash = manifest.read_header(directory)["samples_hash"]
    return unresolved_failures(directory, samples_hash, dataset.ids)


def check_not_empty(directory: Path, dataset: Dataset) -> None:
    """Raises InputError if a dataset has no sample; says how many failed, and why."""
    if not dataset.ids:
        raise InputError(_emptiness(directory, failures_of(directory, dataset)))


def _emptiness(directory: Path, failures: Mapping[str, str]) -> str:
    """Returns the message for a dataset without samples."""
    if not failures:
        return f"{directory} holds no samples: make some with namsa dataset"
    count = plural(len(failures), "sample")
    return (
        f"{directory} holds no samples: {count} could not be simulated "
        f"({most_common_reasons(failures)}): change the configuration; {directory}/failed-*.jsonl "
        "says which"
    )
