"""Whether the samples of a run will fit on the disk."""

import shutil
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from namsa.base.errors import InputError, WorkError
from namsa.base.files import system_errors
from namsa.config.simulation import SimulationConfig
from namsa.crystals.material import Material
from namsa.dataset.entry import Entry, material_of
from namsa.dataset.workload import count_workload, record_bytes

SAMPLED = 8  # entries whose size is computed
_SLACK = 1.02  # pages of keys, and those that each commit gives up
_MORE_ROOM = "make room, take another folder, or make fewer samples (--limit, --time-limit)"


def expected_bytes(
    config: SimulationConfig, materials: Mapping[str, Material], entries: Sequence[Entry]
) -> int:
    """Returns what the records of `entries` will take in a shard. The first few stand for all.

    Args:
        entries: The entries, in random order.
    """
    sizes = []
    for entry in entries[:SAMPLED]:
        with suppress(InputError):  # a sample that cannot be simulated takes nothing
            sizes.append(record_bytes(count_workload(config, material_of(entry, materials), entry)))
    return round(_SLACK * sum(sizes) / max(1, len(sizes)) * len(entries))


def check(
    directory: Path,
    expected: int,
    ranks: int = 1,
    time_limited: bool = False,
    remedy: str = _MORE_ROOM,
) -> None:
    """Checks that the disk has room for `ranks` times `expected` bytes.

    Args:
        time_limited: Whether the run may end before it has written all. Too little room is then
            only a warning.

    Raises:
        InputError: If there is no such folder.
        WorkError: If it has not.
    """
    with system_errors(f"cannot write into {directory}", InputError):
        free = shutil.disk_usage(directory).free
    if ranks * expected <= free:
        return
    message = (
        f"{directory} has {free / 1e9:.3g} GB free, the samples to come take about "
        f"{expected / 1e9:.3g} GB"
    )
    if ranks > 1:
        message += f" for each of {ranks} ranks here"
    if not time_limited:
        raise WorkError(f"{message}: {remedy}")
    warnings.warn(
        f"{message}: the disk may be full before the time is over; what is written stays",
        stacklevel=2,
    )
