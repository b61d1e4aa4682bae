"""Types of what a run measures: rows of metrics.jsonl, the summary of its performance and the facts
of the run.

A step's row says: loss = huber + l2, plus the likelihood where one is trained; huber, the mean over
the ranks' batches in the units of training; grad_norm, the norm of the averaged gradient before
LARS; loss_scale, as used in the step. Times are of this rank, in seconds: step_s from the request
for a batch to the updated weights, data_s the wait for the batch, compute_s the forward and
backward pass, comm_s from this rank's last gradient to the last average, sync_s (with local SGD)
the averaging of weights, misc_s the rest, which includes data_s. Groups of gradients are reduced
while others are still computed: comm_s is the part of the communication that this does not hide,
including the wait for the slowest rank. samples_per_s is of all ranks.
"""

from collections.abc import Mapping
from typing import Any, NotRequired

from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

# Contents of `evaluation.json`; each task has a class for those of its own.
Evaluation = Mapping[str, Any]

LARGEST_METRICS_BYTES = 2**30  # of metrics.jsonl, some million steps


class StepRow(TypedDict):
    """One line of metrics.jsonl. In the file, a number that is not finite is null."""

    step: int  # number of the step in the job, from 1
    epoch: int  # index of the epoch, from 0
    # huber (or mse, mae) + likelihood + l2, cross_entropy + l2, rmse + divergence + l2, or, of the
    # task estimate, mse + likelihood + l2
    loss: float
    # mean Huber loss over the ranks' batches, in the units of training; of the task density
    huber: NotRequired[float]
    # mean cross-entropy over the ranks' batches; of the task classify
    cross_entropy: NotRequired[float]
    # Mean over the ranks' batches of the root mean square error of a pattern; of the task embed.
    rmse: NotRequired[float]
    # Mean over the ranks' batches of the squared error, in units of half a range; of the task
    # estimate. Of the task density with training.loss.kind mse, in the units of training.
    mse: NotRequired[float]
    # Mean over the ranks' batches of the absolute error; of the task density with kind mae.
    mae: NotRequired[float]
    function: NotRequired[float]  # loss of training.loss.function, with kind function
    # mean divergence of the latent distributions times its weight; of the task embed
    divergence: NotRequired[float]
    # mean negative log-likelihood of the error times its weight, where one is trained
    likelihood: NotRequired[float]
    l2: float  # L2 penalty of the convolutions' kernels
    delta: NotRequired[float]  # Huber's δ in this epoch; of the task density
    lr: float  # learning rate
    loss_scale: float  # factor of the loss in this step
    grad_norm: float  # norm of the averaged, unscaled gradient
    step_s: float  # from the request for a batch to the updated weights, s
    data_s: float  # wait for the batch, s
    comm_s: float  # communication that computation does not hide, s
    compute_s: float  # forward and backward pass, s
    # Averaging of the weights over the ranks, with the wait for the slowest of them, s; with local
    # SGD, 0 in steps without it.
    sync_s: NotRequired[float]
    misc_s: float  # the rest of the step, s
    samples_per_s: float  # rate of all ranks together
    # From the end of the step before to the end of this one, with the checkpoint that was written
    # between, s.
    wall_s: NotRequired[float]
    flop_per_s: NotRequired[float]  # rate of one rank over step_s, see `train.measure.performance`
    memory_mib: NotRequired[float]  # peak memory of the process so far, on the host
    # Energy during wall_s of the rank's GPU and its share of its node's processors, J, where
    # metered.
    energy_j: NotRequired[float]
    energy_gpu_j: NotRequired[float]  # the part of the GPU, J, where metered
    # Of samples that this rank simulates beside the training, since the last row:
    simulated: NotRequired[int]  # number of samples that were made
    simulator_s: NotRequired[float]  # time of making them, over the number of workers, s
    simulator_wait_s: NotRequired[float]  # time in which batches waited for samples, s


class MedianSpread(TypedDict):
    """The median of a number and the bounds of its central 68%."""

    median: float
    low: float
    high: float


class TimeMoments(TypedDict):
    """Mean and variance of a number over some steps."""

    mean: float
    variance: float
    steps: int


class PerformanceSummary(TypedDict, total=False):
    """Performance of a whole job, see `train.measure.performance`. Empty if fewer than two steps
    were taken.
    """

    steps: int  # steps that were measured, including the first
    samples_per_s: MedianSpread  # rate of all ranks together
    step_s: MedianSpread  # time per step, mean over the ranks
    # the same with the writing of checkpoints, over all steps but the first, s and s²
    wall_s: TimeMoments
    t_comp_s: float  # median time of the forward and backward pass
    t_comm_s: float  # median time of communication that computation does not hide
    t_misc_s: float  # median time of the rest
    # with local SGD, mean time per step in which ranks average their weights; most steps have none
    t_sync_s: float
    synchronisations: int  # number of steps that end with it, without the first step
    sync_s: MedianSpread  # time of one, mean over the ranks
    waiting_for_data_s: float  # median wait for data, a part of t_misc_s
    step_flop: float  # FLOP of the convolutions in a step of one rank
    # Share of wall_s that is neither communication nor synchronisation: the scaling efficiency, as
    # far as one run tells it.
    efficiency: float
    sustained_flop_per_s: float  # FLOP / mean of wall_s, of all ranks together
    # variance over the steps of FLOP / wall_s of all ranks together, (FLOP/s)²
    sustained_variance: float
    flop_per_s: MedianSpread  # FLOP / step_s of all ranks together
    memory_mib_per_rank: float  # peak memory of this rank on the host
    energy_j: float  # energy of all ranks, where a meter is available


class HeldOutFacts(TypedDict):
    """Held-out materials that were learnt, in this training or before it, as far as it is known."""

    # Whether the materials of all trainings that led to the weights are known: checkpoints of
    # earlier versions do not name them.
    learnt_known: bool
    left_out: list[str]  # materials that are held out now, were learnt before and are not scored


class RunFacts(TypedDict):
    """Facts of a run in evaluation.json, for the report and the card of a network.

    "This start" is the last start of the job that took steps, as far as an evaluation followed it:
    one that evaluates alone keeps `ranks`, `device`, `machine`, `seconds` and `performance` of the
    evaluation before.
    """

    ranks: int  # number of ranks
    device: str  # each rank's share of its node
    machine: str  # name of the processor
    parameters: int  # number of the network's parameters
    training_samples: int  # samples that all ranks train on
    epochs: int  # whole epochs that were trained
    steps: int  # steps that were trained
    seconds: float  # wall time of this start of the job
    performance: PerformanceSummary  # performance of this start's steps
    versions: dict[str, str]  # versions of the packages that were used, by name
    held_out: NotRequired[HeldOutFacts]  # absent in files of earlier versions
