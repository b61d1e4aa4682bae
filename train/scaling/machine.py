"""What a machine can do, as the model of scaling needs it."""

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from namsa.config.loading import Section


class Machine(Section):
    """The ranks of a machine and the network between them. The defaults are Summit's.

    Three defaults are fitted to published results, see `train.scaling.published`: `announcement_s`,
    `host_hop_s` and `late_rate`. The others are published, from data sheets, or assumed, as said here.

    Attributes:
        name: Name of the machine.
        ranks_per_node: Ranks, and so GPUs, per node. Summit: 6 V100 (Laanait et al. 2019, section 2.1).
        sustained_flop_per_s: FLOP/s of one rank over a whole step. Summit: 59.67e12 (Laanait et al., table 1).
        convolution_flop_per_s: FLOP/s of one rank while it computes convolutions, which the paper calls peak. `None`
            if not known. A V100 on Summit: 83.92e12 (Laanait et al., section 5.3).
        node_link_bytes_per_s: Rate at which a collective sends from a node, and receives into it, byte/s. Summit: two
            EDR links of 12.5 GB/s; that collectives see 21 GB/s of the 25 is assumed.
        within_node_bytes_per_s: Rate of a collective between the ranks of a node, byte/s. Summit: NVLink with 50 GB/s
            per direction between neighbours; that collectives see 40 GB/s is assumed.
        host_float16_bytes_per_s: Rate at which the hosts of a node sum float16 in software, byte/s. Assumed.
        host_float32_bytes_per_s: Rate at which MPI reduces float32 between the hosts of nodes, byte/s. Assumed.
        host_hop_s: Time of a hop of MPI's ring between hosts, on top of the sums, s. Fitted.
        hop_between_nodes_s: Latency of a message between nodes, with the software's share, s. Assumed.
        hop_within_node_s: Latency of a message within a node, s. Assumed.
        message_s: CPU time of the coordinator per message of a rank, s. Assumed; `train.scaling.fit` measures it.
        announcement_s: CPU time of the coordinator per gradient and rank, s. Fitted.
        jitter: Standard deviation of a rank's time per step, as a fraction of the step. Assumed.
        late_rate: Probability that a rank is late in a step. Fitted.
        late_share: Delay of a rank that is late, as a fraction of the step. Assumed.
        copy_bytes_per_s: Rate at which a rank copies its state to its host for a checkpoint, byte/s. Assumed.
        disk_bytes_per_s: Rate at which a node writes to its own disk, byte/s. Summit: 2.1e9 (data sheet of the NVMe).
        kernel_rows: Rows of maps by which the kernels of a divided sample seem longer: those of r rows take the time of
            r plus so many. Summit: not known, and none.
    """

    name: str = "Summit"
    ranks_per_node: PositiveInt = 6
    sustained_flop_per_s: PositiveFloat = 59.67e12
    convolution_flop_per_s: PositiveFloat | None = None
    node_link_bytes_per_s: PositiveFloat = 21e9
    within_node_bytes_per_s: PositiveFloat = 40e9
    host_float16_bytes_per_s: PositiveFloat = 2e9
    host_hop_s: NonNegativeFloat = 295e-6
    host_float32_bytes_per_s: PositiveFloat = 6e9
    hop_between_nodes_s: NonNegativeFloat = 10e-6
    hop_within_node_s: NonNegativeFloat = 3e-6
    message_s: NonNegativeFloat = 1e-6
    announcement_s: NonNegativeFloat = 2.8e-6
    jitter: NonNegativeFloat = 0.001
    late_rate: NonNegativeFloat = Field(1.95e-5, le=1)
    late_share: NonNegativeFloat = 0.2
    copy_bytes_per_s: PositiveFloat = 5e9
    disk_bytes_per_s: PositiveFloat = 2.1e9
    kernel_rows: NonNegativeFloat = 0.0


# The rate of the convolutions belongs to the machine whose other rates are the defaults, not to any machine.
SUMMIT = Machine(convolution_flop_per_s=83.92e12)
