"""Groups of gradients: by equal bytes, layer, block and list, in the order in which the backward
graph is ready.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import kendalltau

from fcdensenet.build import build
from fcdensenet.config import NetworkConfig
from namsa.base.errors import InputError
from train.experiment.exchange import Allreduce
from train.ranks import grouping

NETWORK = NetworkConfig(
    input_shape=(2, 16, 24),
    layers=(2, 2, 1, 2, 2),
    growth=4,
    kernel=3,
    first_kernel=3,
    first_filters=4,
    dropout=0.5,
)


def test_equal_runs_have_about_equal_sizes():
    backward = [5, 4, 3, 2, 1, 0]
    assert grouping.equal_runs([1] * 6, backward, 3) == [[5, 4], [3, 2], [1, 0]]
    sizes = list(np.random.default_rng(0).integers(1, 100, 200))
    order = list(np.random.default_rng(1).permutation(200))
    runs = grouping.equal_runs(sizes, order, 8)
    assert [index for run in runs for index in run] == order
    loads = []
    for run in runs:
        loads.append(sum(sizes[index] for index in run))
    assert max(loads) - min(loads) <= 2 * max(sizes)


def test_no_run_is_empty_where_one_gradient_outweighs_all():
    assert grouping.equal_runs([1, 1000, 1], [2, 1, 0], 8) == [[2], [1], [0]]
    assert grouping.equal_runs([5], [0], 8) == [[0]]


def test_a_group_stands_where_its_last_gradient_does():
    assert grouping.by_colour(["a", "b", "a", "b", "c"], [4, 0, 3, 1, 2]) == [[4], [3, 1], [0, 2]]


def test_readiness_is_the_longest_chain_before():
    """A short branch is ready first, whatever the order of the variables or of the operations."""

    def work():
        long = tf.zeros(3) + 1.0
        for _ in range(3):
            long = tf.sin(long)
        short = tf.cos(tf.zeros(3) + 2.0)
        return grouping.readiness([long, short, tf.sin(short), tf.sin(long)])

    result = []
    tf.function(lambda: result.append(work()), autograph=False)()
    assert result == [[1, 2, 0, 3]]


@pytest.fixture(scope="module")
def densenet():
    """(paths, readiness, the order in which an eager backward pass finishes them) of a network with
    skips.
    """
    model = build(NETWORK, seed=0)
    weights = model.trainable_variables
    order = []
    executed = []
    x = tf.random.normal((1, 16, 24, 2), seed=0)

    @tf.function(autograph=False)
    def trace(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x, training=True) ** 2)
        gradients = tape.gradient(loss, [weight.value for weight in weights])
        order[:] = grouping.readiness(gradients)

    def noted(index):
        """A weight that notes when its gradient is complete."""

        @tf.custom_gradient
        def same(value):
            return tf.identity(value), lambda gradient: executed.append(index) or gradient

        return same(weights[index].value)

    trace.get_concrete_function(x)
    with tf.GradientTape() as tape:  # not timed: threads of a busy machine finish in any order
        tape.watch([weight.value for weight in weights])
        with keras.StatelessScope([(weight, noted(index)) for index, weight in enumerate(weights)]):
            loss = tf.reduce_mean(model(x, training=True) ** 2)
    tape.gradient(loss, [weight.value for weight in weights])
    return [weight.path for weight in weights], order, executed


def test_readiness_of_a_densenet_goes_from_the_last_block_to_the_first(densenet):
    paths, order, _ = densenet
    blocks = list(
        dict.fromkeys(
            grouping.colours([paths[index] for index in order], Allreduce(grouping="block"))
        )
    )
    assert blocks == [
        "last",
        "up1",
        "tu1",
        "up2",
        "tu2",
        "bottom",
        "td2",
        "down2",
        "td1",
        "down1",
        "first",
    ]
    kernels = []
    for index in order:
        if paths[index].startswith("down1_conv") and "kernel" in paths[index]:
            kernels.append(paths[index])
    assert kernels == ["down1_conv2/kernel", "down1_conv1/kernel"]


def test_layers_blocks_and_lists_by_path():
    paths = ["first/kernel", "down1_conv2/kernel", "down1_conv2/bias", "model/td1_norm/gamma"]
    layers = ["first", "down1_conv2", "down1_conv2", "model/td1_norm"]
    assert grouping.colours(paths, Allreduce(grouping="layer")) == layers
    assert grouping.colours(paths, Allreduce(grouping="block")) == [
        "first",
        "down1",
        "down1",
        "td1",
    ]
    listed = Allreduce(grouping="list", group_list=(("*norm*", "first/*"), ("down1_*",)))
    assert grouping.colours(paths, listed) == ["0", "1", "1", "0"]


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ([["a/*"]], "the variable b/kernel in no group"),
        ([["a/*", "b/*"], ["*/bias"]], "the variable a/bias in groups 0, 1"),
        ([["*"], ["c/*", "d"]], r"group 1 \(c/\*, d\) has no variable"),
    ],
)
def test_a_list_has_every_variable_once(patterns, message):
    config = Allreduce.model_validate({"grouping": "list", "group_list": patterns})
    with pytest.raises(InputError, match=message):
        grouping.colours(["a/kernel", "a/bias", "b/kernel"], config)


@pytest.mark.slow
def test_readiness_is_nearly_the_order_of_execution(densenet):
    _, order, executed = densenet
    place = np.empty((2, len(order)))
    place[0, order] = place[1, executed] = np.arange(len(order))
    assert kendalltau(*place).statistic > 0.8
