"""Adam with layer-wise rates (LARS, You et al. 2017, or LARC) before it, after it, or without them.

For a layer's weights w and a direction d, LARS scales d by `trust · |w| / |d|`, so that no layer moves by more than a
fixed fraction of its own norm. You et al. write |g| + λ|w| in the denominator, with the weight decay λ apart from the
gradient g. Here the gradient contains the L2 term, so that the denominator is |g + λw|.

LARC (NVIDIA's Apex and OpenSeq2Seq; used by Kurth et al. 2018) clips: the step along d is `rate` times d, or
`trust · |w| / |d|` times d as with LARS, whichever is shorter. It therefore only ever slows a layer down.
"""

from typing import Any

import keras
from keras import ops

from train.experiment.sections import Optimizer

Tensor = Any


def trust_ratio(weights: Tensor, direction: Tensor, trust: float, rate: Tensor | None = None) -> Tensor:
    """Returns the factor of a layer's direction, a scalar.

    Args:
        weights: Of the layer.
        direction: Gradient or update, in the same shape.
        trust: The fraction of the weights' norm that a step may have.
        rate: Learning rate, for LARC; `None` for LARS.

    Returns:
        trust · |weights| / |direction|, or 1 if either norm is zero, so that nothing is frozen at zero. With `rate`
        it is the factor of `rate`, at most 1.
    """
    w_norm, d_norm = ops.norm(ops.reshape(weights, (-1,))), ops.norm(ops.reshape(direction, (-1,)))
    defined = ops.logical_and(w_norm > 0, d_norm > 0)
    ratio = ops.where(defined, trust * w_norm / ops.where(defined, d_norm, 1.0), 1.0)
    return ratio if rate is None else ops.where(ratio < rate, ratio / rate, 1.0)


class LarsAdam(keras.optimizers.Optimizer):
    """Adam (Kingma & Ba 2015, algorithm 1) with layer-wise rates, for a variable w with gradient g, step t = 1, 2, ...:

        before:  g ← trust_ratio(w, g) · g
        m ← β₁ m + (1 − β₁) g,  v ← β₂ v + (1 − β₂) g²
        u = (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + ε)
        after:   u ← trust_ratio(w, u) · u
        w ← w − rate · u

    Adam cancels a constant factor of g: "before" prevents that the outsized gradient of one step dominates m and v.
    "after" with trust 1 is LAMB (You et al. 2020). Vectors (biases, normalisations) take plain Adam steps.
    """

    def __init__(self, config: Optimizer) -> None:
        super().__init__(learning_rate=config.learning_rate, name="lars_adam")
        self.config = config

    def build(self, variables: list[keras.Variable]) -> None:
        """Creates the moments m and v."""
        super().build(variables)
        self.m, self.v = self.add_optimizer_variables(variables, ["m", "v"])

    def update_step(self, gradient: Tensor, variable: Any, learning_rate: Tensor) -> None:
        """Updates one variable."""
        config, index = self.config, self._get_variable_index(variable)
        layered, m, v = len(variable.shape) > 1, self.m[index], self.v[index]
        step = ops.cast(self.iterations + 1, gradient.dtype)
        rate = learning_rate if config.layer_rates == "larc" else None
        if layered and config.lars == "before":
            gradient = trust_ratio(variable, gradient, config.lars_trust, rate) * gradient
        self.assign_add(m, (1 - config.beta_1) * (gradient - m))
        self.assign_add(v, (1 - config.beta_2) * (ops.square(gradient) - v))
        update = (m / (1 - config.beta_1**step)) / (ops.sqrt(v / (1 - config.beta_2**step)) + config.epsilon)
        if layered and config.lars == "after":
            update = trust_ratio(variable, update, config.lars_trust, rate) * update
        self.assign_sub(variable, learning_rate * update)
