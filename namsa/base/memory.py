"""The memory that this process can still allocate, and refusals of work that needs more, before it
begins.
"""

from pathlib import Path

import psutil

from namsa.base.errors import OutOfMemoryError

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]


def available_memory_bytes() -> int:
    """Returns the memory that this process can still allocate, within the limits of its control
    group and its own.
    """
    available: int = psutil.virtual_memory().available
    limit, used = (Path(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    if limit.exists() and (text := limit.read_text(encoding="ascii").strip()) != "max":
        available = min(available, int(text) - int(used.read_text(encoding="ascii")))
    if resource is not None:
        address_space, _ = resource.getrlimit(resource.RLIMIT_AS)  # `ulimit -v`
        if address_space != resource.RLIM_INFINITY:
            available = min(available, address_space - psutil.Process().memory_info().vms)
    return max(0, available)


def check_memory_for(
    needed_bytes: float, work: str, remedy: str, available_bytes: int | None = None
) -> None:
    """Checks that work fits into the memory.

    Args:
        work: What needs it, for the message: "a grid of 64×80 pixels".
        available_bytes: Available memory; by default that of this process.

    Raises:
        OutOfMemoryError: If the work needs more memory.
    """
    available = available_memory_bytes() if available_bytes is None else available_bytes
    if needed_bytes > available:
        raise OutOfMemoryError(
            f"{work}: {needed_bytes / 1e9:.1f} GB of memory, and {available / 1e9:.1f} GB are "
            f"available: {remedy}"
        )
