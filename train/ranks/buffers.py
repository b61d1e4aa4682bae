"""One buffer for several tensors, so that they are one message."""

from collections.abc import Callable, Sequence

from namsa.base.arrays import Tensor


def in_one_buffer(tensors: Sequence[Tensor], work: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Joins tensors of one type, and splits the result of `work` as they were.

    It costs a copy into the buffer and one out of it.

    Args:
        tensors: Of TensorFlow, of known shapes.
        work: Returns as many values as the one axis of values that it is given has.
    """
    import tensorflow as tf

    flat = work(tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0))
    sizes = [tensor.shape.num_elements() for tensor in tensors]
    results = []
    for values, tensor in zip(tf.split(flat, sizes), tensors, strict=True):
        results.append(tf.reshape(values, tensor.shape))
    return results
