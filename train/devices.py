"""Each rank's share of its node: a set of cores and one GPU, for the simulation and for TensorFlow alike."""

import os
from pathlib import Path

import tensorflow as tf


def share_of_cores(available: set[int], cores: int, local_rank: int, local_size: int) -> set[int]:
    """The cores for one of `local_size` ranks that may run on `available` of a node's `cores`.

    A launcher that binds ranks gives each a set of its own, which together fit the node; one that does not gives all
    ranks the same set, which is then cut into equal runs. More ranks than cores share.
    """
    if len(available) * local_size <= cores or local_size > len(available):
        return available
    each = len(available) // local_size
    return set(sorted(available)[local_rank * each : (local_rank + 1) * each])


def visible_gpus(environment: str | None, nodes: int) -> list[str]:
    """CUDA's names for the GPUs this process may use: what CUDA_VISIBLE_DEVICES says, else each device node."""
    return [str(index) for index in range(nodes)] if environment is None else environment.split(",")


def claim(local_rank: int, local_size: int) -> str:
    """Binds this process to its share before TensorFlow or CuPy start a device; says what the share is.

    Thread pools size themselves by the bound cores. A launcher may show a rank one GPU of the node, or all of them.
    """
    cores = share_of_cores(os.sched_getaffinity(0), os.cpu_count() or 1, local_rank, local_size)
    os.sched_setaffinity(0, cores)
    names = visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), len(list(Path("/dev").glob("nvidia[0-9]*"))))
    if names:  # CuPy has no other switch that holds in every thread
        os.environ["CUDA_VISIBLE_DEVICES"] = names[min(local_rank, len(names) - 1)]
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return f"{len(cores)} CPU core{'s' if len(cores) > 1 else ''}"
    gpu = gpus[min(local_rank, len(gpus) - 1)]
    tf.config.set_visible_devices(gpu, "GPU")
    tf.config.experimental.set_memory_growth(gpu, True)
    return str(tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name))
