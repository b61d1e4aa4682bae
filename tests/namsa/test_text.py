"""Values as text for people."""

import pytest

from namsa.text import shorten


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain text", "plain text"),
        (1.5, "1.5"),
        (["a", 1], "['a', 1]"),
        ("two\nlines\tand\rmore", "two lines and more"),
        ("\x1b[31mred\u202e\ud800", r"\x1b[31mred\u202e\ud800"),
        (10**3000, "2^9965..."),
        (-(10**5000), "-2^16609..."),
        ([10**5000], "(a list that cannot be printed)"),
    ],
)
def test_a_value_is_one_line_that_a_terminal_can_show(value, text):
    assert shorten(value) == text


@pytest.mark.parametrize("length", [81, 200, 300, 10**6])
def test_a_long_value_keeps_its_two_ends(length):
    text = shorten("<" + "x" * (length - 2) + ">")
    assert len(text) == 80
    assert text[0] + text[-1] == "<>"
    assert "..." in text


def test_a_value_that_is_nested_too_deeply_has_a_text():
    nested: list[object] = []
    for _ in range(10**5):
        nested = [nested]
    assert shorten(nested) == "(a list that cannot be printed)"
