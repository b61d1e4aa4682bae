"""What a training step needs to know of a task: the terms of its loss."""

from typing import Any, Protocol

Tensor = Any


class Objective(Protocol):
    """The loss of a task, beside the L2 penalty of the kernels.

    Attributes:
        terms: Names of the terms, whose sum with the penalty is the loss. They are keys of a step's row.
    """

    @property
    def terms(self) -> tuple[str, ...]:
        """See the class."""
        ...

    def setting(self, epoch: int) -> dict[str, float]:
        """Returns the one number that changes with the epoch, by its key in a step's row; empty if there is none."""
        ...

    def __call__(self, output: Tensor, target: Tensor, setting: Tensor) -> tuple[Tensor, ...]:
        """Returns the terms of a batch, float32 scalars. Called inside a tf.function.

        Args:
            output: Of the network.
            target: As the task's batches hold it.
            setting: The number of `setting`; 0 if there is none.
        """
        ...
