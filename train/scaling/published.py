"""What has been published of data-parallel training on Summit, and the same facts out of `train.scaling.model`'s model.

    Laanait et al. 2019, Exascale Deep Learning for Scientific Inverse Problems (arXiv:1909.11150): abstract, figure 1
    Kurth et al. 2018, Exascale Deep Learning for Climate Analytics (SC18): abstract, section V

Four of the machine's numbers cannot be read off a data sheet and are fitted, once, to all facts together: `late_rate`
(to both efficiencies of the whole machine), `announcement_s` and `host_float16_bytes_per_s` (to the two ratios near
6,000 ranks). `jitter` and `late_share` are assumed. Nothing is fitted to a single point, and the efficiency at
thousands of ranks is fitted to nothing. The factor of 8 is read as from hierarchical reductions with neither technique
to trees with both: of that, a factor of 3 is the trees', and the rest agrees with the factor of 2 at 6,000 ranks that
Romero et al. 2022 (NSDI) publish for the same techniques.

`announcement_s` comes out thirty times the 0.22 µs that the coordinator needs on a machine of today
(docs/benchmarks/training.md): it stands for a slower core, MPI's linear gather, and whatever gradients the authors'
network had beyond the 50 of ours.
"""

from dataclasses import dataclass, replace
from typing import Literal

from fcdensenet.config import NetworkConfig
from train.scaling.model import Gradient, Machine, Strategy, Workload, efficiency, workload

BOTH = Strategy("bitvector", groups=8, allreduce="tree")
# Horovod as it was: cycles of 5 ms and 64 MB, which made up for the missing groups.
NEITHER = Strategy("master-worker", groups=0, allreduce="tree", cycle_s=5e-3, fusion_bytes=64 * 2**20)
HIERARCHICAL = replace(NEITHER, allreduce="hierarchical")
CACHE = replace(NEITHER, coordination="bitvector")
GROUPS = replace(BOTH, coordination="master-worker")
RADIX_TREES = replace(HIERARCHICAL, coordination="tree", lag=True)

STRATEGIES = {
    "response cache and groups": BOTH,
    "response cache alone": CACHE,
    "groups alone": GROUPS,
    "neither": NEITHER,
    "neither, hierarchical reductions": HIERARCHICAL,
}

PAPER_NETWORK = NetworkConfig(input_shape=(1024, 512, 512), transition_up_kernel=1)
PAPER_STEP_S = 0.8633  # a V100, one sample: convolutions 613.75 ms of it
STEM = workload(PAPER_NETWORK, "float16", PAPER_STEP_S)

# DeepLabv3+ on ResNet-50: one sample in 1 / 0.87 s in float32 (Kurth et al., figure 2). Parameters (43.6 million) and
# tensors (120) are our estimate; with lag they hardly matter.
_DEEPLAB_STEP_S = 1 / 0.87
DEEPLAB = Workload(
    _DEEPLAB_STEP_S,
    tuple(Gradient(43_600_000 * 4 // 120, _DEEPLAB_STEP_S * (1 + 2 * i / 120) / 3) for i in range(1, 121)),
    "float32",
)
UP_TO_THOUSANDS = (6, 24, 96, 384, 1536, 4608)


@dataclass(frozen=True)
class Fact:
    """A published number beside the model's.

    kind: whether the model should give `published`, or at least that much
    fitted: whether the number served to fit the machine
    ranks: where it is an efficiency
    """

    name: str
    kind: Literal["equal", "at_least"]
    published: float
    model: float
    fitted: bool
    source: str
    ranks: int | None = None


def facts(machine: Machine) -> tuple[Fact, ...]:
    """Every fact, with what the model says of it on `machine`."""

    def of(strategy: Strategy, ranks: int, load: Workload = STEM) -> float:
        return efficiency(machine, load, strategy, ranks)

    laanait, figure = "Laanait et al. 2019, abstract", "Laanait et al. 2019, figure 1"
    return (
        Fact("efficiency at 27,600 GPUs", "equal", 0.93, of(BOTH, 27_600), True, laanait, 27_600),
        Fact(
            f"lowest efficiency up to {UP_TO_THOUSANDS[-1]:,} GPUs",
            "at_least",
            0.97,
            min(of(BOTH, ranks) for ranks in UP_TO_THOUSANDS),
            False,
            figure,
            UP_TO_THOUSANDS[-1],
        ),
        Fact(
            "gain by trees, response cache and groups at 6,000 GPUs",
            "at_least",
            8.0,
            of(BOTH, 6_000) / of(HIERARCHICAL, 6_000),
            True,
            figure,
        ),
        Fact(
            "of that, gain by trees over hierarchical NCCL 2.3",
            "equal",
            3.0,
            of(NEITHER, 6_000) / of(HIERARCHICAL, 6_000),
            True,
            figure,
        ),
        Fact(
            "gain by response cache and groups at 6,000 GPUs",
            "at_least",
            2.0,
            of(BOTH, 6_000) / of(NEITHER, 6_000),
            False,
            "Romero et al. 2022, abstract",
        ),
        Fact(
            "DeepLabv3+, radix-r trees, hierarchy and lag, at 27,360 GPUs",
            "equal",
            0.907,
            of(RADIX_TREES, 27_360, DEEPLAB),
            True,
            "Kurth et al. 2018, abstract",
            27_360,
        ),
    )
