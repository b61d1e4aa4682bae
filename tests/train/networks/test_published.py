"""Counts at full size against the published numbers. Nothing is allocated."""

from math import prod
from pathlib import Path

import pytest
from paths import ROOT

from namsa.base.errors import InputError
from namsa.config.loading import read_yaml
from train.__main__ import main as command
from train.commands.networks import memory_bytes
from train.networks import build, count, read_network
from train.networks.registry import KINDS

NEIGHBOURS = ROOT / "configs" / "neighbours"


def network(name: str, *overrides: str):
    path = NEIGHBOURS / f"{name}.yaml"
    return read_network(read_yaml(path, overrides), str(path))


def test_resnet50_of_yoginath():
    """27 classes, one channel, 120×85 pixels; the 89 MB of weights that their ranks average have no
    biases.
    """
    counted = count(network("resnet50"))
    assert (counted.parameters, counted.trainable_parameters) == (23_636_763, 23_583_643)
    assert counted.forward_flop == pytest.approx(1.7356e9, rel=3e-5)
    without = count(network("resnet50", "network.conv_bias=false"))
    assert without.trainable_parameters == 23_557_083
    assert 4 * without.trainable_parameters / 2**20 == pytest.approx(89.86, abs=5e-3)


def test_cvae_of_yoginath():
    """26 million weights and biases, approximately 100 MB; a dense layer of 100352 × 128."""
    counted = count(network("cvae"))
    assert counted.parameters == counted.trainable_parameters == 26_384_647
    assert next(
        layer for layer in counted.layers if layer.name == "encoder_dense"
    ).kernel_shape == (100_352, 128)
    assert counted.step_flop == pytest.approx(2.94e9, rel=1e-3)


def test_tiramisu_of_kurth():
    """They publish the FLOP (figure 2); the parameters follow from their text and code. Then of 4
    of 16 channels.
    """
    of_four = ("network.input_shape=[4, 768, 1152]", "network.first_filters=48")
    for overrides, parameters, step_flop in (
        ((), 7_504_835, 4.1878e12),
        (of_four, 7_134_211, 3.7026e12),
    ):
        counted = count(network("tiramisu", *overrides))
        assert counted.parameters == counted.trainable_parameters == parameters
        assert counted.step_flop == pytest.approx(step_flop, rel=2e-5)


def test_deeplabv3plus_of_kurth():
    with_norm, without = (
        count(network("deeplabv3plus", f"network.norm={norm}")) for norm in ("true", "false")
    )
    assert with_norm.trainable_parameters == 43_718_883
    assert without.parameters == without.trainable_parameters == 43_669_251
    assert with_norm.step_flop == without.step_flop == pytest.approx(13.024e12, rel=2e-5)


def test_the_published_flop_of_deeplab_contain_the_padding_of_its_dilated_convolutions():
    """At dilation r, TensorFlow 1 pads the grid by r on each side and up to a multiple of r: 14.41
    TFLOP (figure 2).
    """
    counted = count(network("deeplabv3plus"))
    dilations = {f"pyramid_rate{rate}": rate for rate in (12, 24, 36)}
    dilations |= {f"block3_unit{unit}_conv2": 2 for unit in range(1, 7)}
    dilations |= {f"block4_unit{unit}_conv2": 4 for unit in range(1, 4)}
    padding = 0
    for layer in counted.layers:
        if rate := dilations.pop(layer.name, 0):
            height, width, _ = layer.output_shape
            padded = prod(-(-(extent + 2 * rate) // rate) * rate for extent in (height, width))
            padding += layer.forward_flop * (padded - height * width) // (height * width)
    assert not dilations
    assert 3 * (counted.forward_flop + padding) == pytest.approx(14.41e12, rel=2e-4)


@pytest.mark.parametrize(
    ("width", "gflop", "gib"),
    [(128, 18.52, 0.824), (256, 147.9, 6.59), (512, 1183.0, 52.7)],
    ids=str,
)
def test_cosmoflow_of_oyama(width, gflop, gib):
    """Table 1, whose forward operations are those of the convolutions."""
    config = network("cosmoflow", f"network.input_shape=[4, {width}, {width}, {width}]")
    counted = count(config)
    assert counted.parameters == 9_437_636
    convolutions = sum(layer.forward_flop for layer in counted.layers if layer.is_convolution)
    assert convolutions / 1e9 == pytest.approx(gflop, rel=1e-3)
    assert counted.forward_flop / 1e9 == pytest.approx(gflop, rel=1e-3)
    assert memory_bytes(counted) / 2**30 == pytest.approx(gib, rel=1e-3)


def test_normalisation_adds_an_output_and_an_error_signal_of_each_convolution(capsys):
    """By the rule of table 1. A sample of 512³ then needs 8 GPUs of 16 GB in place of 4, in halves
    of halves.
    """
    shape = "network.input_shape=[4, 512, 512, 512]"
    plain = count(network("cosmoflow", shape))
    normed = count(network("cosmoflow", shape, "network.norm=true"))
    maps = sum(prod(layer.output_shape) for layer in plain.layers if layer.is_convolution)
    assert memory_bytes(normed) - memory_bytes(plain) == 2 * 4 * maps
    assert memory_bytes(normed) / 2**30 == pytest.approx(73.75, abs=0.01)
    assert memory_bytes(plain) < 4 * 16e9 < memory_bytes(normed) < 8 * 16e9
    path = str(NEIGHBOURS / "cosmoflow.yaml")
    assert command(["describe", path, "--set", shape, "--set", "network.norm=true"]) == 0
    assert f"{memory_bytes(normed) / 2**30:.3f} GiB  output and error signal" in (
        capsys.readouterr().out
    )


def test_unet3d_of_oyama():
    counted = count(network("unet3d"))
    assert counted.conv_weights == 19_065_888
    assert counted.forward_flop == pytest.approx(31.26e12, rel=2e-4)


def test_resnet34_of_zhuang():
    """Table I has 33 convolutions and a dense layer; three more project shortcuts. torchvision's
    network has 21,797,672 parameters for 1,000 classes.
    """
    counted = count(network("resnet34", "network.classes=1000"))
    assert counted.trainable_parameters == 21_797_672
    convolutions = []
    for layer in counted.layers:
        if layer.is_convolution:
            convolutions.append(layer.name)
    assert sum("_0_conv" not in name for name in convolutions) == 33
    assert len(convolutions) == 36


def test_lenet_of_lecun():
    """Each layer has the weights that the publication gives it, but the second convolution: full
    here, 1,516 there.
    """
    counted = {}
    for layer in count(network("lenet")).layers:
        if layer.parameters:
            counted[layer.name] = layer.parameters
    assert counted == {"c1_1": 156, "c2_1": 2416, "fc1": 48_120, "fc2": 10_164, "predictions": 850}
    # its outputs are not trained
    published = counted | {"c2_1": 1516, "predictions": 0} | {"s2": 12, "s4": 32}
    assert sum(published.values()) == 60_000


def test_alexnet_of_krizhevsky_and_of_zhuang():
    """60 million parameters, where the second, fourth and fifth convolution see half of the maps
    before them.
    """
    counted = count(network("alexnet"))
    assert counted.parameters == 62_378_344
    seen = []
    for layer in counted.layers:
        if layer.name in ("c2_1", "c3_2", "c3_3"):
            seen.append(layer.weights // 2)
    assert counted.parameters - sum(seen) == 60_965_224
    grids = []
    for layer in counted.layers:
        if layer.kind == "max pool":
            grids.append(layer.output_shape)
    assert grids == [(27, 27, 96), (13, 13, 256), (6, 6, 256)]
    theirs = ("filters=[[64],[192],[384,384,256]]", "dense=[4096,4096,4096]", "classes=200")
    counted = count(
        network("alexnet", *(f"network.{change}" for change in theirs))
    )  # table I of Zhuang et al.
    assert (counted.convolutions, sum(layer.kind == "dense" for layer in counted.layers)) == (5, 4)


@pytest.mark.parametrize(
    ("convolutions", "parameters"),
    [
        ((1, 1, 2, 2, 2), 132_863_336),
        ((2, 2, 2, 2, 2), 133_047_848),
        ((2, 2, 3, 3, 3), 138_357_544),
        ((2, 2, 4, 4, 4), 143_667_240),
    ],
    ids="ABDE",
)
def test_vgg_of_simonyan(convolutions, parameters):
    """Table 2: 133, 133, 138 and 144 million, in 11, 13, 16 and 19 layers."""
    filters = []
    for maps, convolution_count in zip((64, 128, 256, 512, 512), convolutions, strict=True):
        filters.append([maps] * convolution_count)
    counted = count(network("vgg", f"network.filters={filters}"))
    assert counted.parameters == parameters
    assert counted.convolutions == sum(convolutions)


def test_recomputing_another_network_is_refused():
    with pytest.raises(InputError, match="recompute is for network.kind fcdensenet, not cvae"):
        build(network("cvae"), seed=0, recompute=True)


def test_every_kind_has_a_configuration_of_its_paper():
    files: dict[str, Path] = {path.stem: path for path in NEIGHBOURS.glob("*.yaml")}
    kinds = {network(name).kind for name in files}
    assert kinds == KINDS.keys() - {"function"}  # one of the user's own


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            {"kind": "resnet", "input_shape": [1, 8, 8]},
            "network.kind is resnet; the kinds are fcdensenet, resnet50",
        ),
        (
            {"kind": "resnet50", "input_shape": [1, 8, 8], "class": 3},
            "unknown key class; did you mean classes",
        ),
        ({"kind": "unet3d", "input_shape": [1, 8, 12, 8]}, "multiples of 8, which 3 poolings need"),
        ({"kind": "unet3d", "input_shape": [1, 8, 8, 8], "levels": 9}, "network: levels"),
        (
            {"kind": "deeplabv3plus", "input_shape": [1, 8, 12]},
            "multiples of 8, which is the stride",
        ),
        (
            {"kind": "cosmoflow", "input_shape": [1, 8, 8, 8], "filters": [4]},
            "7 strides for 1 filters",
        ),
        ({"kind": "cvae", "input_shape": [1, 8]}, "input_shape"),
        (
            {"kind": "vgg", "input_shape": [1, 40, 31]},
            "input_shape [1, 40, 31]: extents must be 32 or more",
        ),
        ({"kind": "lenet", "input_shape": [1, 32, 32], "kernels": [5]}, "1 kernels for 2 stages"),
        (None, "no section 'network'"),
    ],
)
def test_bad_sections_are_one_line(section, message):
    with pytest.raises(InputError) as raised:
        read_network({"network": section} if section else {}, "own.yaml")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
