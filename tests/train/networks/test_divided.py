"""Counts of the networks of the neighbouring papers on parts of a sample."""

import pytest

from namsa.errors import InputError
from train.networks import count
from train.networks.registry import KINDS

SMALL = {
    "resnet50": {"input_shape": (2, 24, 33), "units": (1, 2), "width": 4, "classes": 5},
    "deeplabv3plus": {"input_shape": (3, 16, 24), "units": (2, 1, 1, 1), "width": 4, "rates": (2, 3), "filters": 8}
    | {"low_level_filters": 5, "skip_filters": (4, 6)},
    "cosmoflow": {"input_shape": (2, 8, 16, 12), "filters": (4, 6, 8), "strides": (1, 2, 1), "dense": (16, 8)},
    "unet3d": {"input_shape": (2, 4, 8, 12), "levels": 2, "first_filters": 4},
}
LARGER = {"unet3d": (2, 8, 8, 12), "cosmoflow": (2, 16, 8, 12), "deeplabv3plus": (3, 64, 24)}


@pytest.mark.parametrize("kind", LARGER)
def test_a_part_takes_half_of_the_flop_of_convolutions(kind):
    section = KINDS[kind](**(SMALL[kind] | {"input_shape": LARGER[kind]}))
    whole, part = count(section), count(section, ways=2)
    for one, other in zip(part.layers, whole.layers, strict=True):
        if one.is_convolution and not one.name.startswith("pyramid_whole"):  # which has a single pixel on all parts
            assert 2 * one.forward_flop == other.forward_flop, one.name
    assert part.halo_bytes("float32") > 0


def test_networks_with_layers_without_padding_are_refused():
    with pytest.raises(InputError, match="networks of kind resnet50 are not divided: use one of fcdensenet"):
        count(KINDS["resnet50"](**SMALL["resnet50"]), ways=2)
