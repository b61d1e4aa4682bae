"""The memory that this process can still allocate, and refusals of work that needs more, before it begins."""

import resource
from pathlib import Path

from namsa.errors import OutOfMemoryError


def available_memory_bytes() -> int:
    """Returns the memory that this process can still allocate, within the limits of its control group and its own."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    limit, used = (Path(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    if limit.exists() and (text := limit.read_text(encoding="ascii").strip()) != "max":
        available = min(available, int(text) - int(used.read_text(encoding="ascii")))
    address_space, _ = resource.getrlimit(resource.RLIMIT_AS)  # `ulimit -v`
    if address_space != resource.RLIM_INFINITY:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        available = min(available, address_space - pages * resource.getpagesize())
    return max(0, available)


def check_memory_for(needed_bytes: float, work: str, remedy: str, available_bytes: int | None = None) -> None:
    """Checks that work fits into the memory.

    Args:
        needed_bytes: Memory that the work needs.
        work: What needs it, for the message: "a grid of 64×80 pixels".
        remedy: What to do if there is less.
        available_bytes: Available memory; by default that of this process.

    Raises:
        OutOfMemoryError: If the work needs more memory.
    """
    available = available_memory_bytes() if available_bytes is None else available_bytes
    if needed_bytes > available:
        raise OutOfMemoryError(
            f"{work}: {needed_bytes / 1e9:.1f} GB of memory, and {available / 1e9:.1f} GB are available: {remedy}"
        )
