"""Each rank's share of its node: a set of cores and one GPU, for the simulation and for TensorFlow alike."""

import platform
from pathlib import Path

import tensorflow as tf

from namsa import launcher


def claim(local_rank: int, local_size: int) -> str:
    """Binds this process to its share before TensorFlow or CuPy start a device; says what the share is."""
    share = launcher.bind_to_share(local_rank, local_size)
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return share
    gpu = gpus[min(local_rank, len(gpus) - 1)]
    tf.config.set_visible_devices(gpu, "GPU")
    tf.config.experimental.set_memory_growth(gpu, True)
    return str(tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name))


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The name of this machine's processor, as Linux has it; elsewhere its architecture."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
