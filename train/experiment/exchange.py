"""Section training.exchange: what happens to gradients and weights between the ranks. Its key
`kind` chooses it.

The default is the paper's: gradients are averaged over the ranks in every step, in groups. The
sections of the other kinds are in their folders, `train/strategies/exchange`.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal, NamedTuple, Required, TypedDict

from pydantic import Field, model_validator

from fcdensenet.layer_counts import NetworkCount
from namsa.base.errors import InputError
from namsa.config.loading import Section

from .registry import KindSection, OfKind

LARGEST_COUNT = 10**9  # of samples and steps
Count = Annotated[int, Field(ge=1, le=LARGEST_COUNT)]
Pattern = Annotated[str, Field(min_length=1, max_length=200)]


class Synchronisations(NamedTuple):
    """Averages of the ranks after some steps, beside those in every step."""

    # steps from one to the next, or "epoch"; they also average at the end of each epoch
    every: int | Literal["epoch"]
    bytes: int  # size of what a rank averages at once, without the numbers of a step


class ModelledExchange(TypedDict, total=False):
    """Fields of `train.scaling.strategy.Strategy` that follow from an exchange."""

    groups: Required[int]
    allreduce: Required[Literal["ring", "tree", "hierarchical"]]
    fuse_groups: bool
    grouping: Literal["bytes", "layer", "block", "list"]
    group_list: tuple[tuple[str, ...], ...]
    contiguous: bool
    lag: bool
    synchronise: Literal["step", "epoch"] | int
    averaged_per_weight: int
    kernel_bytes: int


class ExchangeSection(KindSection):
    """Base class of the sections training.exchange.

    Attributes:
        excludes: What a kind does not go with, and why: a key of the section training that must
            have its default, or the key and the value that it must not have.
    """

    variants: ClassVar[dict[str, type[Section]]] = {}
    excludes: ClassVar[Mapping[str, str]] = {}

    @property
    def sends_float16(self) -> bool:
        """Whether gradients travel as float16, so that they need a loss scale."""
        return False

    def horovod_settings(self) -> dict[str, int]:
        """Returns what Horovod reads from the environment when it starts, without the prefix
        HOROVOD_.
        """
        return {"DISABLE_GROUP_FUSION": 0, "HIERARCHICAL_ALLREDUCE": 0}

    def process_sets(self, ranks: int) -> Sequence[tuple[int, ...]]:
        """Returns groups of ranks that exchange among themselves; Horovod takes them when it
        starts.
        """
        return ()

    def check_hosts(self, hosts: Sequence[Sequence[int]]) -> None:
        """Raises InputError if the ranks of the hosts do not form these groups."""

    def synchronisations(self, network: NetworkCount, moments: int) -> Synchronisations | None:
        """Returns what ranks average after some steps, also of so many moments per weight; `None`
        if they never do.
        """
        return None

    def within(self, steps: int) -> "ExchangeSection":
        """Returns a section with which ranks synchronise at least once in so many steps, if they
        ever do.
        """
        return self

    def modelled(self, moments: int) -> ModelledExchange:
        """Returns fields of `train.scaling.strategy.Strategy`. Raises InputError if the model lacks
        this kind.
        """
        kind = getattr(self, "kind", "")
        raise InputError(
            f"namsa-train scaling does not model training.exchange.kind {kind}: take kind allreduce"
        )


class GradientGroups(ExchangeSection):
    """Base class of the kinds that send gradients in groups."""

    groups: int = Field(
        8,
        ge=0,
        le=10_000,
        description="number of gradient groups of equal size in bytes; 0 sends each tensor alone",
    )
    grouping: Literal["bytes", "layer", "block", "list"] = Field(
        "bytes",
        description="contents of a group: equal numbers of bytes, a layer, a dense block or "
        "transition, or a group of group_list",
    )
    group_list: tuple[tuple[Pattern, ...], ...] = Field(
        (),
        max_length=10_000,
        description="for grouping 'list': patterns (*, ?) of the variables' paths for each group, "
        "as down1_*",
    )
    compression: Literal["none", "fp16"] = Field(
        "none", description="number format of gradients on the network"
    )

    @model_validator(mode="after")
    def _groups_are_given_once(self) -> "GradientGroups":
        if bool(self.group_list) != (self.grouping == "list"):
            raise ValueError("grouping 'list' and group_list go together: give both or neither")
        if self.groups == 0 and self.grouping != "bytes":
            raise ValueError("groups 0 reduces tensor by tensor: leave grouping out, or groups")
        return self

    @property
    def sends_float16(self) -> bool:
        return self.compression == "fp16"


class FusedGroups(GradientGroups):
    """Base class of the kinds that reduce gradients in groups, which Horovod may fuse."""

    fuse_groups: bool = Field(
        True,
        description="send groups that are complete at the same time as one message of up to "
        "training.ranks.fusion_threshold_mib (the paper); false sends each group by itself, so "
        "that sums of three or more ranks do not depend on timing. With groups 1 there is nothing "
        "to fuse",
    )

    def horovod_settings(self) -> dict[str, int]:
        """See `ExchangeSection`. With one group there is nothing to gain by fusion, and sums keep a
        fixed order.
        """
        disabled = not self.fuse_groups or self.groups == 1
        return super().horovod_settings() | {"DISABLE_GROUP_FUSION": int(disabled)}


class Allreduce(FusedGroups):
    """Gradients are averaged over all ranks in every step: the paper's grouped, fused, cached
    allreduce.
    """

    kind: Literal["allreduce"] = "allreduce"
    contiguous: bool = Field(
        False, description="send a group as one buffer instead of a list of tensors"
    )
    hierarchical: bool = Field(
        False, description="reduce within each node first, then between nodes (needs NCCL and MPI)"
    )

    @model_validator(mode="after")
    def _single_tensors_are_no_buffer(self) -> "Allreduce":
        if self.groups == 0 and self.contiguous:
            raise ValueError("groups 0 reduces tensor by tensor: leave contiguous out, or groups")
        return self

    def horovod_settings(self) -> dict[str, int]:
        return super().horovod_settings() | {"HIERARCHICAL_ALLREDUCE": int(self.hierarchical)}

    def modelled(self, moments: int) -> ModelledExchange:
        """See `ExchangeSection`. Reductions that are not hierarchical are NCCL's trees."""
        return {
            "groups": self.groups,
            "allreduce": "hierarchical" if self.hierarchical else "tree",
            "fuse_groups": self.fuse_groups,
            "grouping": self.grouping,
            "group_list": self.group_list,
            "contiguous": self.contiguous,
        }


Exchange = Annotated[ExchangeSection, OfKind("exchange", Allreduce)]


class RankSettings(Section):
    """Horovod's own settings, which it reads once, when it starts, and those of the watchdog."""

    cache_capacity: int = Field(
        4096,
        ge=0,
        le=2**24,
        description="entries of Horovod's response cache (bitvector); 0 turns it off",
    )
    fusion_threshold_mib: int = Field(
        128, ge=1, le=2**20, description="size of Horovod's fusion buffer, MiB"
    )
    cycle_time_ms: float = Field(
        0.5, ge=1e-3, le=1e6, description="period of Horovod's background thread, ms"
    )
    stall_warning_s: int = Field(
        60, ge=1, le=10**6, description="time after which Horovod warns of a rank that waits, s"
    )
    watchdog_radix: int = Field(
        0,
        ge=0,
        le=2**15,
        description="children per rank of the tree in which ranks exchange heartbeats; 0: up to "
        "256 ranks send them to rank 0, more have a tree of 32",
    )
