"""Datasets that others have changed: one line, and after `namsa repair` no damage is left."""

import json
import os
import shutil
from pathlib import Path

import fake_samples
import pytest
from hostile_files import COMMANDS, replace_file

from namsa import InputError, WorkError
from namsa.dataset import listing, manifest
from namsa.dataset.shard_writer import ShardWriter
from namsa.dataset.shards import Dataset, Shard, shard_path
from namsa.dataset.verify import verify

QUICKSTART = Path(__file__).parents[3] / "configs/quickstart.yaml"
EVIL_IDS = [
    "../../evil",
    "/tmp/namsa-evil",
    "a/b",
    ".",
    "..",
    "x" * 400,
    "a\nb",
    "\u202e",
    "<script>",
]


def replace_first(directory, change, sample_id=None):
    """Changes the header, or the id, of the record of a manifest's first entry; returns the id that
    it had.
    """
    path = shard_path(directory, 0)
    first_id = manifest.read(directory)[0].id
    with Shard(path) as shard:
        stored = {name: shard.read_bytes(name) for name in shard.ids}
    path.unlink()
    with ShardWriter(path) as writer:
        for name, other in stored.items():
            writer.put(
                sample_id if sample_id and name == first_id else name,
                fake_samples.signed(other, change) if name == first_id else other,
            )
    return first_id


# ---- Ids


@pytest.mark.parametrize("sample_id", EVIL_IDS)
def test_an_id_that_is_no_name_becomes_no_path_and_is_moved_aside(d, run, tmp_path, sample_id):
    lost = replace_first(d, lambda header: header["provenance"].update(id=sample_id), sample_id)
    before = sorted(tmp_path.rglob("*"))
    for command in ("show", "export", "info", "merge"):
        code, line = run(COMMANDS[command])
        assert (code, "which names no sample" in line, "namsa repair d" in line) == (1, True, True)
    shutil.rmtree("m", ignore_errors=True)
    assert sorted(tmp_path.rglob("*")) == before
    assert not os.path.lexists("/tmp/namsa-evil.png")
    assert verify(d)["corrupt"] == [sample_id]
    code, line = run(COMMANDS["verify"])
    assert code == 1
    assert "`namsa repair d` moves" in line
    assert "`namsa dataset CONFIG --out d` simulates them again" in line
    assert run(COMMANDS["repair"]) == (0, "")
    assert run(COMMANDS["verify"]) == (
        0,
        "`namsa dataset CONFIG --out d` simulates what is missing\n",
    )
    assert verify(d)["missing"] == [lost]


@pytest.mark.parametrize("sample_id", EVIL_IDS)
def test_show_of_an_id_that_is_not_there_writes_nothing(d, run, tmp_path, sample_id):
    before = sorted(tmp_path.rglob("*"))
    code, _ = run(["show", f"d/{sample_id}"])
    assert code in (0, 2) if sample_id == "." else code == 2
    assert [
        path
        for path in sorted(tmp_path.rglob("*"))
        if path not in before and path.parent.name != "work"
    ] == []


def test_a_crystal_whose_name_is_none_is_refused_with_the_remedy(tmp_path, monkeypatch):
    crystal = fake_samples.MATERIALS[0]
    for name in ("../evil", ".hidden", "x" * 200):
        material = type(crystal)(name, crystal.formula, crystal.space_group, crystal.atoms, "test")
        monkeypatch.setattr(
            listing, "select_materials", lambda *_, material=material, **__: (material,)
        )
        with pytest.raises(InputError, match=r"is named .*rename the crystal"):
            fake_samples.produce(tmp_path / "d")


# ---- Records


def changed(*path_and_value):
    *path, key, value = path_and_value

    def change(header):
        for name in path:
            header = header[name]
        if value is KeyError:
            del header[key]
        else:
            header[key] = value

    return change


HEADERS = [
    changed("arrays", KeyError),
    changed("arrays", []),
    changed("arrays", "density", KeyError),
    changed("arrays", "more", {}),
    changed("arrays", "cbed", "x"),
    changed("arrays", "cbed", "dtype", KeyError),
    changed("arrays", "cbed", "dtype", "O"),
    changed("arrays", "density", "dtype", ["<f4"]),
    changed("arrays", "cbed", "shape", [-1, 5, 7]),
    changed("arrays", "cbed", "shape", [0, 5, 7]),
    changed("arrays", "cbed", "shape", [210]),
    changed("arrays", "cbed", "shape", [10**30, 5, 7]),
    changed("arrays", "cbed", "shape", [2**30, 5, 7]),
    changed("arrays", "density", "offset", -64),
    changed("arrays", "density", "offset", 2**40),
    changed("arrays", "cbed", "scale", 0),
    changed("arrays", "cbed", "scale", "1"),
    changed("arrays", "cbed", "scale", float("inf")),
    changed("provenance", [1]),
    changed("provenance", KeyError),
]


PROVENANCES = {
    "grid_shape": [
        changed("provenance", "grid_shape", KeyError),
        changed("provenance", "grid_shape", [8]),
    ],
    "semiangle_mrad": [changed("provenance", "semiangle_mrad", KeyError)],
    "extent_angstrom": [changed("provenance", "extent_angstrom", ["16", None])],
    "detector_sampling_mrad": [changed("provenance", "detector_sampling_mrad", [0, 1e300])],
    "scan_shape": [changed("provenance", "scan_shape", json.loads("[" * 31 + "]" * 31))],
    "energy_ev": [changed("provenance", "energy_ev", {"a": 1})],
    "64 levels": [changed("provenance", "more", json.loads("[" * 101 + "]" * 101))],
    "10000000": [changed("provenance", "more", 10**30)],
}
BAD = [("record is damaged", change) for change in HEADERS]
BAD += [(key, change) for key, changes in PROVENANCES.items() for change in changes]


@pytest.mark.slow
@pytest.mark.parametrize(("message", "change"), BAD)
def test_what_namsa_does_not_write_is_named_and_repair_removes_it(d, run, message, change):
    bad = replace_first(d, change)
    is_header = message == "record is damaged"
    for words in (
        ["show", f"d/{bad}"],
        COMMANDS["export"],
        *([] if is_header else [COMMANDS["info"]]),
    ):
        code, line = run(words)
        assert (code, bad in line, message in line) == (1 if is_header else 2, True, True), line
    assert not os.path.lexists("o.h5")
    assert verify(d)["corrupt"] == [bad]
    assert run(COMMANDS["repair"])[0] == 0
    assert (verify(d)["corrupt"], verify(d)["missing"]) == ([], [bad])
    assert run(COMMANDS["export"])[0] == 0


def test_numbers_that_are_not_finite_are_not_drawn(d):
    with Dataset(d) as dataset:
        read = dataset.read_sample(dataset.ids[0])
    read.density[0, 0] = float("nan")
    with pytest.raises(InputError, match="density with numbers that are not finite"):
        read.show()


# ---- What takes the place of a shard


@pytest.mark.parametrize(
    "kind", ["folder", "link to nothing", "link to itself", "pipe", "zeros", "text", "half"]
)
def test_what_is_no_shard_is_moved_aside(d, run, kind):
    path = shard_path(d, 0)
    match kind:
        case "half":
            os.truncate(path, path.stat().st_size // 2)
        case "zeros":
            path.write_bytes(bytes(40_000))
        case "text":
            path.write_text("shard\n" * 5000)
        case _:
            replace_file(path, kind)
    for command in ("show", "export", "info", "merge"):
        code, line = run(COMMANDS[command])
        assert (code, "shard-00000.lmdb" in line) == (1, True), line
        assert kind != "half" or "namsa repair d" in line
    if kind in ("zeros", "text"):
        with pytest.raises(WorkError, match=r"shard-00000\.lmdb is damaged"):
            ShardWriter(path)
    shutil.rmtree("m", ignore_errors=True)
    assert not os.path.lexists("o.h5")
    assert (verify(d)["corrupt"], len(verify(d)["missing"])) == (["shard-00000.lmdb"], 12)
    assert run(COMMANDS["repair"])[0] == 0
    assert verify(d)["corrupt"] == []
    assert os.path.lexists("d/quarantine-0/shard-00000.lmdb")
    assert run(COMMANDS["verify"])[0] == 0


# ---- Output


@pytest.mark.parametrize("name", ["shard-00000.lmdb", "manifest.jsonl"])
def test_export_replaces_no_file_of_the_dataset(d, run, name):
    path = d / name
    before = path.read_bytes()
    code, line = run(["export", "d", "--out", f"d/{name}"])
    assert (code, "is a file of the dataset" in line) == (2, True)
    assert path.read_bytes() == before
    for _ in range(2):
        assert run(["export", "d", "--out", "d/all.h5"])[0] == 0


def test_a_picture_that_fails_leaves_no_file(d, run):
    for out, expected, reason in (
        ("p.nothing", 2, "does not end as a picture"),
        ("nowhere/p.png", 2, "there is no folder"),
        ("nowhere/p.html", 2, "there is no folder"),
    ):
        code, line = run(["show", "d", "--out", out])
        assert (code, reason in line) == (expected, True), line
        assert not os.path.lexists(out)
    assert os.listdir() == ["d"]


def test_a_picture_or_a_preview_replaces_no_input(d, run):
    assert run(["export", "d", "--out", "x.h5"])[0] == 0
    os.rename("x.h5", "stack.png")
    Path("page.html").hardlink_to("stack.png")
    shutil.copy(QUICKSTART, "setup.png")
    Path("soft.h5").symlink_to(d / "shard-00000.lmdb")
    kept = {name: Path(name).read_bytes() for name in ("stack.png", "setup.png", "soft.h5")}
    for words in (
        ["show", "stack.png", "--out", "stack.png"],
        ["show", "stack.png", "--out", "page.png", "--html"],
        ["export", "d", "--out", "soft.h5"],
        ["simulate", "setup.png", "--out", "setup.h5"],
    ):
        code, line = run(words)
        assert (code, "would replace" in line) == (2, True), line
    for words in (
        ["export", "d", "--out", ""],
        ["export", "d", "--out", "d"],
        ["show", "d", "--out", ".."],
    ):
        code, line = run(words)
        assert (code, "name" in line) == (2, True), line
    assert kept == {name: Path(name).read_bytes() for name in kept}
