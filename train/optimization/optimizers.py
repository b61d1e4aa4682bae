"""Adam and momentum SGD, with layer-wise rates (LARS, You et al. 2017, or LARC) or without them.

For a layer's weights w and a direction d, LARS scales d by `trust · |w| / |d|`, so that no layer
moves by more than a fixed fraction of its own norm. You et al. write |g| + λ|w| in the denominator,
with the weight decay λ apart from the gradient g. Here the gradient contains the L2 term, so that
the denominator is |g + λw|.

LARC (NVIDIA's Apex and OpenSeq2Seq; used by Kurth et al. 2018) clips: the step along d is `rate`
times d, or `trust · |w| / |d|` times d as with LARS, whichever is shorter. It therefore only ever
slows a layer down.

A network has many small variables, and an operation on one of them takes less time than to start
it. The factors of all layers are therefore computed together; `train.optimization.updates` has what
is done to each variable.
"""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import keras
import numpy as np
from keras import ops

from fcdensenet.split import PartSplit
from namsa.base.arrays import Tensor
from namsa.base.errors import InputError
from namsa.base.registry import allowed_function

from ..experiment.sections import Optimizer, Training
from ..networks import Network, build
from ..ranks.exchange import Exchange, make_exchange
from . import precision
from .loop import step_module
from .losses import Objective
from .updates import adam_update, half_square, momentum_update, update_moments


def trust_ratios(
    weights: Sequence[Tensor],
    directions: Sequence[Tensor],
    trust: float,
    rate: Tensor | None = None,
) -> list[Tensor]:
    """Returns the factor of each layer's direction, scalars.

    Args:
        directions: Gradient or update of each layer, in the same shapes.
        trust: The fraction of the weights' norm that a step may have.
        rate: Learning rate, for LARC; `None` for LARS.

    Returns:
        trust · |weights| / |direction|, or 1 if either norm is zero, so that nothing is frozen at
        zero. With `rate` it is the factor of `rate`, at most 1.
    """
    w_norms = _norms(weights)
    d_norms = _norms(directions)
    defined = (w_norms > 0) & (d_norms > 0)
    ratios = ops.where(defined, trust * w_norms / ops.where(defined, d_norms, 1.0), 1.0)
    return ops.unstack(ratios if rate is None else ops.where(ratios < rate, ratios / rate, 1.0))


def _norms(tensors: Sequence[Tensor]) -> Tensor:
    """Returns the Euclidean norm of each tensor, `(len(tensors),)`."""
    return ops.sqrt(2 * ops.stack([half_square(tensor) for tensor in tensors]))


def make_optimizer(config: Optimizer) -> keras.optimizers.Optimizer:
    """Returns the optimizer of the section training.optimizer."""
    if config.kind == "function":
        return _own_optimizer(config)
    if config.kind == "adam":
        return LarsAdam(config)
    return LarsMomentum(config)


def _own_optimizer(config: Optimizer) -> keras.optimizers.Optimizer:
    """Returns the optimizer of the function that the section names. Raises InputError for none."""
    assert config.function
    key = "training.optimizer.function"
    optimizer = allowed_function(config.function, key)(config)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise InputError(
            f"{key} {config.function} gives a {type(optimizer).__name__}: an optimizer of Keras is "
            "needed"
        )
    return optimizer


class _LayerWise(keras.optimizers.Optimizer):
    """The base of both optimizers: moments of each variable, and the rates of layers
    "before".
    """

    SLOTS: ClassVar[tuple[str, ...]]  # names of what it keeps of each variable

    def __init__(self, config: Optimizer | Mapping[str, object], **settings: object) -> None:
        """Makes an optimizer of the section training.optimizer, or of its keys and values."""
        config = Optimizer.model_validate(config)
        given = {"learning_rate": config.learning_rate, "name": f"lars_{config.kind}"}
        super().__init__(**(given | settings))
        self.config = config

    def get_config(self) -> dict[str, object]:
        """Returns the arguments, of which Keras makes a copy."""
        section = self.config.model_dump()
        rate = ops.convert_to_numpy(self.learning_rate)
        if rate != np.float32(self.config.learning_rate):  # a schedule has set it
            section["learning_rate"] = float(rate)
        return {"config": section, "name": self.name}

    def build(self, variables: list[keras.Variable]) -> None:
        """Creates the moments."""
        super().build(variables)
        for slot, moments in zip(
            self.SLOTS, self.add_optimizer_variables(variables, list(self.SLOTS)), strict=True
        ):
            setattr(self, slot, moments)

    @property
    def moments(self) -> list[keras.Variable]:
        """The first moment of each variable, then the second of each, if there is one."""
        return [moment for slot in self.SLOTS for moment in getattr(self, slot)]

    def apply(
        self, grads: Sequence[Tensor], trainable_variables: Sequence[keras.Variable] | None = None
    ) -> None:
        """Updates the variables that the optimizer was built with, the first time those that are
        given.
        """
        if not self.built:
            assert trainable_variables is not None
            self.build(list(trainable_variables))
        rate = ops.convert_to_tensor(self.learning_rate)
        gradients = list(grads)
        if self.config.clip_norm is not None:
            gradients = clipped(gradients, self.config.clip_norm)
        if self.config.lars == "before":
            gradients = layer_wise(self._trainable_variables, gradients, self.config, rate)
        if self.config.weight_decay:
            self._decay(rate)
        self._update(gradients, rate)
        self.iterations.assign_add(1)

    def _decay(self, rate: Tensor) -> None:
        """Sets w ← w − rate · λ · w for kernels, with the weight decay λ; biases and normalisations
        stay (Loshchilov & Hutter 2019).
        """
        for variable in self._trainable_variables:
            if len(variable.shape) > 1:
                variable.assign_sub(rate * self.config.weight_decay * variable.value)

    def _update(self, gradients: list[Tensor], rate: Tensor) -> None:
        raise NotImplementedError


@keras.saving.register_keras_serializable(package="namsa")
class LarsMomentum(_LayerWise):
    """SGD with momentum and layer-wise rates, for a variable w with gradient g:

        before:  g ← trust_ratio(w, g) · g
        m ← μ m + g
        w ← w − rate · m

    With "before" this is LARS as You et al. (2017) wrote it, but for the rate, which is applied
    when w is updated: momentum that was gathered at one rate acts with that of the step.
    """

    SLOTS = ("m",)

    def _update(self, gradients: list[Tensor], rate: Tensor) -> None:
        for variable, gradient, m in zip(self._trainable_variables, gradients, self.m, strict=True):
            momentum_update(variable, m, gradient, rate, self.config.momentum)


def clipped(gradients: Sequence[Tensor], largest: float) -> list[Tensor]:
    """Returns gradients times a common factor, at most 1, with which the norm of all together is at
    most `largest`.
    """
    norm = ops.sqrt(2 * ops.sum(ops.stack([half_square(gradient) for gradient in gradients])))
    factor = largest / ops.maximum(norm, largest)
    return [factor * gradient for gradient in gradients]


def layer_wise(
    variables: Sequence[keras.Variable],
    directions: Sequence[Tensor],
    config: Optimizer,
    rate: Tensor,
) -> list[Tensor]:
    """Returns the directions times the trust ratios of their layers. Those of vectors stay as they
    are.
    """
    scaled = list(directions)
    layers = []
    weights = []
    layer_directions = []
    for index, variable in enumerate(variables):
        if len(variable.shape) > 1:
            layers.append(index)
            weights.append(variable.value)
            layer_directions.append(directions[index])
    if not layers:
        return scaled
    larc_rate = rate if config.layer_rates == "larc" else None
    ratios = trust_ratios(weights, layer_directions, config.lars_trust, larc_rate)
    for index, ratio in zip(layers, ratios, strict=True):
        scaled[index] = ratio * scaled[index]
    return scaled


@keras.saving.register_keras_serializable(package="namsa")
class LarsAdam(_LayerWise):
    """Adam (Kingma & Ba 2015, algorithm 1) with layer-wise rates, for a variable w with gradient g,
    step t = 1, 2, ...:

        before:  g ← trust_ratio(w, g) · g
        m ← β₁ m + (1 − β₁) g,  v ← β₂ v + (1 − β₂) g²
        u = (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + ε)
        after:   u ← trust_ratio(w, u) · u
        w ← w − rate · u

    Adam cancels a constant factor of g: "before" prevents that the outsized gradient of one step
    dominates m and v. "after" with trust 1 is LAMB (You et al. 2020). Vectors (biases,
    normalisations) take plain Adam steps.
    """

    SLOTS = ("m", "v")

    def _update(self, gradients: list[Tensor], rate: Tensor) -> None:
        config = self.config
        step = ops.cast(self.iterations.value + 1, "float32")
        # 1 − βᵗ to all digits: float32 holds 1 − 0.999 to four.
        m_share = -ops.expm1(step * _log(config.beta_1))
        v_share = -ops.expm1(step * _log(config.beta_2))
        if config.lars == "after":
            updates = []
            for gradient, m, v in zip(gradients, self.m, self.v, strict=True):
                new_m, new_v = update_moments(m, v, gradient, config.beta_1, config.beta_2)
                updates.append((new_m / m_share) / (ops.sqrt(new_v / v_share) + config.epsilon))
            updates = layer_wise(self._trainable_variables, updates, config, rate)
            for variable, update in zip(self._trainable_variables, updates, strict=True):
                variable.assign_sub(rate * update)
        else:
            # The operation computes m, v and w − lr · m / (√v + epsilon): both shares are taken
            # into lr and epsilon.
            lr = rate * ops.sqrt(v_share) / m_share
            epsilon = config.epsilon * ops.sqrt(v_share)
            for variable, gradient, m, v in zip(
                self._trainable_variables, gradients, self.m, self.v, strict=True
            ):
                adam_update(variable, m, v, gradient, lr, config.beta_1, config.beta_2, epsilon)


def _log(beta: float) -> float:
    """Returns log β, also for β = 0."""
    return math.log(beta) if beta else -math.inf


class Assembly(NamedTuple):
    """A network that is ready to be trained."""

    model: keras.Model  # the network, with the initial weights of its seed
    optimizer: keras.optimizers.Optimizer  # its optimizer, built, with a loss scale if there is one
    exchange: Exchange  # what happens to gradients and weights between the ranks
    accumulation: Tensor | None  # that of the execution; `None` if a step takes one batch


def assemble(
    network: Network,  # the section network
    seed: int | None,  # of the initial weights; `None`: they are zero
    training: Training,
    ranks: int = 1,
    objective: Objective | None = None,  # the task's loss; `None` for that of a density
    # what the parts of a divided sample exchange; the network is then that of a part
    split: PartSplit | None = None,
    rank: int = 0,
) -> Assembly:
    """Builds a network and what trains it, always of the same names. Raises InputError if the
    exchange does not fit.
    """
    keras.utils.clear_session()
    with precision.policy(training.precision.compute):
        model = build(network, seed, training.recompute, split)
        optimizer = precision.with_loss_scale(make_optimizer(training.optimizer), training, ranks)
        exchange = make_exchange(training.exchange, rank, ranks)
        exchange.begin(model, optimizer)
        accumulation = None
        if training.accumulate > 1:
            accumulation = step_module().make_accumulation(model, optimizer, training, objective)
    return Assembly(model, optimizer, exchange, accumulation)
