"""Local SGD on Summit by Yoginath et al. (2019), DEEPEx: ResNet-50 on 656,100 images of 120 × 85
pixels ("AtomAI").

Ranks learn from their own share of the images, and average all weights as one block at the end of
each epoch. An epoch takes the same number of images at any number of ranks, so that the time of its
steps falls as 1/ranks, while the block and the time to average it stay: "the synchronization time
remains nearly unchanged". The speed-up per epoch is over a single node.

The text gives no times. The time of an image follows from its FLOP, three times those of the
forward pass, at the rate that Kurth et al. (2018) publish for float32 on the same GPU (1.91 samples
of 4.188 TFLOP per second). MPI's rate between hosts is fitted to the efficiency at 1.5 K GPUs. Only
the ratio of both times matters: at another rate of the GPU another rate of MPI gives the same
curve.

ImageNet, the paper's other set for this network, does not fit: its epoch has four times the FLOP,
so that the model has communication equal to computation at four times as many GPUs, while the paper
says 5,000 beside 4,000. Time by FLOP is not what its small images take.
"""

from ..networks import count
from ..networks.resnet50 import ResNet50Config
from .model import allreduce_s, block_bytes, estimate_step
from .strategy import SUMMIT, Strategy
from .workload import workload

NETWORK = ResNet50Config(input_shape=(1, 120, 85), classes=27, conv_bias=False)
IMAGES = 656_100
BATCH = 32
GPU_FLOP_PER_S = 1.91 * 4.188e12

WORKLOAD = workload(NETWORK, "float32", BATCH * count(NETWORK).step_flop / GPU_FLOP_PER_S)
STRATEGY = Strategy("bitvector", groups=1, allreduce="hierarchical", synchronise="epoch")
FITTED_BYTES_PER_S = 2.16e9
MACHINE = SUMMIT.model_copy(
    update={"name": "Summit, MPI", "host_float32_bytes_per_s": FITTED_BYTES_PER_S}
)


def epoch_efficiency(ranks: int) -> float:
    """Returns the speed-up of an epoch of `ranks` GPUs over one of a node, over the ratio of
    GPUs.
    """
    alone, together = (
        estimate_step(
            MACHINE, WORKLOAD, STRATEGY, rank_count, IMAGES / (rank_count * BATCH)
        ).seconds
        for rank_count in (MACHINE.ranks_per_node, ranks)
    )
    return alone / together


def ranks_of_equal_times() -> float:
    """Returns the number of GPUs at which the steps of an epoch take as long as its
    synchronisation.
    """
    ranks = 1000.0
    epoch_s = IMAGES / BATCH * WORKLOAD.compute_s
    size = block_bytes(WORKLOAD, STRATEGY)
    for _ in range(
        10
    ):  # the synchronisation takes nearly the same at any number, so that this settles at once
        ranks = epoch_s / allreduce_s(
            MACHINE, STRATEGY.allreduce, round(ranks), size, WORKLOAD.dtype
        )
    return ranks
