"""Faults of a dataset's folder: the `namsa` command reports each in one line and by its exit
code.
"""

import json
import os
import re
import shutil
import subprocess

import ase.io
import fake_samples
import pytest
import yaml
from ase.build import bulk

from namsa.base.errors import WorkError
from namsa.cli.parser import main
from namsa.dataset.failures import append_failure
from namsa.dataset.records import VERSION
from namsa.dataset.shard_writer import ShardWriter
from namsa.dataset.shards import Dataset, Shard, shard_path

TINY = {
    "split": {"train": 1, "dev": 0, "test": 0},
    "specimen": {"lateral_angstrom": [4, 5], "thickness_angstrom": [8, 12]},
    "scan": {"shape": [2, 3]},
    "simulation": {"grid_shape": [32, 36]},
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    ase.io.write(folder / "copper.cif", bulk("Cu", cubic=True))
    crystals = {"materials": {"cif": [str(folder / "copper.cif")]}}
    (folder / "tiny.yaml").write_text(yaml.safe_dump(TINY | crystals))
    assert main(["dataset", str(folder / "tiny.yaml"), "--out", str(folder / "data")]) == 0
    return folder


@pytest.fixture
def data(prepared, tmp_path):
    return shutil.copytree(prepared / "data", tmp_path / "data")


@pytest.fixture
def run(prepared, capsys):
    """The exit code, the last line of stdout and all of stderr, which is one line, or two with what
    a rank takes.
    """

    def run(*arguments):
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        if "was made differently" not in captured.err:  # which has a line for each difference
            assert len(captured.err.splitlines()) <= 1
        return code, captured.out.strip().split("\n")[-1], captured.err

    return run


def simulate(prepared, data, *more):
    return "dataset", prepared / "tiny.yaml", "--out", data, *more


@pytest.mark.parametrize("command", ["dataset", "verify", "repair", "info"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda text: text.replace('"thickness_angstrom": 8', '"thickness_angstrom": 9'),
            "cut short or edited",
        ),
        (lambda text: text[: len(text) * 2 // 3], "cut short or edited"),
        (lambda text: text.partition("\n")[0] + "\n", "cut short or edited .* of 2.*delete it"),
        (lambda text: text + text.splitlines()[-1] + "\n", "cut short or edited"),
        (
            lambda text: "".join(text.splitlines(keepends=True)[place] for place in (0, 2, 1)),
            "cut short or edited",
        ),
        (lambda text: text.replace('"train": 2', '"train": 3'), "cut short or edited"),
        (
            lambda text: text.replace('"version": 1', '"version": 99'),
            "version 99, this namsa reads up to .*update",
        ),
        (lambda text: "", "is not a manifest"),
        (lambda text: "PK\x03\x04", "is not a manifest"),
        (lambda text: "{}\n", "is not a manifest"),
        (lambda text: "[1]\n", "is not a manifest"),
        (lambda text: '{"format": "else", "version": 1, "digest": ""}\n', "is not a manifest"),
    ],
)
def test_a_manifest_that_was_touched(run, prepared, data, command, change, message):
    path = data / "manifest.jsonl"
    path.write_text(change(path.read_text()))
    code, _, stderr = run(*(simulate(prepared, data) if command == "dataset" else (command, data)))
    assert code == 2
    assert re.search(f"manifest.jsonl.*{message}", stderr)


def test_a_shard_of_another_configuration(run, prepared, data, tmp_path):
    other = ("--set", "microscope.energy_ev=100e3")
    code, _, stderr = run(*simulate(prepared, data, *other))
    assert code == 2
    assert "\n  microscope.energy_ev: was 200000.0, is 100000.0\n" in stderr
    assert "directory of its own" in stderr
    assert run(*simulate(prepared, tmp_path / "other", *other))[0] == 0
    shutil.copy(shard_path(tmp_path / "other", 0), shard_path(data, 1))
    for command in (simulate(prepared, data), ("info", data)):
        code, _, stderr = run(*command)
        assert code == 2
        assert "shard-00000.lmdb" in stderr
        assert "shard-00001.lmdb" in stderr
        assert "different configurations" in stderr
        assert len(re.findall(r"\b[0-9a-f]{16} in shard-0000[01]\.lmdb", stderr)) == 2
    assert run("verify", data)[0] == 1
    assert run("repair", data)[0] == 0
    assert run("verify", data)[0] == 0
    code, summary, stderr = run(*simulate(prepared, data))
    assert (code, stderr) == (0, "")
    assert {key: json.loads(summary)[key] for key in ("present", "written")} == {
        "present": 2,
        "written": 0,
    }


@pytest.mark.parametrize("command", ["verify", "info", "export"])
def test_a_sample_that_could_not_be_made_is_counted_with_its_reason(
    prepared, data, tmp_path, capsys, command
):
    with Dataset(data) as dataset:
        present = dataset.ids[0]
        of = dataset.config_hash
    for name in ("Cu-iron", present):  # another machine has simulated the second since
        append_failure(data, 1, of, name, WorkError("it is no copper"))
    more = ("--out", str(tmp_path / "out.h5")) if command == "export" else ()
    assert main([command, str(data), *more]) == 0
    output = capsys.readouterr().out
    assert "1 failed" in output
    assert output.count("it is no copper") == 1
    assert "Cu-iron: it is no copper" in output


@pytest.mark.parametrize("command", ["dataset", "verify", "repair", "info", "export"])
def test_a_record_of_a_later_version(run, prepared, data, tmp_path, command):
    """It is neither damaged, nor moved aside, nor simulated again."""
    with Shard(shard_path(data, 0)) as shard:
        sample_id = shard.ids[0]
        record = fake_samples.signed(
            shard.read_bytes(sample_id), lambda header: header, VERSION + 1
        )
    shard_path(data, 0).unlink()
    with ShardWriter(shard_path(data, 0)) as writer:
        writer.put(sample_id, record)
    arguments = {
        "dataset": simulate(prepared, data),
        "export": ("export", data, "--out", tmp_path / "out.h5"),
    }
    code, _, stderr = run(*arguments.get(command, (command, data)))
    assert code == 1
    assert f"version {VERSION + 1}; this namsa reads version {VERSION}: update it" in stderr
    assert not list(data.glob("quarantine*"))


def test_a_damaged_shard_stops_the_simulation_of_any_rank_until_it_is_repaired(run, prepared, data):
    os.truncate(shard_path(data, 0), 20_000)
    shard_path(data, 0).rename(shard_path(data, 1))  # of another rank
    code, _, stderr = run(*simulate(prepared, data))
    assert code == 1
    assert f"namsa repair {data}" in stderr
    assert run("verify", data)[0] == 1
    assert run("repair", data, "--json")[0] == 0
    assert run(*simulate(prepared, data))[0] == 0
    assert run("verify", data)[:2] == (
        0,
        "2 samples, 0 corrupt, 0 missing, 0 repeated, 0 failed, 0 cannot be built",
    )


def test_a_folder_that_cannot_be_written(run, prepared, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    if os.geteuid():
        place.chmod(0o500)
    else:  # to root every folder is open, unless its file system is not
        try:
            command = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", place]
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("root cannot mount here")
    try:
        for directory in (place, place / "data"):
            code, _, stderr = run(*simulate(prepared, directory))
            assert code == 1
            assert str(directory) in stderr
            assert "Read-only file system" in stderr or "Permission denied" in stderr
    finally:
        if os.geteuid() == 0:
            subprocess.run(["umount", place], check=True)


def test_a_dataset_that_may_only_be_read_can_be_read(run, prepared, data, tmp_path):
    for path in data.iterdir():
        path.chmod(0o400)
    data.chmod(0o500)
    assert run("verify", data)[0] == run("info", data)[0] == 0
    assert run("merge", data, "--out", tmp_path / "merged")[0] == 0
    assert run("verify", tmp_path / "merged")[0] == 0
    data.chmod(0o700)


def test_places_that_are_not_there_or_something_else(run, prepared, data, tmp_path):
    (tmp_path / "file").touch()
    nowhere = tmp_path / ("nowhere" * 12)  # messages name the whole path, however long
    for code, arguments in (
        (2, simulate(prepared, tmp_path / "file")),
        (1, simulate(prepared, tmp_path / "file" / "below")),
        (2, ("verify", nowhere)),
        (2, ("repair", nowhere)),
        (2, ("info", nowhere)),
        (2, ("merge", nowhere, "--out", tmp_path / "out")),
        (2, ("export", nowhere, "--out", tmp_path / "out.h5")),
        (2, ("merge", data, "--out", tmp_path / "file")),
    ):
        exit_code, _, stderr = run(*arguments)
        assert exit_code == code, (arguments, stderr)
        assert str(tmp_path) in stderr
        assert "below" not in str(arguments) or "Not a directory" in stderr
    assert not nowhere.exists()


@pytest.mark.parametrize(
    "more",
    [
        ("--rank", "2", "--size", "2"),
        ("--rank", "1"),
        ("--rank", "first", "--size", "2"),
        ("--limit", "-1"),
        ("--time-limit", "-1"),
        ("--time-limit", "nan"),
    ],
)
def test_numbers_without_sense(run, prepared, data, more):
    code, _, stderr = run(*simulate(prepared, data, *more))
    assert code == 2
    assert more[0] in stderr
