"""JSON of unknown origin: each fault is one line that names the file and the place."""

import json

import pytest

from namsa.errors import InputError
from namsa.json_files import parse_json, read_json, read_json_lines


def test_values_are_those_of_json(tmp_path):
    value = {"a": [1, -2.5, None, True, "Å \U0001f600"], "b": {"c": [[]]}, "d": 2**63}
    path = tmp_path / "x.json"
    path.write_text(json.dumps(value))
    assert read_json(path) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON.*line 1, column 1"),
        ('{"a": 1,\n "b"}', "line 2"),
        ("NaN", "NaN is not a finite"),
        ("[-Infinity]", "not a finite"),
        ("1e999", "1e999 is not a finite"),
        ("9" * 5000, r"has more than 64 bits"),
        (str(2**64), "64 bits"),
        ("[" * 100000, "nested|not JSON"),
        ("[" * 65 + "]" * 65, "nested more than 64"),
        ('{"a":' * 500 + "1" + "}" * 500, "nested more than 64"),
        ('["\\ud800"]', r"\\ud800, half of a character"),
    ],
)
def test_faults_are_one_short_line(text, message):
    with pytest.raises(InputError, match=message) as caught:
        parse_json(text, "x.json")
    assert "x.json" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_wide_values_are_not_deep_ones():
    assert parse_json("[" + "[]," * 1000 + "[]]", "x") == [[]] * 1001
    assert parse_json("[" * 64 + "]" * 64, "x")


def test_files_that_cannot_be_read_are_refused(tmp_path):
    path = tmp_path / "x.json"
    with pytest.raises(InputError, match="cannot read .*No such file"):
        read_json(path)
    with pytest.raises(InputError, match="directory"):
        read_json(tmp_path)
    with pytest.raises(InputError, match="no file has such a name"):
        read_json(tmp_path / "a\0b")
    path.symlink_to(path)
    with pytest.raises(InputError, match="symbolic links"):
        read_json(path)
    path.unlink()
    path.write_bytes(b'"\xff"')
    with pytest.raises(InputError, match="byte 1 is 0xff"):
        read_json(path)
    path.write_text("[" + "1, " * 100 + "1]")
    with pytest.raises(InputError, match="more than"):
        read_json(path, largest_bytes=100)


def test_lines_are_numbered_and_damaged_ones_named_or_skipped(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n\n[2]\n{"a"')
    with pytest.raises(InputError, match=r"x\.jsonl, line 4"):
        list(read_json_lines(path))
    assert list(read_json_lines(path, skip_damaged=True)) == [(1, {"a": 1}), (3, [2])]
