"""Crashes of the factory: `crashes.py` says what is checked after each. CRASHES=5 makes five times
as many.
"""

import os
import shutil
import subprocess

import crashes
import full_disks
import power_cuts
import pytest

from namsa import WorkError
from namsa.dataset import disk_space, listing

pytestmark = pytest.mark.slow  # kills
TIMES = int(os.environ.get("CRASHES", "1"))


@pytest.fixture
def reference(tmp_path, monkeypatch):
    monkeypatch.setattr(listing, "select_materials", lambda *_, **__: crashes.MATERIALS)
    monkeypatch.setattr(disk_space, "SAMPLED", 0)
    return crashes.Reference(tmp_path / "undisturbed")


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    if not shutil.which("gcc"):
        pytest.skip("what watches the writes is compiled with gcc, which is not here")
    work = tmp_path_factory.mktemp("work")
    return power_cuts.record(work / "recorded", work)


def test_killed_at_any_instant_nothing_is_lost_and_nothing_made_twice(reference, tmp_path):
    done = crashes.kill_many(reference, tmp_path, kills=40 * TIMES, seed=1)
    assert done["at points"] > 5
    assert done["at times"] > 2


def test_cut_off_from_power_nothing_is_lost_and_nothing_made_twice(reference, log, tmp_path):
    assert {event[0] for event in log} >= set("CWSDFLR")
    kept = power_cuts.cut_many(reference, log, tmp_path, cuts=60 * TIMES, seed=1)
    assert min(kept) == 0
    assert max(kept) == 10


def test_a_disk_that_syncs_nothing_is_noticed(reference, log, tmp_path):
    """The test above can fail."""
    lost = 0
    for seed in range(20):
        (tmp_path / str(seed)).mkdir()
        try:
            power_cuts.cut_many(
                reference, log, tmp_path / str(seed), cuts=1, seed=seed, honest=False
            )
        except (AssertionError, WorkError):
            lost += 1
    assert lost > 5


def test_files_that_may_not_grow_end_a_run_with_what_was_committed(reference, tmp_path):
    assert full_disks.fill_many(reference, tmp_path, runs=8 * TIMES, seed=1) > 2


def test_a_full_disk_ends_a_run_with_what_was_committed(reference, tmp_path):
    try:
        (tmp_path / "try").mkdir()
        full_disks.memory_disk(tmp_path / "try", 4096)
        full_disks.memory_disk(tmp_path / "try", 0)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a small disk needs root")
    assert (
        full_disks.fill_many(
            reference, tmp_path, runs=8 * TIMES, seed=1, disk=full_disks.memory_disk
        )
        > 2
    )
