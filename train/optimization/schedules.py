"""Learning rates as a pure function of the epoch, so that a resumed job continues with the same rates."""

import math

from ..experiment.sections import Schedule


def learning_rate(schedule: Schedule, base: float, ranks: int, epochs: float) -> float:
    """Returns the learning rate: a linear warm-up from `base` to `rate_factor` times `base`, and a decay.

    With rule 'constant' it is `rate_factor` times `base` throughout. Otherwise the warm-up starts from `base` because
    the rate of one rank is safe at the start (Goyal et al. 2017). The decay, a staircase or a line, counts from the
    first epoch, so that it is the same with any warm-up.

    Args:
        schedule: The section training.schedule.
        ranks: Number of ranks, times the number of batches that each of them accumulates.
        epochs: Epochs since the start, including the fraction of the current one: epoch + step / steps.
    """
    peak = base * rate_factor(schedule, ranks)
    if schedule.rule == "constant":
        return peak
    warmed = min(1.0, epochs / schedule.warmup_epochs) if schedule.warmup_epochs else 1.0
    decays = epochs / schedule.decay_every_epochs
    decay = schedule.decay ** math.floor(decays)
    if schedule.rule == "linear":
        decay = 1 - (1 - schedule.decay) * min(1.0, decays)
    return (base + warmed * (peak - base)) * decay


def rate_factor(schedule: Schedule, ranks: int) -> float:
    """Returns the factor of the rate of one rank for `ranks`: `ranks`, and its root where there are many.

    Adam's steps have the length of the rate, whatever the gradient. A mean over N ranks has √N times less noise, and
    with √N times the rate the ratio of noise to drift stays (Malladi et al. 2022). With N times the rate, the rule of
    Goyal et al. (2017) for SGD and of Laanait et al. (2019), Adam diverges where N is large: see
    `scripts/bench/large_batches.py`.

    Args:
        schedule: The section training.schedule.
        ranks: See `learning_rate`.
    """
    return min(ranks, max(schedule.linear_up_to, math.sqrt(ranks))) if schedule.scale_with_ranks else 1
