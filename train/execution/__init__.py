"""The computation of the networks: TensorFlow or JAX, of which a process has one.

`backend` decides which. The modules `tensorflow` and `jax` have the same functions, for what Keras
does not cover: the devices of this process, memory that is read without a copy, and compiled
functions. The training steps of both are in `train.optimization`.
"""
