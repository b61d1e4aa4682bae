"""TensorFlow's operations for functions of `train.optimization.updates`: one for what takes several
of `keras.ops`.

A network has many small variables, and an operation on one of them takes less time than to start
it.
"""

import keras
import tensorflow as tf

from namsa.base.arrays import Tensor


def half_square(tensor: Tensor) -> Tensor:
    """Returns Σ x²/2."""
    return tf.nn.l2_loss(tensor)


def momentum_update(
    variable: keras.Variable, m: keras.Variable, gradient: Tensor, rate: Tensor, mu: float
) -> None:
    """See `updates`."""
    tf.raw_ops.ResourceApplyMomentum(
        var=variable.handle, accum=m.handle, lr=rate, grad=gradient, momentum=mu
    )


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
    """See `updates`. The operation would take the shares of both moments from the powers of
    beta.
    """
    tf.raw_ops.ResourceApplyAdam(
        var=variable.handle,
        m=m.handle,
        v=v.handle,
        beta1_power=0.0,
        beta2_power=0.0,
        lr=rate,
        beta1=beta_1,
        beta2=beta_2,
        epsilon=epsilon,
        grad=gradient,
    )
