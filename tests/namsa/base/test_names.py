"""Names of samples and materials: every name is safe as the name of a file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namsa import InputError
from namsa.base.names import LONGEST, check_name, is_name, portable_path
from namsa.base.text import shorten

GOOD = [
    "a", "Cu-fcc-1-10-12.5A", "x-001-1e+06A-v3", "_", "-", "+1", "Größe_3",
    "K2PtCl6-from-Rb2PtCl6-225-cF36",
    "a" * 200,
]  # fmt: skip
BAD = [
    "", ".", "..", ".hidden", "../../evil", "/tmp/evil", "a/b", "a\\b", "a b", "a\nb", "a\n",
    "a\x00", "\u202ea", "<b>",
    "a:b", "\ud800", "a" * 201, "ö" * 101, None, 5, ["a"],
]  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_name_is_returned_as_it_is(name):
    assert check_name(name, "the sample") == name


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_name_is_refused_with_the_alphabet_and_the_remedy(name):
    assert not is_name(name)
    with pytest.raises(
        InputError, match=r"^the sample is named .*: rename it; a name has letters, digits and _ "
    ) as error:
        check_name(name, "the sample", "rename it")
    assert len(str(error.value)) < 300
    assert "\n" not in str(error.value)


@given(st.text(max_size=300))
def test_a_file_of_a_name_lies_in_its_folder(tmp_path_factory, name):
    if is_name(name):
        folder = tmp_path_factory.getbasetemp()
        path = folder / f"{name}.png"
        assert path.resolve().parent == folder.resolve()
        assert len(path.name.encode()) <= LONGEST + 4


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


def test_a_path_in_a_file_names_no_folder_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert portable_path("crystals/Au.cif") == "crystals/Au.cif"
    assert portable_path(tmp_path / "crystals" / "Au.cif") == "crystals/Au.cif"
    assert portable_path("/home/somebody/Au.cif") == "Au.cif"
    for text in ("builtin", "https://materialsproject.org//a"):
        assert portable_path(text) == text
