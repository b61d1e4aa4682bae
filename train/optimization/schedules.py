"""Learning rates as a pure function of progress, so that a resumed job takes up exactly where it stopped."""

import math

from train.experiment.sections import Schedule


def learning_rate(schedule: Schedule, base: float, ranks: int, epochs: float) -> float:
    """The rate after `epochs` (whole and part: epoch + step/steps): warm-up to `ranks` × base, then a staircase.

    The warm-up is linear from `base` itself (Goyal et al. 2017: what one rank would use is safe at the start).
    The staircase counts from the first epoch, so that its steps fall on the same epochs with any warm-up.
    """
    peak = base * (ranks if schedule.scale_with_ranks else 1)
    warmed = min(1.0, epochs / schedule.warmup_epochs) if schedule.warmup_epochs else 1.0
    return (base + warmed * (peak - base)) * schedule.decay ** math.floor(epochs / schedule.decay_every_epochs)
