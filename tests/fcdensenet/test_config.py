"""Messages of a network's section, built in Python, about values that are not allowed."""

import pytest
from pydantic import ValidationError

from fcdensenet import NetworkConfig

SHAPE = (16, 8, 8)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"growth": -4},
            r"growth: must be at least 1 \(given -4\); growth is: feature maps per convolution",
        ),
        ({"growth": 2**15}, r"growth: must be at most 16384 \(given 32768\); growth is: "),
        ({"growth": 1.5}, r"growth: must be a whole number \(given 1.5\)"),
        ({"growth": "many"}, r"growth: must be a whole number \(given 'many'\)"),
        ({"growth": True}, "growth must be a number or text, and is true"),
        ({"dropout": 1.0}, r"dropout: must be less than 1.0 \(given 1.0\); dropout is: dropout "),
        ({"pooling": "mean"}, r"pooling: must be 'average' or 'max' \(given 'mean'\)"),
        ({"layers": 3}, r"layers: must be a list \(given 3\)"),
        ({"layers": (1, 0, 1)}, r"layers.1: must be at least 1 \(given 0\); layers is: number of"),
        ({"layers": (1, 1)}, r"layers must have an odd number of blocks .*, not 2"),
        (
            {"input_shape": (16, 9, 8), "layers": (1, 1, 1)},
            r"input_shape \(16, 9, 8\): y and x must be multiples of 2",
        ),
        ({"growht": 4}, "unknown key growht; did you mean growth?"),
        ({"lattice": 4}, "unknown key lattice; known are kind, input_shape, layers, "),
        ({"growth": 0, "kernel": 0}, r"growth: must be .*; kernel: must be at least 1"),
    ],
)
def test_a_value_that_is_not_allowed_is_one_line(values, message):
    with pytest.raises(ValueError, match=f"^NetworkConfig: {message}") as caught:
        NetworkConfig(**{"input_shape": SHAPE, "layers": (1,)} | values)
    assert "\n" not in str(caught.value)
    assert "pydantic" not in str(caught.value)
    assert "Input" not in str(caught.value)


def test_a_value_that_is_missing_is_named():
    with pytest.raises(ValueError, match=r"^NetworkConfig: input_shape: a value is needed; input_"):
        NetworkConfig(layers=(1,))


def test_a_tree_of_sections_has_the_places_of_its_problems():
    with pytest.raises(ValidationError):
        NetworkConfig.model_validate({"input_shape": SHAPE, "growth": 0})
