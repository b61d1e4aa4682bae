"""Merging: each sample once, checked on the way, and nothing that does not belong together."""

import os
import shutil

import fake_samples
import pytest
from crashes import killed
from fake_samples import change_a_bit, config, contents, ids_of, simulate

from namsa import InputError, WorkError
from namsa.dataset import manifest, merge
from namsa.dataset.failures import read_failures
from namsa.dataset.shard_writer import ShardWriter
from namsa.dataset.shards import Dataset, shard_path, shard_paths
from namsa.dataset.verify import verify

pytestmark = pytest.mark.usefixtures("fake_materials")


def no_thin_iron(settings, material, entry):
    if entry.id == "Fe-bcc-001-12.5A":
        raise WorkError("no thin iron")
    return simulate(settings, material, entry)


def produce(directory, rank=0, size=1, settings=None, **options):
    return fake_samples.produce(
        directory, rank, size, settings=settings, simulate=no_thin_iron, **options
    )


@pytest.fixture
def parts(tmp_path):
    """Two halves, and some of each again."""
    produce(tmp_path / "whole")
    for index in range(3):
        produce(tmp_path / f"part-{index}", index % 2, 2, limit=None if index < 2 else 3)
    produce(tmp_path / "part-2", 1, 2, limit=2)
    return [tmp_path / f"part-{index}" for index in range(3)]


def test_parts_become_the_whole(parts, tmp_path):
    reported = []
    again = len(contents(parts[2]))
    summary = merge.merge(parts, tmp_path / "out", lambda *progress: reported.append(progress))
    assert summary == {"samples": 11, "copied": 11, "present": again, "failed": 1}
    assert reported[-1] == (11 + again, 11 + again)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert (tmp_path / "out" / "manifest.jsonl").read_bytes() == (
        tmp_path / "whole" / "manifest.jsonl"
    ).read_bytes()
    result = verify(tmp_path / "out")
    assert (result["samples"], result["corrupt"], result["missing"], result["repeated"]) == (
        11,
        [],
        [],
        [],
    )
    assert result["failures"] == {"Fe-bcc-001-12.5A": "no thin iron"}
    summary = produce(tmp_path / "out")
    assert (summary["written"], summary["present"], summary["failed"]) == (0, 11, 1)


def test_merging_again_adds_nothing(parts, tmp_path):
    merge.merge(parts, tmp_path / "out")
    before = {}
    for path in (tmp_path / "out").iterdir():
        if not path.name.endswith("-lock"):
            before[path] = path.read_bytes()
    assert merge.merge(parts, tmp_path / "out")["copied"] == 0
    assert {path: path.read_bytes() for path in before} == before
    lines = (tmp_path / "out" / "failed-00000.jsonl").read_text().splitlines()
    assert (
        len(lines)
        == len(read_failures(tmp_path / "out", manifest.read_header(parts[0])["samples_hash"]))
        == 1
    )


@pytest.mark.slow
def test_killed_at_any_point_a_merge_goes_on(parts, tmp_path):
    kill_point = 0
    again = True
    expected = contents(tmp_path / "whole")
    while again:
        kill_point += 3  # all of them take long; before and after a call come in turn
        out = tmp_path / f"out-{kill_point}"
        again = killed(merge.merge, parts, out, number=kill_point)
        assert merge.merge(parts, out)["samples"] == 11
        assert contents(out) == expected
        assert verify(out)["repeated"] == []
        shutil.rmtree(out)
    assert kill_point > 20


def test_a_larger_manifest_takes_in_a_smaller_one(tmp_path):
    produce(tmp_path / "thin", settings=config(specimen={"thickness_angstrom": [12.5]}))
    produce(tmp_path / "thick", settings=config(specimen={"thickness_angstrom": [20]}))
    with pytest.raises(InputError, match="no manifest lists the samples of all 2.*--limit 0"):
        merge.merge([tmp_path / "thin", tmp_path / "thick"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    config_of_all = config(specimen={"thickness_angstrom": [12.5, 20]})
    assert (
        produce(tmp_path / "out", settings=config_of_all, limit=1)["written"] == 1
    )  # a dataset under way
    assert merge.merge([tmp_path / "thin", tmp_path / "thick"], tmp_path / "out")["copied"] == 4
    assert produce(tmp_path / "out", settings=config_of_all)["remaining"] == 0


def test_two_things_under_one_name_are_refused(parts, tmp_path):
    with Dataset(parts[1]) as data:
        wrong = data.ids[1]
        record = data.read_bytes(data.ids[0])
    shard_paths(parts[2])[0].unlink()
    shard_path(parts[2], 1).unlink(missing_ok=True)
    with ShardWriter(shard_path(parts[2], 0)) as writer:
        writer.put(wrong, record)
    with pytest.raises(InputError, match=f"{wrong} differs between .*part-2 and .*out"):
        merge.merge(parts, tmp_path / "out")


def test_what_does_not_belong_together_is_refused(parts, tmp_path):
    produce(tmp_path / "other", settings=config(microscope={"energy_ev": 100e3}))
    with pytest.raises(
        InputError,
        match=r"different configurations do not go together: .* in .*part-0, .* in .*other",
    ):
        merge.merge([parts[0], tmp_path / "other"], tmp_path / "out")
    with pytest.raises(InputError, match="is one of the datasets"):
        merge.merge(parts, parts[0] / ".." / "part-1")
    with pytest.raises(InputError, match="no manifest in .*other"):
        merge.merge(parts, tmp_path / "other")
    with pytest.raises(InputError, match=r"there is no .*nowhere"):
        merge.merge([tmp_path / "nowhere"], tmp_path / "out")
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(InputError, match=r"there is no .*circle"):
        merge.merge([tmp_path / "circle"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_damaged_record_is_not_passed_on(parts, tmp_path):
    path = shard_paths(parts[1])[0]
    change_a_bit(path, ids_of(path)[2])
    with pytest.raises(WorkError, match=r"in .*part-1.*checksum"):
        merge.merge(parts, tmp_path / "out")
    assert contents(tmp_path / "out").items() <= contents(tmp_path / "whole").items()
    os.truncate(path, 9000)
    with pytest.raises(WorkError, match=r"part-1.*namsa repair"):
        merge.merge(parts, tmp_path / "out")
