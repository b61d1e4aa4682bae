"""Networks of the neighbouring papers on parts of a sample: their counts, and parts that are
gathered.
"""

import math
from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf
from paths import ROOT
from split_ranks import VolumePooling
from stacked_split import stacked_grid

from fcdensenet import keras_layers
from namsa.base.errors import InputError
from namsa.config.loading import read_yaml
from train.commands.networks import memory_bytes
from train.networks import build, count, read_network
from train.networks.registry import KINDS

SECTIONS = [
    KINDS["deeplabv3plus"](
        input_shape=(3, 64, 24), units=(2, 1, 1, 1), width=4, rates=(2, 3), filters=8
    ),
    KINDS["cosmoflow"](
        input_shape=(2, 16, 8, 12), filters=(4, 6, 8), strides=(1, 2, 1), dense=(16, 8)
    ),
    KINDS["unet3d"](input_shape=(2, 8, 8, 12), levels=2, first_filters=4),
]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.kind)
def test_a_part_takes_half_of_the_flop_of_convolutions(section):
    undivided = count(section)
    divided = count(section, ways=2)
    layers = []
    for layer in divided.layers:
        if layer.kind != "gathered":
            layers.append(layer)
    for one, other in zip(layers, undivided.layers, strict=True):
        if one.is_convolution and not one.name.startswith(
            "pyramid_whole"
        ):  # which has a single pixel on all parts
            assert 2 * one.forward_flop == other.forward_flop, one.name
    assert divided.halo_bytes("float32") > 0


def test_networks_with_layers_without_padding_are_refused():
    with pytest.raises(
        InputError, match="networks of kind resnet50 are not divided: use one of fcdensenet"
    ):
        count(KINDS["resnet50"](input_shape=(2, 24, 33)), ways=2)


@pytest.fixture
def float64(monkeypatch):
    """Of whose volumes TensorFlow pools none."""
    for kind, reduce in (("average", keras.ops.mean), ("max", keras.ops.max)):
        pooling = partial(VolumePooling, reduce=reduce)
        monkeypatch.setitem(keras_layers._POOLING, (kind, 3), pooling)
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")


DENSE = {
    "input_shape": (3, 32, 48),
    "layers": (2, 1, 2),
    "growth": 4,
    "first_kernel": 3,
    "first_filters": 6,
}
STRIDED = {"transitions": "strided", "transition_up_kernel": 3}
VOLUMES = {"filters": (2, 3, 4), "strides": (1, 2, 1), "dense": (5,), "outputs": 3, "norm": True}
DENSENET = partial(KINDS["fcdensenet"], **DENSE, dropout=0.0)
COSMOFLOW = KINDS["cosmoflow"](input_shape=(1, 32, 24, 16), dropout=0.0, **VOLUMES)
EVEN = DENSENET(**STRIDED | {"kernel": 4, "transition_up_kernel": 5})
DEEPLAB = KINDS["deeplabv3plus"](
    input_shape=(2, 64, 64),
    units=(1, 1, 1, 1),
    width=2,
    rates=(1, 3),
    filters=3,
    low_level_filters=2,
    skip_filters=(2, 3),
)
UNET = KINDS["unet3d"](input_shape=(1, 8, 8, 12), levels=2, first_filters=2)
CASES = {  # network, (axis, ways) of each divided axis, recompute
    "2 ways": (DENSENET(), [(0, 2)], False),
    "4 ways of x, normalised": (DENSENET(block_norm=True), [(1, 4)], False),
    "8 ways": (DENSENET(kernel=3), [(0, 8)], False),
    "strided, recomputed": (DENSENET(**STRIDED), [(0, 2)], True),
    "even kernels": (EVEN, [(0, 4)], False),
    "gathered maps": (COSMOFLOW, [(0, 4)], False),
    "gathered maps of one row": (COSMOFLOW, [(0, 32)], False),  # two parts before each halving
    "gathered maps, 6 ways of x": (COSMOFLOW, [(1, 6)], False),
    "2 x 3 ways, normalised": (DENSENET(block_norm=True, kernel=3), [(0, 2), (1, 3)], False),
    "2 x 2 ways, strided, recomputed": (DENSENET(**STRIDED), [(1, 2), (0, 2)], True),
    "2 x 2 ways, even kernels": (EVEN, [(0, 2), (1, 2)], False),
    "2 x 2 ways, dilated": (DEEPLAB, [(0, 2), (1, 2)], False),
    "2 x 2 x 3 ways of a volume": (UNET, [(0, 2), (1, 2), (2, 3)], False),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_outputs_statistics_and_gradients_are_those_of_the_whole_sample(name, float64):
    config, axes, recompute = CASES[name]
    ways = math.prod(ways_along for _, ways_along in axes)
    rng = np.random.default_rng(0)
    wanted = None
    results = []
    paths = []
    x = tf.constant(rng.normal(size=(2, *config.input_shape[1:], config.input_shape[0])))
    for split in (None, stacked_grid(axes)):
        keras.utils.clear_session()
        model = build(config, 1, recompute, split=split)
        model = keras.Model(model.input, model.layers[-1].input)  # the output is float32
        paths.append([variable.path for variable in model.variables])
        wanted = rng.normal(size=(2, *model.output_shape[1:])) if wanted is None else wanted
        has_grid = wanted.ndim == len(x.shape)
        copies = ways if split else 1
        if split and has_grid:
            y = split.stack(wanted)
        else:
            y = np.tile(wanted, [copies] + [1] * (wanted.ndim - 1))
        with tf.GradientTape() as tape:
            outputs = model(split.stack(x) if split else x, training=True)
            loss = tf.reduce_mean(tf.square(outputs - y))
        gradients = tape.gradient(loss, [weight.value for weight in model.trainable_variables])
        if split and has_grid:
            outputs = split.unstack(outputs)
            copies = 1
        for output in tf.split(outputs, copies, 0):  # without a grid, the same on all ranks
            results.append(
                [
                    output,
                    *gradients,
                    *(variable.numpy() for variable in model.non_trainable_variables),
                ]
            )
    assert paths[0] == paths[1]
    for result in results[1:]:
        for one, other in zip(result, results[0], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.parametrize(("ways", "gib"), [(4, 13.18), (8, 6.59), (32, 1.65)])
def test_a_rank_holds_its_part_of_cosmoflow_at_512(ways, gib):
    """Table 1 of Oyama et al.: 52.7 GiB for a sample, for which 4 ranks of 16 GB or more are
    needed.
    """
    path = ROOT / "configs" / "neighbours" / "cosmoflow.yaml"
    config = read_network(read_yaml(path), str(path))
    undivided = count(config)
    divided = count(config, ways=ways)
    assert divided.parameters == undivided.parameters
    assert memory_bytes(divided) / 2**30 == pytest.approx(gib, rel=0.01)
    assert (
        1 <= ways * divided.forward_flop / undivided.forward_flop < 1.03
    )  # what copies of gathered maps repeat
