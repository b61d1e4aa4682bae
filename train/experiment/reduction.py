"""Section training.reduction: how gradients, or weights, are averaged over the ranks."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from namsa.config.loading import Section

from .transfer import Transfer

LARGEST_COUNT = 10**9  # of samples and steps
Count = Annotated[int, Field(ge=1, le=LARGEST_COUNT)]
Pattern = Annotated[str, Field(min_length=1, max_length=200)]


class Hybrid(Section):
    """Reduction within each node, then between leaders of the nodes, then within each node again."""

    node_ranks: Count = Field(description="ranks per node; ranks fill one node after another")
    leaders: Count = Field(
        description="ranks per node that reduce between nodes, each an equal share of the buffer; as many as a node "
        "has network devices (Kurth et al. 2018: 4 of 6)"
    )

    @model_validator(mode="after")
    def _leaders_are_ranks_of_the_node(self) -> "Hybrid":
        if self.leaders > self.node_ranks:
            raise ValueError(f"leaders {self.leaders} is more than the {self.node_ranks} ranks of a node: lower it")
        return self


class Reduction(Section):
    """How gradients are averaged over the ranks. Horovod reads its own settings once, when it starts."""

    groups: int = Field(
        8, ge=0, le=10_000, description="number of gradient groups of equal size in bytes; 0 reduces each tensor alone"
    )
    grouping: Literal["bytes", "layer", "block", "list"] = Field(
        "bytes",
        description="contents of a group: equal numbers of bytes, a layer, a dense block or transition, or a group of "
        "group_list",
    )
    group_list: tuple[tuple[Pattern, ...], ...] = Field(
        (),
        max_length=10_000,
        description="for grouping 'list': patterns (*, ?) of the variables' paths for each group, as down1_*",
    )
    fuse_groups: bool = Field(
        True,
        description="send groups that are complete at the same time as one message of up to fusion_threshold_mib (the "
        "paper); false sends each group by itself, so that sums of three or more ranks do not depend on timing. With "
        "groups 1 there is nothing to fuse",
    )
    contiguous: bool = Field(False, description="send a group as one buffer instead of a list of tensors")
    hierarchical: bool = Field(
        False, description="reduce within each node first, then between nodes (needs NCCL and MPI)"
    )
    hybrid: Hybrid | None = Field(
        None,
        description="reduce within each node first, then between leaders of the nodes, without NCCL or MPI; a group is "
        "then one buffer; none: reduce over all ranks alike",
    )
    compression: Literal["none", "fp16"] = Field("none", description="number format of gradients on the network")
    lag: Literal[0, 1] = Field(
        0, description="1 updates with the gradients of the previous step, which are averaged during the current one"
    )
    synchronise: Literal["step", "epoch"] | Count = Field(
        "step",
        description="'step' averages gradients in every step; a number k or 'epoch' is local SGD: ranks update "
        "independently and average their weights every k steps, and at the end of each epoch",
    )
    average_moments: bool = Field(
        False,
        description="with local SGD, average the optimizer's moments with the weights, in a message two (momentum) or "
        "three times (Adam) as large; false: each rank keeps its own (Yoginath et al. 2019), and checkpoints hold them",
    )
    weights: Literal["resident", "sharded"] = Field(
        "resident",
        description="'resident': every rank keeps the moments of all weights and updates all of them; 'sharded': each "
        "weight is updated by the rank that owns it, which sends it to the others",
    )
    transfer: Transfer = Transfer()
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
        description="children per rank of the tree in which ranks exchange signs of life; 0: all send them to rank 0",
    )

    @model_validator(mode="after")
    def _choices_fit(self) -> "Reduction":
        if bool(self.group_list) != (self.grouping == "list"):
            raise ValueError("grouping 'list' and group_list go together: give both or neither")
        if self.groups == 0 and (self.grouping != "bytes" or self.contiguous):
            raise ValueError("groups 0 reduces tensor by tensor: leave grouping and contiguous out, or groups")
        if self.local and (self.lag or self.hybrid or self.compression != "none"):
            raise ValueError("lag, hybrid and compression are for gradients, which travel with synchronise: step alone")
        if self.hybrid and (self.hierarchical or self.groups == 0):
            raise ValueError("hybrid reduces buffers of groups in its own order: unset hierarchical, and groups 0")
        if self.average_moments and not self.local:
            raise ValueError("average_moments is for local SGD: set synchronise to a number of steps or epoch")
        if self.weights == "resident" and not self.local and self.transfer != Transfer():
            raise ValueError(
                "transfer is for weights that travel: set weights to sharded, or synchronise to a number of steps or "
                "epoch, or leave transfer out"
            )
        if self.local and self.transfer.precision == "adaptive":
            raise ValueError(
                "transfer.precision adaptive follows the norms of weights from step to step, and synchronise other "
                "than step averages after several: set precision to 8, 16, 24 or 32"
            )
        if self.average_moments and self.transfer.precision != 32:
            raise ValueError(
                f"average_moments sends moments in 32 bits, and transfer.precision is {self.transfer.precision}: set "
                "average_moments to false, or precision to 32"
            )
        if self.weights == "sharded" and (
            self.local or self.lag or self.hierarchical or self.hybrid or self.contiguous
        ):
            raise ValueError(
                "weights sharded sends gradients to their owners and weights back in every step: leave out "
                "synchronise, lag, hierarchical, hybrid and contiguous, or set weights to resident"
            )
        return self

    @property
    def local(self) -> bool:
        """Whether ranks update independently between synchronisations (local SGD)."""
        return self.synchronise != "step"
