"""Values in messages: short, on one line."""

import pytest

from namsa.text import shorten


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Å b", "Å b"),
        ([1, "a"], "[1, 'a']"),
        ("a\nb\0\u202e\ud800", r"a\nb\x00\u202e\ud800"),
        ("x" * 100, "x" * 80 + "… (100 characters)"),
        (10**5000, "<int too long to print>"),
    ],
)
def test_values_become_one_short_line(value, text):
    assert shorten(value) == text


def test_a_deep_value_is_named_by_its_type():
    value = []
    for _ in range(100000):
        value = [value]
    assert shorten(value) == "<list too long to print>"
