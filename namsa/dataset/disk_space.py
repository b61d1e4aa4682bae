"""Whether what is to be made will fit on the disk."""

import shutil
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from namsa.config.simulation import SimulationConfig
from namsa.crystals.material import Material
from namsa.dataset.estimate import count, record_bytes
from namsa.dataset.manifest import Entry
from namsa.errors import InputError, WorkError

SAMPLED = 8  # of entries in random order
_SLACK = 1.02  # pages of keys, and those given up by each commit


def expected_bytes(config: SimulationConfig, materials: Mapping[str, Material], entries: Sequence[Entry]) -> int:
    """What the records of `entries`, in random order, will take in a shard: the first few stand for all."""
    sizes = []
    for entry in entries[:SAMPLED]:
        with suppress(InputError):  # a sample that cannot be made takes nothing
            sizes.append(record_bytes(count(config, materials[entry.material], entry)))
    return round(_SLACK * sum(sizes) / max(1, len(sizes)) * len(entries))


def check(directory: Path, expected: int, ranks: int = 1, time_limited: bool = False) -> None:
    """Raises WorkError where `ranks` times `expected` bytes do not fit; of a run that may end sooner, only warns."""
    free = shutil.disk_usage(directory).free
    if ranks * expected <= free:
        return
    each = f" for each of {ranks} ranks here" if ranks > 1 else ""
    message = f"{directory} has {free / 1e9:.3g} GB free, what is to come takes about {expected / 1e9:.3g} GB{each}"
    if not time_limited:
        raise WorkError(f"{message}: make room, take another folder, or make fewer samples (--limit, --time-limit)")
    warnings.warn(f"{message}: the disk may be full before the time is over; what is written stays", stacklevel=2)
