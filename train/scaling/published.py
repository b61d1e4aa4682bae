"""Published results of data-parallel training on Summit, and the same results from the model of `train.scaling.model`.

    Laanait et al. 2019, Exascale Deep Learning for Scientific Inverse Problems (arXiv:1909.11150): abstract, figure 1
    Kurth et al. 2018, Exascale Deep Learning for Climate Analytics (SC18): abstract, section V

Three of the machine's numbers cannot be read from a data sheet. They are fitted, once, to all results together:
`late_rate` (to both efficiencies of the whole machine), `announcement_s` and `host_float16_bytes_per_s` (to the two
ratios near 6,000 ranks). `jitter` and `late_share` are assumed. No number is fitted to a single result, and nothing is
fitted to the efficiency at thousands of ranks. The factor of 8 is read as the gain from hierarchical reductions without
response cache and groups to trees with both. Of that, a factor of 3 comes from the trees. The rest agrees with the
factor of 2 at 6,000 ranks that Romero et al. 2022 (NSDI) publish for the same techniques.

The fitted `announcement_s` is thirty times the 0.22 µs that the coordinator needs on a current machine
(docs/benchmarks/training.md). It stands for a slower core, MPI's linear gather, and any gradients that the authors'
network had beyond the 50 of ours.
"""

from dataclasses import dataclass, replace
from typing import Literal

from fcdensenet.config import NetworkConfig
from train.scaling.model import Gradient, Machine, Strategy, Workload, efficiency, workload

CACHE_AND_GROUPS = Strategy("bitvector", groups=8, allreduce="tree")
# Horovod without both techniques: cycles of 5 ms and 64 MB, which made up for the missing groups.
BASELINE = Strategy("master-worker", groups=0, allreduce="tree", cycle_s=5e-3, fusion_bytes=64 * 2**20)
HIERARCHICAL_BASELINE = replace(BASELINE, allreduce="hierarchical")
CACHE_ONLY = replace(BASELINE, coordination="bitvector")
GROUPS_ONLY = replace(CACHE_AND_GROUPS, coordination="master-worker")
RADIX_TREES = replace(HIERARCHICAL_BASELINE, coordination="tree", lag=True)

STRATEGIES = {
    "response cache and groups": CACHE_AND_GROUPS,
    "response cache alone": CACHE_ONLY,
    "groups alone": GROUPS_ONLY,
    "neither": BASELINE,
    "neither, hierarchical reductions": HIERARCHICAL_BASELINE,
}

PAPER_NETWORK = NetworkConfig(input_shape=(1024, 512, 512), transition_up_kernel=1)
PAPER_STEP_S = 0.8633  # on a V100, one sample; of it 613.75 ms in convolutions
PAPER_WORKLOAD = workload(PAPER_NETWORK, "float16", PAPER_STEP_S)

# DeepLabv3+ on ResNet-50: one sample in 1 / 0.87 s in float32 (Kurth et al., figure 2). The number of parameters (43.6
# million) and of tensors (120) are our estimates; with lag they hardly matter.
_DEEPLAB_STEP_S = 1 / 0.87
DEEPLAB_WORKLOAD = Workload(
    _DEEPLAB_STEP_S,
    tuple(Gradient(43_600_000 * 4 // 120, _DEEPLAB_STEP_S * (1 + 2 * i / 120) / 3) for i in range(1, 121)),
    "float32",
)
UP_TO_THOUSANDS = (6, 24, 96, 384, 1536, 4608)


@dataclass(frozen=True)
class PublishedResult:
    """A published number beside the model's.

    Attributes:
        name: What the number is.
        kind: Whether the model should give `published` ("equal"), or at least that much ("at_least").
        published: The published number.
        model: The model's number.
        fitted: Whether the number was used to fit the machine.
        source: Where it was published.
        ranks: Number of ranks, if the number is an efficiency.
    """

    name: str
    kind: Literal["equal", "at_least"]
    published: float
    model: float
    fitted: bool
    source: str
    ranks: int | None = None


def published_results(machine: Machine) -> tuple[PublishedResult, ...]:
    """Returns every published result with the model's value on `machine`."""

    def model(strategy: Strategy, ranks: int, work: Workload = PAPER_WORKLOAD) -> float:
        return efficiency(machine, work, strategy, ranks)

    abstract, figure = "Laanait et al. 2019, abstract", "Laanait et al. 2019, figure 1"
    return (
        PublishedResult(
            "efficiency at 27,600 GPUs", "equal", 0.93, model(CACHE_AND_GROUPS, 27_600), True, abstract, 27_600
        ),
        PublishedResult(
            f"lowest efficiency up to {UP_TO_THOUSANDS[-1]:,} GPUs",
            "at_least",
            0.97,
            min(model(CACHE_AND_GROUPS, ranks) for ranks in UP_TO_THOUSANDS),
            False,
            figure,
            UP_TO_THOUSANDS[-1],
        ),
        PublishedResult(
            "gain by trees, response cache and groups at 6,000 GPUs",
            "at_least",
            8.0,
            model(CACHE_AND_GROUPS, 6_000) / model(HIERARCHICAL_BASELINE, 6_000),
            True,
            figure,
        ),
        PublishedResult(
            "of that, gain by trees over hierarchical NCCL 2.3",
            "equal",
            3.0,
            model(BASELINE, 6_000) / model(HIERARCHICAL_BASELINE, 6_000),
            True,
            figure,
        ),
        PublishedResult(
            "gain by response cache and groups at 6,000 GPUs",
            "at_least",
            2.0,
            model(CACHE_AND_GROUPS, 6_000) / model(BASELINE, 6_000),
            False,
            "Romero et al. 2022, abstract",
        ),
        PublishedResult(
            "DeepLabv3+, radix-r trees, hierarchy and lag, at 27,360 GPUs",
            "equal",
            0.907,
            model(RADIX_TREES, 27_360, DEEPLAB_WORKLOAD),
            True,
            "Kurth et al. 2018, abstract",
            27_360,
        ),
    )
