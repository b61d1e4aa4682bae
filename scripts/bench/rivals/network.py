"""A trained network of ours among the rivals: its density of a stack, and the CPU time that it takes."""

import time
from typing import Any

import numpy as np

from namsa.errors import InputError
from rivals.stacks import Image, Stack

NETWORKS = {"network": [0], "network, 8 views": list(range(8))}  # by the symmetries that are averaged


class Network:
    def __init__(self, checkpoint: str, threads: int) -> None:
        import tensorflow as tf  # which takes a while, as do those on top of it

        from train.apply import ensemble
        from train.apply.models import load_model

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
        model = load_model(checkpoint)
        if model.experiment.training.inputs.layout != "scan":
            raise InputError(f"{checkpoint} has layout {model.experiment.training.inputs.layout}, and this takes scan")
        self.model = model
        self.ready: dict[tuple[int, ...], dict[str, ensemble.Predict]] = {}  # by the shape of a stack

    def predictors(self, shape: tuple[int, ...]) -> dict[str, Any]:
        """The functions that predict whole stacks (sy, sx, dy, dx), called once: TensorFlow traces the network then."""
        from train.apply import ensemble, weights

        if shape not in self.ready:
            built = weights.load_network(self.model, shape[:2])
            self.ready[shape] = {
                name: ensemble.ensemble_predictor(built, self.model, ensemble.Views(symmetries, passes=0))
                for name, symmetries in NETWORKS.items()
            }
            for predict in self.ready[shape].values():
                predict(np.zeros((1, *shape), np.float32))
        return self.ready[shape]

    def density(self, method: str, stack: Stack) -> tuple[Image, float]:
        """(H, W) in e/Å², and the CPU seconds of all threads: to read the stack, and to make the density of it."""
        shape = (*stack.provenance["scan_shape"], *stack.patterns.shape[1:])
        predict = self.predictors(shape)[method]
        started = time.process_time()
        image = predict(stack.patterns.reshape(1, *shape).astype(np.float32)).density.mean(axis=0)[0]
        return image.astype(np.float64), stack.read_seconds + time.process_time() - started
