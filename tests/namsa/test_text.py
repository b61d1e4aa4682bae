"""Values in messages: short, on one line."""

import pytest

from namsa.text import shorten


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Å b", "Å b"),
        ([1, "a"], "[1, 'a']"),
        ("a\nb\0\u202e\ud800", r"a b\x00\u202e\ud800"),
        ("a" * 60 + "b" * 60, "a" * 51 + "..." + "b" * 26),
        (-2.5, "-2.5"),
    ],
)
def test_values_become_one_short_line(value, text):
    assert shorten(value) == text


def test_values_that_python_refuses_to_print_are_described():
    deep = []
    for _ in range(100000):
        deep = [deep]
    assert shorten(deep) == "(a list that cannot be printed)"
    assert shorten(10**5000) == "2^16609..."
    assert shorten({"a": 10**5000}) == "(a dict that cannot be printed)"
