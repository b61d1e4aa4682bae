"""Strong scaling by Oyama et al. (2020): samples divided along their depth on Lassen, with LBANN.

Lassen has Summit's processors and network, and four V100 per node. The time of a step of one GPU
follows from table 2: the convolutions of CosmoFlow at 8 ways take 142.9 ms, of which 95.6 % are
those of the kernels alone. The 3-D U-Net, whose times are not published, is computed at the same
rate.

The text traces the loss from 8 to 16 ways to kernels that "may not be well-tuned for non-cube
domains". So one constant is fitted, `kernel_rows`, to the speed-up of 1.66 that it is said of. The
other three speed-ups are not used.

The kernels alone do not explain the two largest losses. By table 2 those of 32 ways take 40.2 ms,
3.4 times less than those of 8 ways, while whole steps gain 1.98 and 1.77; the model has 2.5 for the
kernels and hides nearly all that is exchanged. Where the rest of the time goes, the text does not
say. Maps with fewer rows than parts are computed by some of the ranks, a row each.
"""

from ..networks import count
from ..networks.cosmoflow import CosmoFlowConfig
from ..networks.registry import Network
from ..networks.unet3d import UNet3DConfig
from .division import DividedStep, Division, divided_step
from .model import estimate_step
from .strategy import SUMMIT, Strategy

COSMOFLOW = CosmoFlowConfig(input_shape=(4, 512, 512, 512))
UNET = UNet3DConfig(input_shape=(1, 256, 256, 256))
STRATEGY = Strategy("none", groups=0, allreduce="tree", cycle_s=0.0, fuse_groups=False)

FITTED_KERNEL_ROWS = 7.0
# table 2
MEASURED_WAYS = 8
MEASURED_S = 0.1429
KERNELS = 0.956
LASSEN = SUMMIT.model_copy(
    update={"name": "Lassen", "ranks_per_node": 4, "kernel_rows": FITTED_KERNEL_ROWS}
)


def speed_up(
    network: Network, groups: int, few: int, many: int, kernel_rows: float = FITTED_KERNEL_ROWS
) -> float:
    """Returns the time of a step of `groups` samples with `few` ways each over that with `many`."""
    machine = LASSEN.model_copy(update={"kernel_rows": kernel_rows})

    def step(network: Network, whole_s: float, ways: int) -> DividedStep:
        return divided_step(
            network, "float32", whole_s, machine, STRATEGY, Division(ways, exchange="direct")
        )

    cosmoflow_s = MEASURED_S * KERNELS / step(COSMOFLOW, 1.0, MEASURED_WAYS).computation_s
    whole_s = cosmoflow_s * count(network).step_flop / count(COSMOFLOW).step_flop
    times = [
        estimate_step(machine, step(network, whole_s, ways).work, STRATEGY, groups * ways).seconds
        for ways in (few, many)
    ]
    return times[0] / times[1]
