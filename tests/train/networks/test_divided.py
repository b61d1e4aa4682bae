"""Networks of the neighbouring papers on parts of a sample: their counts, and parts that are gathered."""

from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf
from paths import ROOT
from split_ranks import VolumePooling
from stacked_split import StackedSplit

from fcdensenet import keras_layers
from namsa.config.loading import read_yaml
from namsa.errors import InputError
from train.commands.networks import memory_bytes
from train.networks import build, count, read_network
from train.networks.registry import KINDS

SECTIONS = [
    KINDS["deeplabv3plus"](input_shape=(3, 64, 24), units=(2, 1, 1, 1), width=4, rates=(2, 3), filters=8),
    KINDS["cosmoflow"](input_shape=(2, 16, 8, 12), filters=(4, 6, 8), strides=(1, 2, 1), dense=(16, 8)),
    KINDS["unet3d"](input_shape=(2, 8, 8, 12), levels=2, first_filters=4),
]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.kind)
def test_a_part_takes_half_of_the_flop_of_convolutions(section):
    whole, part = count(section), count(section, ways=2)
    layers = [layer for layer in part.layers if layer.kind != "gathered"]
    for one, other in zip(layers, whole.layers, strict=True):
        if one.is_convolution and not one.name.startswith("pyramid_whole"):  # which has a single pixel on all parts
            assert 2 * one.forward_flop == other.forward_flop, one.name
    assert part.halo_bytes("float32") > 0


def test_networks_with_layers_without_padding_are_refused():
    with pytest.raises(InputError, match="networks of kind resnet50 are not divided: use one of fcdensenet"):
        count(KINDS["resnet50"](input_shape=(2, 24, 33)), ways=2)


@pytest.fixture
def float64(monkeypatch):
    """Of whose volumes TensorFlow pools none."""
    monkeypatch.setitem(keras_layers._POOLING, ("average", 3), partial(VolumePooling, reduce=keras.ops.mean))
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")


DENSE = {"input_shape": (3, 32, 48), "layers": (2, 1, 2), "growth": 4, "first_kernel": 3, "first_filters": 6}
STRIDED = {"transitions": "strided", "transition_up_kernel": 3}
VOLUMES = {"filters": (2, 3, 4), "strides": (1, 2, 1), "dense": (5,), "outputs": 3, "norm": True}
DENSENET = partial(KINDS["fcdensenet"], **DENSE, dropout=0.0)
COSMOFLOW = KINDS["cosmoflow"](input_shape=(1, 32, 24, 16), dropout=0.0, **VOLUMES)
CASES = {  # network, ways, axis, recompute
    "2 ways": (DENSENET(), 2, 0, False),
    "4 ways of x, normalised": (DENSENET(block_norm=True), 4, 1, False),
    "8 ways": (DENSENET(kernel=3), 8, 0, False),
    "strided, recomputed": (DENSENET(**STRIDED), 2, 0, True),
    "even kernels": (DENSENET(**STRIDED | {"kernel": 4, "transition_up_kernel": 5}), 4, 0, False),
    "gathered maps": (COSMOFLOW, 4, 0, False),
    "gathered maps of one row": (COSMOFLOW, 32, 0, False),  # two parts before each halving
    "gathered maps, 6 ways of x": (COSMOFLOW, 6, 1, False),
}


@pytest.mark.parametrize("name", CASES)
def test_outputs_statistics_and_gradients_are_those_of_the_whole_sample(name, float64):
    config, ways, axis, recompute = CASES[name]
    rng, wanted, results, paths = np.random.default_rng(0), None, [], []
    x = tf.constant(rng.normal(size=(2, *config.input_shape[1:], config.input_shape[0])))
    for split in (None, StackedSplit(ways, axis)):
        keras.utils.clear_session()
        model = build(config, 1, recompute, split=split)
        model = keras.Model(model.input, model.layers[-1].input)  # the output is float32
        paths.append([variable.path for variable in model.variables])
        wanted = rng.normal(size=(2, *model.output_shape[1:])) if wanted is None else wanted
        has_grid, copies = wanted.ndim == len(x.shape), ways if split else 1
        y = split.stack(wanted, 1 + axis) if split and has_grid else np.tile(wanted, [copies] + [1] * (wanted.ndim - 1))
        with tf.GradientTape() as tape:
            outputs = model(split.stack(x, 1 + axis) if split else x, training=True)
            loss = tf.reduce_mean(tf.square(outputs - y))
        gradients = tape.gradient(loss, [weight.value for weight in model.trainable_variables])
        if split and has_grid:
            outputs, copies = split.unstack(outputs, 1 + axis), 1
        for each in tf.split(outputs, copies, 0):  # without a grid, the same on all ranks
            results.append([each, *gradients, *(variable.numpy() for variable in model.non_trainable_variables)])
    assert paths[0] == paths[1]
    for each in results[1:]:
        for one, other in zip(each, results[0], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.parametrize(("ways", "gib"), [(4, 13.18), (8, 6.59), (32, 1.65)])
def test_a_rank_holds_its_part_of_cosmoflow_at_512(ways, gib):
    """Table 1 of Oyama et al.: 52.7 GiB for a sample, for which 4 ranks of 16 GB or more are needed."""
    path = ROOT / "configs" / "neighbours" / "cosmoflow.yaml"
    config = read_network(read_yaml(path), str(path))
    whole, part = count(config), count(config, ways=ways)
    assert part.parameters == whole.parameters
    assert memory_bytes(part) / 2**30 == pytest.approx(gib, rel=0.01)
    assert 1 <= ways * part.forward_flop / whole.forward_flop < 1.03  # what copies of gathered maps repeat
