"""Published results of data-parallel training at scale, and the same results from the model of
`train.scaling.model`.

    Laanait et al. 2019, Exascale Deep Learning for Scientific Inverse Problems (arXiv:1909.11150)
    Kurth et al. 2018, Exascale Deep Learning for Climate Analytics (SC18)
    Yoginath et al. 2019, local SGD with DEEPEx; see `train.scaling.deepex`
    Oyama et al. 2020, samples divided over GPUs (arXiv:2007.12856); see `train.scaling.oyama`

Three of the machine's numbers are fitted, each to the results that name it, one of DEEPEx's and one
of Oyama's:

    late_rate         both efficiencies of all of Summit, 0.93 and, in float32, 0.907
    announcement_s    the factors of 8 and 3 of figure 1, together with host_hop_s
    host_hop_s        the same
    FITTED_BYTES_PER_S of `train.scaling.deepex`: the efficiency of local SGD at 1,536 GPUs, 0.75
    FITTED_KERNEL_ROWS of `train.scaling.oyama`: the speed-up from 8 to 16 ways, 1.66

No other result is used. `PublishedResult.fitted` says it of each, `met` whether the model gives it.

Figure 1 is a picture: its numbers are taken from the text, which gives two. The factor of 8 is read
as the gain from hierarchical reductions to trees with response cache and groups, and both factors
as those at the last point, 1,024 nodes. For the gain of groups over the response cache alone, which
the text calls significant, only the curves have a number; the model gives none. The text traces the
loss of hierarchical reductions to large numbers of nodes. So the fitted term grows with the nodes.
As a time per hop it is thirty times the network's latency: it stands for all that MPI's ring
between hosts costs per node, with copies, sums in software, and ranks that wait for each other.

Networks. The abstract's efficiency is that of the network with 220 million parameters, figure 1
that of one with 40 million (configs/paper_40m.yaml says how it was found). Its time per step is not
published. It is derived: the FLOP of the step at the rate of the larger network. The networks that
have as many parameters would take 0.16 to 0.58 s; fitted to the fastest and the slowest of them,
`announcement_s` is 0.9 and 5.0 µs, `host_hop_s` 0.14 and 0.52 ms.

Baselines differ: Laanait et al. compare with a node, Kurth et al. with one GPU in the same run. The
rates of Kurth's figure 2 are no baseline: 999.0 PFLOP/s are 0.950 of 27,360 times its 38.45
TFLOP/s, and the text says 0.907.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from fcdensenet.config import NetworkConfig
from fcdensenet.count import count

from . import deepex, oyama
from .model import allreduce_s, efficiency
from .strategy import SUMMIT, Machine, Strategy, fused, units
from .workload import Gradient, StepWorkload, workload

CACHE_AND_GROUPS = Strategy("bitvector", groups=8, allreduce="tree")
# Horovod without both techniques: its cycles of 5 ms and 64 MB, which made up for the missing
# groups.
BASELINE = Strategy(
    "master-worker", groups=0, allreduce="tree", cycle_s=5e-3, fusion_bytes=64 * 2**20
)
HIERARCHICAL_BASELINE = replace(BASELINE, allreduce="hierarchical")
CACHE_ONLY = replace(BASELINE, coordination="bitvector")
GROUPS_ONLY = replace(CACHE_AND_GROUPS, coordination="master-worker")
RADIX_TREES = replace(HIERARCHICAL_BASELINE, coordination="tree", lag=True)

# Four curves of figure 1, as the text names them by colour, and groups alone, which the text says
# can be used, too.
STRATEGIES = {
    "response cache and groups": CACHE_AND_GROUPS,
    "response cache alone": CACHE_ONLY,
    "groups alone": GROUPS_ONLY,
    "neither": BASELINE,
    "neither, hierarchical reductions": HIERARCHICAL_BASELINE,
}

PAPER_NETWORK = NetworkConfig(input_shape=(1024, 512, 512), transition_up_kernel=1)
# on a V100 of a node of six, one sample; of it 613.75 ms in convolutions (table 1)
PAPER_STEP_S = 0.863298
PAPER_WORKLOAD = workload(PAPER_NETWORK, "float16", PAPER_STEP_S)
FIGURE_1_NETWORK = NetworkConfig(
    input_shape=(1024, 512, 512),
    layers=(2,) * 7,
    growth=128,
    first_filters=128,
    transition_up_kernel=3,
)
FIGURE_1_WORKLOAD = workload(
    FIGURE_1_NETWORK, "float16", count(FIGURE_1_NETWORK).step_flop / SUMMIT.sustained_flop_per_s
)
FIGURE_1_RANKS = 6_144  # 1,024 nodes
UP_TO_THOUSANDS = (6, 24, 96, 384, 1536, FIGURE_1_RANKS)


def _kurth(parameters: int, tensors: int, step_s: float) -> StepWorkload:
    """A step of Kurth's networks. Its tensors are alike and become ready evenly. With lag that
    hardly matters.

    Gradients are float32 in the runs in float16, too: NCCL moves equal bytes in both (figure 9, 0.6
    GB).
    """
    ready = (step_s * (1 + 2 * index / tensors) / 3 for index in range(1, tensors + 1))
    return StepWorkload(
        step_s, tuple(Gradient(4 * parameters // tensors, ready_s) for ready_s in ready), "float32"
    )


# Steps of one GPU by the rates of figure 2, one sample in float32 and two in float16. The numbers
# of parameters are those of the networks built after the paper's description; the text says of the
# tensors "over a hundred".
DEEPLAB_FLOAT32 = _kurth(43_718_883, 120, 1 / 0.87)
DEEPLAB_FLOAT16 = _kurth(43_718_883, 120, 2 / 2.67)
TIRAMISU_FLOAT32 = _kurth(7_504_835, 60, 1 / 1.91)
TIRAMISU_FLOAT16 = _kurth(7_504_835, 60, 2 / 5.00)
TIRAMISU_4_CHANNELS = _kurth(7_134_211, 60, 1 / 1.20)  # on a P100 of Piz Daint

TOLERANCE = 0.02  # of an equality, relative

# Ranks and FLOP/s, section 5.3. They follow from 0.93 and the rates of one GPU, and so test nothing
# further.
PUBLISHED_FLOP_PER_S = {"sustained": (27_600, 1.54e18), "peak": (27_600, 2.15e18)}


@dataclass(frozen=True)
class PublishedResult:
    """A published number beside the model's."""

    name: str  # what the number is
    # Whether the model should give `published` ("equal"), at least that much ("at_least"), or a
    # number from `published` to `highest` ("between").
    kind: Literal["equal", "at_least", "between"]
    published: float  # the published number
    model: float  # the model's number
    fitted: bool  # whether the number was used to fit the machine
    # whether the model's number is within 2% of an equality, not below an inequality, or in a range
    met: bool
    network: str  # the network of the published run
    source: str  # where it was published
    ranks: int | None = None  # number of ranks, if the number is an efficiency
    highest: float | None = None  # end of a range


def published_results(machine: Machine = SUMMIT) -> tuple[PublishedResult, ...]:
    """Returns every published result with the model's value, also of Piz Daint with some of
    Summit's constants.
    """
    return (
        *_laanait(machine),
        *_kurth_summit(machine),
        *_kurth_piz_daint(machine),
        *_yoginath(),
        *_oyama(),
    )


def _laanait(machine: Machine) -> Iterator[PublishedResult]:
    """Results of Laanait et al. 2019, whose baseline is a node."""
    source = "Laanait et al. 2019"
    large = "FC-DenseNet, 220 M"
    small = "FC-DenseNet, 40 M"

    def model(strategy: Strategy, ranks: int, work: StepWorkload) -> float:
        return efficiency(machine, work, strategy, ranks, baseline=machine.ranks_per_node)

    paper_result = model(CACHE_AND_GROUPS, 27_600, PAPER_WORKLOAD)
    yield _equal("efficiency", 0.93, paper_result, True, large, f"{source}, abstract", 27_600)
    thousands = min(model(CACHE_AND_GROUPS, ranks, PAPER_WORKLOAD) for ranks in UP_TO_THOUSANDS)
    name = f"lowest efficiency up to {FIGURE_1_RANKS:,} GPUs"
    yield _at_least(name, 0.97, thousands, large, f"{source}, section 2.2", FIGURE_1_RANKS)
    yield _equal(
        "efficiency, stated as below 1 only beyond 1,024 nodes",
        1.0,
        model(CACHE_AND_GROUPS, FIGURE_1_RANKS, PAPER_WORKLOAD),
        False,
        large,
        f"{source}, section 5.3",
        FIGURE_1_RANKS,
    )
    messages = fused(
        units(PAPER_WORKLOAD.gradients, CACHE_AND_GROUPS),
        replace(CACHE_AND_GROUPS, fuse_groups=False),
    )
    node_s = 0.0
    for size in messages:
        node_s += allreduce_s(machine, "tree", machine.ranks_per_node, size, "float16")
    yield _equal(
        "time of NCCL per step on one node, ms",
        43.08,
        1e3 * node_s,
        False,
        large,
        f"{source}, table 1",
    )
    both = model(CACHE_AND_GROUPS, FIGURE_1_RANKS, FIGURE_1_WORKLOAD)
    trees = model(BASELINE, FIGURE_1_RANKS, FIGURE_1_WORKLOAD)
    hierarchy = model(HIERARCHICAL_BASELINE, FIGURE_1_RANKS, FIGURE_1_WORKLOAD)
    name = "gain by trees, response cache and groups at 1,024 nodes"
    yield _equal(name, 8.0, both / hierarchy, True, small, f"{source}, section 3 on figure 1")
    name = "of that, gain by trees over hierarchical NCCL 2.3"
    yield _equal(name, 3.0, trees / hierarchy, True, small, f"{source}, section 2.3 on figure 1")


def _kurth_summit(machine: Machine) -> Iterator[PublishedResult]:
    """Results of Kurth et al. 2018 on Summit with lag, whose baseline is one GPU."""
    source = "Kurth et al. 2018, section VII-B"

    def model(ranks: int, work: StepWorkload) -> float:
        return efficiency(machine, work, RADIX_TREES, ranks)

    for precision, work, fitted in (
        ("float32", DEEPLAB_FLOAT32, True),
        ("float16", DEEPLAB_FLOAT16, False),
    ):
        network = f"DeepLabv3+, {precision}"
        yield _equal(
            "efficiency, trees of radix r and lag",
            0.907,
            model(27_360, work),
            fitted,
            network,
            source,
            27_360,
        )
    for precision, work in (("float32", TIRAMISU_FLOAT32), ("float16", TIRAMISU_FLOAT16)):
        network = f"Tiramisu, {precision}"
        yield _at_least(
            "efficiency, trees of radix r and lag",
            0.90,
            model(24_576, work),
            network,
            source,
            24_576,
        )


def _kurth_piz_daint(summit: Machine) -> Iterator[PublishedResult]:
    """Results of Kurth et al. 2018 on Piz Daint: a rank per node, MPI between GPUs. Its network is
    assumed, 10 GB/s.
    """
    machine = summit.model_copy(
        update={"name": "Piz Daint", "ranks_per_node": 1, "node_link_bytes_per_s": 10e9}
    )
    strategy = replace(RADIX_TREES, allreduce="tree")
    for ranks, published in ((2_048, 0.834), (5_300, 0.79)):
        value = efficiency(machine, TIRAMISU_4_CHANNELS, strategy, ranks)
        name = "efficiency, float32"
        source = "Kurth et al. 2018, section VII-B"
        yield _equal(name, published, value, False, "Tiramisu, Piz Daint", source, ranks)


def _yoginath() -> Iterator[PublishedResult]:
    """Results of Yoginath et al. 2019 with local SGD, whose baseline is a node. Their words are
    "around" and "over".
    """
    network = "ResNet-50, local SGD"
    source = "Yoginath et al. 2019"
    at_1536, at_10000 = (deepex.epoch_efficiency(ranks) for ranks in (1_536, 10_000))
    name = "efficiency per epoch"
    yield _equal(name, 0.75, at_1536, True, network, f"{source}, section V-A", 1_536)
    yield _at_least(name, 0.35, at_10000, network, f"{source}, section V-A", 10_000)
    ranks = deepex.ranks_of_equal_times()
    yield PublishedResult(
        "GPUs at which computation and synchronisation take the same time",
        "between",
        4_000,
        ranks,
        False,
        4_000 <= ranks <= 5_000,
        network,
        f"{source}, section V-B",
        highest=5_000,
    )


def _oyama() -> Iterator[PublishedResult]:
    """Results of Oyama et al. 2020: the same samples in a step on more GPUs."""
    for network, name, groups, few, many, published in (
        (oyama.COSMOFLOW, "CosmoFlow, 512³", 16, 8, 32, 1.98),
        (oyama.COSMOFLOW, "CosmoFlow, 512³", 64, 8, 32, 1.77),
        (oyama.COSMOFLOW, "CosmoFlow, 512³", 4, 8, 16, 1.66),
        (oyama.UNET, "3-D U-Net, 256³", 16, 16, 32, 1.42),
    ):
        gain = oyama.speed_up(network, groups, few, many)
        text = f"speed-up from {few} to {many} ways, {groups} samples, {groups * many:,} GPUs"
        fitted = (groups, few, many) == (4, 8, 16)
        yield _equal(text, published, gain, fitted, name, "Oyama et al. 2020, section 5.2")


def _equal(
    name: str,
    published: float,
    model: float,
    fitted: bool,
    network: str,
    source: str,
    ranks: int | None = None,
) -> PublishedResult:
    """A number that the model should give."""
    met = abs(model / published - 1) <= TOLERANCE
    return PublishedResult(name, "equal", published, model, fitted, met, network, source, ranks)


def _at_least(
    name: str, published: float, model: float, network: str, source: str, ranks: int | None = None
) -> PublishedResult:
    """A number below which the model should not be; none of them is fitted."""
    return PublishedResult(
        name, "at_least", published, model, False, model >= published, network, source, ranks
    )
