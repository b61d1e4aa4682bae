"""Each rank's share of its node: a set of cores and one GPU, for the simulation and for TensorFlow alike."""

import platform
from pathlib import Path

import tensorflow as tf

from namsa.errors import InputError
from namsa.launcher import bind_to_share


def claim(local_rank: int, local_size: int) -> str:
    """Binds this process to its share of the node. Call it before TensorFlow or CuPy start a device.

    Returns:
        The share in words.
    """
    share = bind_to_share(local_rank, local_size)
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return share
    gpu = gpus[min(local_rank, len(gpus) - 1)]
    tf.config.set_visible_devices(gpu, "GPU")
    tf.config.experimental.set_memory_growth(gpu, True)
    return str(tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name))


def check_data_format(data_format: str) -> None:
    """Refuses an order of axes that this machine does not compute.

    On processors, TensorFlow convolves channels first by oneDNN alone, which it uses of itself only where the processor
    has AVX-512 VNNI or newer instructions for networks.

    Args:
        data_format: `network.data_format`.

    Raises:
        InputError: If TensorFlow cannot convolve images in this order here.
    """
    if data_format == "channels_last":
        return
    image = tf.zeros((1, 1, 1, 1))
    try:
        tf.nn.conv2d(image, image, 1, "VALID", "NCHW")
    except (tf.errors.UnimplementedError, tf.errors.InvalidArgumentError):
        raise InputError(
            "network.data_format is channels_first, which TensorFlow does not compute on this processor: use a GPU, "
            "set network.data_format to channels_last, or TF_ENABLE_ONEDNN_OPTS=1 in the environment"
        ) from None


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Returns the name of this machine's processor on Linux, elsewhere its architecture."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
