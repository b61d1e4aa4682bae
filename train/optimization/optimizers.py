"""Adam with layer-wise rates (LARS, You et al. 2017, or LARC) in front of it, behind it, or without them.

For a layer's weights w and a direction d, LARS rescales d to `trust · |w| / |d|` times itself, so that no layer moves
by more than a fixed fraction of its own size. You et al. write |g| + λ|w| in the denominator, with weight decay λ
apart from the gradient g; here the gradient already holds the L2 term, which makes the denominator |g + λw|.

LARC (NVIDIA's Apex and OpenSeq2Seq; used by Kurth et al. 2018) clips: the step along d is `rate` times d, or as LARS
would have it, `trust · |w| / |d|` times d, whichever is shorter. So it only ever slows a layer down.
"""

from typing import Any

import keras
from keras import ops

from train.experiment.sections import Optimizer

Tensor = Any


def trust_ratio(weights: Tensor, direction: Tensor, trust: float, rate: Tensor | None = None) -> Tensor:
    """trust · |weights| / |direction|, a scalar; 1 where either norm is zero, so that nothing is frozen at zero.

    With `rate`, LARC's: what `rate` is to be multiplied by, at most 1.
    """
    w_norm, d_norm = ops.norm(ops.reshape(weights, (-1,))), ops.norm(ops.reshape(direction, (-1,)))
    defined = ops.logical_and(w_norm > 0, d_norm > 0)
    ratio = ops.where(defined, trust * w_norm / ops.where(defined, d_norm, 1.0), 1.0)
    return ratio if rate is None else ops.where(ratio < rate, ratio / rate, 1.0)


class LarsAdam(keras.optimizers.Optimizer):
    """Adam (Kingma & Ba 2015, algorithm 1), a variable w with gradient g and step t = 1, 2, ...:

        before:  g ← trust_ratio(w, g) · g
        m ← β₁ m + (1 − β₁) g,  v ← β₂ v + (1 − β₂) g²
        u = (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + ε)
        after:   u ← trust_ratio(w, u) · u
        w ← w − rate · u

    Adam divides a constant factor of g out again: "before" keeps one step's outsized gradient from dominating m and v.
    "after" with trust 1 is LAMB (You et al. 2020). Vectors (biases, normalisations) take plain Adam steps.
    """

    def __init__(self, config: Optimizer) -> None:
        super().__init__(learning_rate=config.learning_rate, name="lars_adam")
        self.config = config

    def build(self, variables: list[keras.Variable]) -> None:
        super().build(variables)
        self.m, self.v = self.add_optimizer_variables(variables, ["m", "v"])

    def update_step(self, gradient: Tensor, variable: Any, learning_rate: Tensor) -> None:
        c, index = self.config, self._get_variable_index(variable)
        layered, m, v = len(variable.shape) > 1, self.m[index], self.v[index]
        step = ops.cast(self.iterations + 1, gradient.dtype)
        clip = learning_rate if c.layer_rates == "larc" else None
        if layered and c.lars == "before":
            gradient = trust_ratio(variable, gradient, c.lars_trust, clip) * gradient
        self.assign_add(m, (1 - c.beta_1) * (gradient - m))
        self.assign_add(v, (1 - c.beta_2) * (ops.square(gradient) - v))
        update = (m / (1 - c.beta_1**step)) / (ops.sqrt(v / (1 - c.beta_2**step)) + c.epsilon)
        if layered and c.lars == "after":
            update = trust_ratio(variable, update, c.lars_trust, clip) * update
        self.assign_sub(variable, learning_rate * update)
