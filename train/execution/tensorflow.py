"""Execution by TensorFlow."""

from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from namsa.base.arrays import Array, Tensor
from namsa.base.launcher import bind_to_share

from .quiet import without_notes


def claim(local_rank: int, local_size: int) -> str:
    """Binds this process to its share of the node before a device starts; returns the share in
    words.
    """
    share = bind_to_share(local_rank, local_size)
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return share
    gpu = gpus[min(local_rank, len(gpus) - 1)]
    tf.config.set_visible_devices(gpu, "GPU")
    tf.config.experimental.set_memory_growth(gpu, True)
    return str(tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name))


def has_gpu() -> bool:
    """Returns whether a GPU computes."""
    return bool(tf.config.list_physical_devices("GPU"))


def convolves(data_format: str, policy: str) -> bool:
    """Returns whether TensorFlow itself convolves images here, forwards and backwards.

    On processors, it does so with channels first by oneDNN alone: in float32 on those that have
    AVX-512 VNNI or newer instructions for networks, or with TF_ENABLE_ONEDNN_OPTS=1; in float16 on
    almost none.

    Args:
        data_format: `network.data_format`.
        policy: The Keras dtype policy, `training.precision.compute`.
    """
    if data_format == "channels_last":
        return True
    image = tf.zeros((1, 1, 1, 1), keras.DTypePolicy(policy).compute_dtype)
    try:
        with tf.GradientTape() as tape:
            tape.watch(image)
            square = tf.nn.conv2d(image, image, 1, "VALID", "NCHW")
        tape.gradient(square, image)
    except (tf.errors.UnimplementedError, tf.errors.InvalidArgumentError):
        return False
    return True


def compile_layers(network: keras.Model, data_format: str) -> None:
    """Has XLA compile the layers of a network that TensorFlow itself does not compute here.

    XLA takes all orders of axes. It has neither TensorFlow's random numbers nor Horovod, so that
    the network as a whole stays with TensorFlow.
    """
    if convolves(data_format, keras.config.dtype_policy().name):
        return
    with without_notes():  # of XLA's start
        tf.function(tf.square, jit_compile=True)(0.0)
    for layer in network.layers:
        if getattr(layer, "data_format", None) == data_format:
            layer.call = tf.function(layer.call, jit_compile=True, autograph=False)


def host_tensor(array: Array) -> Tensor:
    """Returns a host tensor on the memory of `array`, which is 64-byte aligned and must not be
    changed any more.
    """
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def compiled(
    function: Callable[..., Tensor],
    variables: Sequence[keras.Variable] = (),
    shape: tuple[int | None, ...] | None = None,
) -> Callable[..., Tensor]:
    """Returns `function` as a graph, which is built once per shape of its arguments.

    Args:
        variables: That it reads, as those of a network. It may set them.
        shape: Of its one argument, float32, of any length along the first axis. The graph is then
            built at once.
    """
    if shape is not None:
        signature = [tf.TensorSpec((None, *shape[1:]))]
        traced = tf.function(
            function, autograph=False, input_signature=signature
        ).get_concrete_function()
        return lambda array: traced(tf.constant(array, tf.float32))
    graph: Callable[..., Tensor] = tf.function(function, autograph=False, reduce_retracing=True)
    return graph


def versions() -> dict[str, str]:
    """Returns the versions of what computes, by its names."""
    return {"tensorflow": tf.__version__, "keras": keras.__version__}
