"""Types of what a run measures: rows of metrics.jsonl, the summary of its performance and the facts of the run.

A step's row says: loss = huber + l2, plus the likelihood where one is trained; huber, the mean over the ranks' batches
in the units of training; grad_norm, the norm of the averaged gradient before LARS; loss_scale, as used in the step.
Times are of this rank, in seconds: step_s from the request for a batch to the updated weights, data_s the wait for the
batch, compute_s the forward and backward pass, comm_s from this rank's last gradient to the last average, sync_s (with
local SGD) the averaging of weights, misc_s the rest, which includes data_s. Groups of gradients are reduced while
others are still computed: comm_s is the part of the communication that this does not hide, including the wait for the
slowest rank. samples_per_s is of all ranks.
"""

from typing import NotRequired

from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

LARGEST_METRICS_BYTES = 2**30  # of metrics.jsonl, some million steps


class StepRow(TypedDict):
    """One line of metrics.jsonl. In the file, a number that is not finite is null.

    Attributes:
        step: Number of the step in the job, from 1.
        epoch: Index of the epoch, from 0.
        loss: huber + likelihood + l2, cross_entropy + l2, rmse + divergence + l2, or mse + likelihood + l2.
        huber: Mean Huber loss over the ranks' batches, in the units of training; of the task density.
        cross_entropy: Mean cross-entropy over the ranks' batches; of the task classify.
        rmse: Mean over the ranks' batches of the root mean square error of a pattern; of the task embed.
        mse: Mean over the ranks' batches of the squared error, in units of half a range; of the task estimate.
        divergence: Mean divergence of the latent distributions times its weight; of the task embed.
        likelihood: Mean negative log-likelihood of the error times its weight, where one is trained.
        l2: L2 penalty of the convolutions' kernels.
        delta: Huber's δ in this epoch; of the task density.
        lr: Learning rate.
        loss_scale: Factor of the loss in this step.
        grad_norm: Norm of the averaged, unscaled gradient.
        step_s: From the request for a batch to the updated weights, s.
        data_s: Wait for the batch, s.
        comm_s: Communication that computation does not hide, s.
        compute_s: Forward and backward pass, s.
        sync_s: Averaging of the weights over the ranks, with the wait for the slowest of them, s; with local SGD, 0 in
            steps without it.
        misc_s: The rest of the step, s.
        samples_per_s: Rate of all ranks together.
        wall_s: From the end of the step before to the end of this one, with the checkpoint that was written between, s.
        flop_per_s: Rate of one rank over step_s, see `train.measure.performance`.
        memory_mib: Peak memory of the process so far, on the host.
        energy_j: Energy during wall_s of the rank's GPU and its share of its node's processors, J, where metered.
        energy_gpu_j: The part of the GPU, J, where metered.
    """

    step: int
    epoch: int
    loss: float
    huber: NotRequired[float]
    cross_entropy: NotRequired[float]
    rmse: NotRequired[float]
    mse: NotRequired[float]
    divergence: NotRequired[float]
    likelihood: NotRequired[float]
    l2: float
    delta: NotRequired[float]
    lr: float
    loss_scale: float
    grad_norm: float
    step_s: float
    data_s: float
    comm_s: float
    compute_s: float
    sync_s: NotRequired[float]
    misc_s: float
    samples_per_s: float
    wall_s: NotRequired[float]
    flop_per_s: NotRequired[float]
    memory_mib: NotRequired[float]
    energy_j: NotRequired[float]
    energy_gpu_j: NotRequired[float]


class Spread(TypedDict):
    """The median of a number and the bounds of its central 68%."""

    median: float
    low: float
    high: float


class Moments(TypedDict):
    """Mean and variance of a number over some steps."""

    mean: float
    variance: float
    steps: int


class PerformanceSummary(TypedDict, total=False):
    """Performance of a whole job, see `train.measure.performance`. Empty if fewer than two steps were taken.

    Attributes:
        steps: Steps that were measured, including the first.
        samples_per_s: Rate of all ranks together.
        step_s: Time per step, mean over the ranks.
        wall_s: The same with the writing of checkpoints, over all steps but the first, s and s².
        t_comp_s: Median time of the forward and backward pass.
        t_comm_s: Median time of communication that computation does not hide.
        t_misc_s: Median time of the rest.
        t_sync_s: With local SGD, mean time per step in which ranks average their weights; most steps have none.
        synchronisations: Number of steps that end with it, without the first step.
        sync_s: Time of one, mean over the ranks.
        waiting_for_data_s: Median wait for data, a part of t_misc_s.
        step_flop: FLOP of the convolutions in a step of one rank.
        efficiency: Share of wall_s that is neither communication nor synchronisation: the scaling efficiency, as far as
            one run tells it.
        sustained_flop_per_s: FLOP / mean of wall_s, of all ranks together.
        sustained_variance: Variance over the steps of FLOP / wall_s of all ranks together, (FLOP/s)².
        flop_per_s: FLOP / step_s of all ranks together.
        memory_mib_per_rank: Peak memory of this rank on the host.
        energy_j: Energy of all ranks, where a meter is available.
    """

    steps: int
    samples_per_s: Spread
    step_s: Spread
    wall_s: Moments
    t_comp_s: float
    t_comm_s: float
    t_misc_s: float
    t_sync_s: float
    synchronisations: int
    sync_s: Spread
    waiting_for_data_s: float
    step_flop: float
    efficiency: float
    sustained_flop_per_s: float
    sustained_variance: float
    flop_per_s: Spread
    memory_mib_per_rank: float
    energy_j: float


class RunFacts(TypedDict):
    """Facts of a run in evaluation.json, for the report and the card of a network.

    "This start" is the last start of the job that took steps, as far as an evaluation followed it: one that evaluates
    alone keeps `ranks`, `device`, `machine`, `seconds` and `performance` of the evaluation before.

    Attributes:
        ranks: Number of ranks.
        device: Each rank's share of its node.
        machine: Name of the processor.
        parameters: Number of the network's parameters.
        training_samples: Samples that all ranks train on.
        epochs: Whole epochs that were trained.
        steps: Steps that were trained.
        seconds: Wall time of this start of the job.
        performance: Performance of this start's steps.
        versions: Versions of the packages that were used, by name.
    """

    ranks: int
    device: str
    machine: str
    parameters: int
    training_samples: int
    epochs: int
    steps: int
    seconds: float
    performance: PerformanceSummary
    versions: dict[str, str]
