"""A trained network of ours among the rivals: its density of a stack, and the CPU time that it takes."""

import time

import numpy as np

from namsa.errors import InputError
from rivals.stacks import Image, Stack

NETWORKS = {"network": [0], "network, 8 views": list(range(8))}  # by the symmetries that are averaged


class Network:
    def __init__(self, checkpoint: str, threads: int) -> None:
        import tensorflow as tf  # which takes a while, as do those on top of it

        from train.reconstruction import ensemble
        from train.reconstruction.models import load_model

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
        model = load_model(checkpoint)
        if model.experiment.training.inputs.layout != "scan":
            raise InputError(f"{checkpoint} has layout {model.experiment.training.inputs.layout}, and this takes scan")
        shape, image = model.experiment.window_shapes()
        built = ensemble.load_network(model, image)
        self.predict = {
            name: ensemble.ensemble_predictor(built, model, ensemble.Views(symmetries, passes=0))
            for name, symmetries in NETWORKS.items()
        }
        for predict in self.predict.values():
            predict(np.zeros((1, *shape), np.float32))  # TensorFlow traces the network when it is first called

    def density(self, method: str, stack: Stack) -> tuple[Image, float]:
        """(H, W) in e/Å², and the CPU seconds of all threads: to read the stack, and to make the density of it."""
        started = time.process_time()
        patterns = stack.patterns.reshape(1, *stack.provenance["scan_shape"], *stack.patterns.shape[1:])
        image = self.predict[method](patterns.astype(np.float32)).density.mean(axis=0)[0]
        return image.astype(np.float64), stack.read_seconds + time.process_time() - started
