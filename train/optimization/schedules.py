"""Learning rates as a pure function of the epoch, so that a resumed job continues with the same rates."""

import math

from train.experiment.sections import Schedule


def learning_rate(schedule: Schedule, base: float, ranks: int, epochs: float) -> float:
    """Returns the learning rate: a linear warm-up from `base` to `ranks` × `base`, then a staircase.

    The warm-up starts from `base` because the rate of one rank is safe at the start (Goyal et al. 2017). The staircase
    counts from the first epoch, so that its steps are at the same epochs with any warm-up.

    Args:
        schedule: The section training.schedule.
        base: Rate of one rank.
        ranks: Number of ranks.
        epochs: Epochs since the start, including the fraction of the current one: epoch + step / steps.
    """
    peak = base * (ranks if schedule.scale_with_ranks else 1)
    warmed = min(1.0, epochs / schedule.warmup_epochs) if schedule.warmup_epochs else 1.0
    return (base + warmed * (peak - base)) * schedule.decay ** math.floor(epochs / schedule.decay_every_epochs)
