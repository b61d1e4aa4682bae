"""The count without Keras against the published numbers, the built model and a sum by hand."""

import math

import pytest

from fcdensenet.build import build
from fcdensenet.config import NetworkConfig
from fcdensenet.count import count

PAPER = NetworkConfig(input_shape=(1024, 512, 512), transition_up_kernel=1)
SMALL = {"input_shape": (6, 16, 24), "first_filters": 5, "growth": 4, "kernel": 3}


def test_paper_network_layers() -> None:
    assert count(PAPER).gradient_bytes("float16") == pytest.approx(440.8e6, rel=1e-4)
    kernels = {}
    for layer in count(PAPER).layers:
        if layer.kernel_shape:
            kernels[layer.name] = layer.kernel_shape
    assert kernels["first"] == (5, 5, 1024, 256)
    assert [kernels[f"td{level}_conv"] for level in (1, 2, 3)] == [
        (1, 1, c, c) for c in (512, 1024, 2048)
    ]
    assert [kernels[f"tu{level}_conv"] for level in (3, 2, 1)] == [
        (1, 1, c, c) for c in (768, 1024, 512)
    ]
    assert kernels["last"] == (1, 1, 1280, 1)


def test_2x2_transitions_up() -> None:
    assert count(PAPER.model_copy(update={"transition_up_kernel": 2})).conv_weights == 226_100_480


def test_published_23m_network() -> None:
    """The authors count kernels, trained norms and the first bias, which has one value per column,
    not per map.
    """
    blocks = {"layers": (2, 2, 3, 4, 3, 2, 2), "growth": 128, "first_filters": 128}
    kernels = {"kernel": 3, "first_kernel": 3, "transition_up_kernel": 1}
    network = count(NetworkConfig(input_shape=(1024, 512, 512), **blocks, **kernels))
    norms = sum(layer.trainable_parameters for layer in network.layers if layer.kind == "norm")
    assert network.conv_weights + norms + 512 == 22_877_568
    assert network.step_flop == pytest.approx(8.002e12, rel=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"layers": (1, 2, 1), "transitions": "strided", "transition_up_kernel": 3},
        {"data_format": "channels_first", "transition_up_kernel": 1},
        {"layers": (2, 1, 3), "block_norm": True, "pooling": "max", "output_channels": 2},
        {
            "layers": (1, 3, 2, 1, 2),
            "dropout": 0.0,
            "kernel": 5,
            "first_kernel": 7,
            "transition_up_kernel": 3,
        },
        {"layers": (3,)},
        {"layers": (2, 3, 2), "recompute": True},
    ],
)
def test_count_is_the_built_model(options: dict[str, object]) -> None:
    recompute = bool(options.get("recompute"))
    config = NetworkConfig(
        **(SMALL | {key: value for key, value in options.items() if key != "recompute"})
    )
    model = build(config, 0, recompute)
    counted = count(config, recompute)
    assert [layer.name for layer in model.layers] == [layer.name for layer in counted.layers]
    for built, layer in zip(model.layers, counted.layers, strict=True):
        assert built.output.shape[1:] == layer.output_shape, layer.name
        assert built.count_params() == layer.parameters, layer.name
        assert (
            sum(math.prod(w.shape) for w in built.trainable_weights) == layer.trainable_parameters
        ), layer.name
        if layer.kernel_shape:
            assert built.kernel.shape == layer.kernel_shape, layer.name
    assert model.count_params() == counted.parameters


def test_kept_activations_by_hand() -> None:
    """first (5 maps), ReLU, conv (4 maps), ReLU, dropout, stack of 9, last: on 2×3 pixels of 6
    patterns.
    """
    config = NetworkConfig(**SMALL | {"input_shape": (6, 2, 3), "layers": (1,)})
    pixels = 6
    mask = 6 * 4
    kept = pixels * (6 + 5 + 4 + 9)  # patterns, ReLU of first, ReLU of conv, stack
    assert count(config).activation_bytes("float16") == 2 * kept + mask
    assert count(config).activation_bytes("float32") == 4 * kept + mask


def test_recomputed_stacks_are_not_kept() -> None:
    """A block of 3 convolutions of 4 maps on 5 keeps the rectified 5 and 3 × 4 maps once, not
    stacks of 9 and 13.
    """
    config = NetworkConfig(**SMALL | {"input_shape": (6, 2, 3), "layers": (3,), "dropout": 0.0})
    pixels = 6
    values = 6 + 5 + 9 + 13 + 12 + 17  # patterns, stacks, ReLU of the new maps, input of `last`
    saved = 6 + 5 + 12 + 17
    assert count(config).activation_bytes("float32") == 4 * pixels * values
    assert count(config, recompute=True).activation_bytes("float32") == 4 * pixels * saved
    assert count(config, recompute=True).step_flop == count(config).step_flop
    paper, lean = (
        count(PAPER, recompute).activation_bytes("float16") for recompute in (False, True)
    )
    assert lean < 0.9 * paper


def test_normalised_maps_are_kept_in_float32() -> None:
    """One average pooling: the normalisation keeps the 9 maps of down1 in float32 for every
    dtype.
    """
    counted = count(NetworkConfig(**SMALL | {"layers": (1, 1, 1)}))
    norm = next(layer for layer in counted.layers if layer.name == "td1_norm")
    assert norm.activation_bytes("float16") == norm.activation_bytes("float32") == 4 * 9 * 16 * 24
