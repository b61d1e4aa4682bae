"""The update of one variable by an optimizer.

TensorFlow has an operation for most of it, which gives the same to rounding; see
`train.optimization.fused`.
"""

import keras
import numpy as np
from keras import ops

from namsa.base.arrays import Tensor

__all__ = ["adam_update", "half_square", "momentum_update", "update_moments"]


def update_moments(
    m: keras.Variable, v: keras.Variable, gradient: Tensor, beta_1: Tensor, beta_2: Tensor
) -> tuple[Tensor, Tensor]:
    """Sets m ← β₁ m + (1 − β₁) g and v ← β₂ v + (1 − β₂) g², and returns both."""
    new_m = m.assign_add((1 - beta_1) * (gradient - m.value))
    return new_m, v.assign_add((1 - beta_2) * (ops.square(gradient) - v.value))


if keras.backend.backend() == "tensorflow":
    from .fused import adam_update, half_square, momentum_update
else:

    def half_square(tensor: Tensor) -> Tensor:
        """Returns Σ x²/2."""
        return ops.sum(ops.square(tensor)) / 2

    def momentum_update(
        variable: keras.Variable, m: keras.Variable, gradient: Tensor, rate: Tensor, mu: float
    ) -> None:
        """Sets m ← μ m + g and w ← w − rate · m."""
        variable.assign_sub(rate * m.assign(mu * m.value + gradient))

    def adam_update(
        variable: keras.Variable,
        m: keras.Variable,
        v: keras.Variable,
        gradient: Tensor,
        rate: Tensor,
        beta_1: float,
        beta_2: float,
        epsilon: Tensor,
    ) -> None:
        """Updates both moments, and sets w ← w − rate · m / (√v + ε)."""
        # TensorFlow's operation takes 1 − β of a β in float32, which changes 1 − 0.999 in the fifth
        # digit.
        new_m, new_v = update_moments(m, v, gradient, np.float32(beta_1), np.float32(beta_2))
        variable.assign_sub(rate * new_m / (ops.sqrt(new_v) + epsilon))
