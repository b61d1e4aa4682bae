"""Lists of a dataset that others have changed: one line, and `namsa repair` leaves no damage."""

import json
import os

import pytest
import xxhash
from hostile_files import COMMANDS, replace_file

from namsa import WorkError
from namsa.dataset import other_nodes
from namsa.dataset.failures import append_failure, read_failures

LISTS = {
    "failed-00000.jsonl": ("verify", "info", "export", "merge"),
    "elsewhere.json": ("verify",),
    "manifest.jsonl": ("verify", "info", "repair", "merge"),
}


@pytest.mark.parametrize("kind", ["folder", "link to nothing", "link to itself"])
@pytest.mark.parametrize(
    ("name", "command"), [(name, command) for name, all_ in LISTS.items() for command in all_]
)
def test_a_list_that_cannot_be_read_is_named_with_the_remedy(d, run, name, command, kind):
    replace_file(d / name, kind)
    code, line = run(COMMANDS[command])
    assert (code, f"cannot read d/{name}" in line) == (2, True), line
    assert "delete" in line
    assert not os.path.lexists("o.h5")


CONTENTS = {
    "nested": "[" * 5000,
    "infinite": '{"id": 1e999, "ids": [1e999], "config_hash": "x"}',
    "many digits": '{"id": ' + "9" * 5000 + "}",
    "null": "null",
    "empty object": "{}",
    "text": '"x"',
    "list": "[1, 2]",
    "an id that is a path": '{"id": "../x", "reason": "r", "config_hash": "x", "ids": ["../x"]}',
    "a list as id": '{"id": ["a"], "reason": "r", "config_hash": "x", "ids": [["a"]]}',
    "a number as reason": '{"id": "a", "reason": 3, "config_hash": "x", "ids": "a"}',
    "words as flag": '{"id": "a", "reason": "r", "config_hash": "x", "final": "no", "ids": {"a": '
    "1}}",
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_other_nodes_samples_are_a_list_of_names_and_a_failure_is_one_or_was_cut_off(
    d, run, content
):
    (d / "elsewhere.json").write_text(content)
    code, line = run(COMMANDS["verify"])
    assert (code, "d/elsewhere.json" in line, "stage the dataset again" in line) == (
        2,
        True,
        True,
    ), line
    (d / "elsewhere.json").unlink()
    path = d / "failed-00000.jsonl"
    path.write_text(content + "\n")
    code, line = run(COMMANDS["verify"])
    # as far as JSON goes, a line that a crash cut off
    if content.startswith("[[") or "999" in content:
        assert code == 0
    else:
        assert (code, "d/failed-00000.jsonl, line 1: " in line, "delete the file" in line) == (
            2,
            True,
            True,
        ), line


def test_a_failure_that_a_crash_cut_off_within_a_character_is_none(tmp_path):
    for reason in ("3 Å", "4 Å"):
        append_failure(tmp_path, 0, "hash", f"a{reason[0]}", WorkError(reason))
    path = tmp_path / "failed-00000.jsonl"
    path.write_bytes(path.read_bytes()[: path.read_bytes().rindex("Å".encode()) + 1])
    append_failure(tmp_path, 0, "hash", "a5", WorkError("5 Å"))
    assert read_failures(tmp_path, "hash") == {"a3": "3 Å", "a5": "5 Å"}


@pytest.mark.parametrize(
    "change",
    [
        {"id": "../x"}, {"material": "a/b"}, {"zone_axis": [1, 2]}, {"zone_axis": "001"},
        {"thickness_angstrom": -1},
        {"thickness_angstrom": "thick"}, {"seed": -1}, {"split": "validation"}, {"skipped": 5},
        {"more": 1},
        {"cost": 1.5}, {"seed": 10**30}, {"varied": []},
    ],
)  # fmt: skip
def test_a_manifest_with_a_right_digest_and_wrong_values_is_refused(d, run, change):
    path = d / "manifest.jsonl"
    header, *lines = path.read_text().splitlines()
    lines[2] = json.dumps(json.loads(lines[2]) | change, ensure_ascii=False)
    write_manifest(path, json.loads(header), lines)
    for command in LISTS["manifest.jsonl"]:
        code, line = run(COMMANDS[command])
        assert (code, f"d/manifest.jsonl, line 4: {next(iter(change))}" in line) == (2, True), line
        assert "delete it, and namsa dataset CONFIG --out d writes it again" in line


@pytest.mark.parametrize(
    "change", [{"samples_hash": 5}, {"name": None}, {"merged": ["a"]}, {"merged": {"a": 5}}]
)
def test_a_manifests_header_has_values_of_their_types(d, run, change):
    path = d / "manifest.jsonl"
    header, *lines = path.read_text().splitlines()
    write_manifest(path, json.loads(header) | change, lines)
    code, line = run(COMMANDS["info"])
    assert (code, f"d/manifest.jsonl, line 1: {next(iter(change))}" in line) == (2, True), line


def write_manifest(path, header, lines):
    body = "".join(line + "\n" for line in lines)
    header.pop("digest")
    digest = xxhash.xxh3_128_hexdigest((json.dumps(header, ensure_ascii=False) + body).encode())
    path.write_text(json.dumps(header | {"digest": digest}, ensure_ascii=False) + "\n" + body)


def test_merge_names_a_configuration_that_cannot_be_read(d, run):
    replace_file(d / "config.yaml", "folder")
    code, line = run(COMMANDS["merge"])
    assert (code, "cannot read d/config.yaml" in line) == (2, True), line


def test_other_nodes_samples_are_read_as_they_were_written(tmp_path):
    other_nodes.write_ids(tmp_path, "hash", ["b", "a"])
    assert other_nodes.read_ids(tmp_path, "hash") == {"a", "b"}
    assert other_nodes.read_ids(tmp_path, "another") == frozenset()
