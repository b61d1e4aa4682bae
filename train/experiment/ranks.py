"""Section training.ranks: how ranks agree, and how one that stalls is found."""

from pydantic import Field

from namsa.config.loading import Section


class RankSettings(Section):
    """Horovod's own settings, which it reads once, when it starts, and those of the watchdog."""

    cache_capacity: int = Field(
        4096, ge=0, le=2**24, description="entries of Horovod's response cache (bitvector); 0 turns it off"
    )
    fusion_threshold_mib: int = Field(128, ge=1, le=2**20, description="size of Horovod's fusion buffer, MiB")
    cycle_time_ms: float = Field(0.5, ge=1e-3, le=1e6, description="period of Horovod's background thread, ms")
    stall_warning_s: int = Field(
        60, ge=1, le=10**6, description="time after which Horovod warns of a rank that waits, s"
    )
    watchdog_radix: int = Field(
        0,
        ge=0,
        le=2**15,
        description="children per rank of the tree in which ranks exchange signs of life; 0: up to 256 ranks send them "
        "to rank 0, more have a tree of 32",
    )
