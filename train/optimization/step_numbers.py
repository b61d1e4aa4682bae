"""The numbers that a step measures. They leave the device as one array, which is one copy."""

from collections.abc import Sequence
from dataclasses import dataclass

from namsa.base.arrays import Tensor


@dataclass(frozen=True)
class StepNumbers:
    """The measurements of a step, on one rank or as a mean over the ranks.

    In a step they are scalar tensors, outside of it floats.
    """

    terms: Sequence[Tensor]  # of the objective, in the order of its names
    l2: Tensor  # L2 penalty of the convolutions' kernels
    loss_scale: Tensor  # as used in the step
    grad_norm: Tensor  # norm of the averaged gradient, without the loss scale
    comm_s: Tensor  # communication that computation does not hide, s
    compute_s: Tensor  # forward and backward pass, s
    stop: Tensor  # above 0 if a rank has been asked to stop

    def to_list(self) -> list[Tensor]:
        """Returns the numbers in the order of the array."""
        first_term, *other_terms = self.terms
        return [
            first_term,
            self.l2,
            self.loss_scale,
            self.grad_norm,
            self.comm_s,
            self.compute_s,
            self.stop,
            *other_terms,
        ]

    @classmethod
    def from_list(cls, values: Sequence[object]) -> "StepNumbers":
        """Returns the numbers of `to_list`."""
        first_term, l2, loss_scale, grad_norm, comm_s, compute_s, stop, *other_terms = values
        terms = (first_term, *other_terms)
        return cls(terms, l2, loss_scale, grad_norm, comm_s, compute_s, stop)
