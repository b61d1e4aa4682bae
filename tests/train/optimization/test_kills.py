"""A job killed at random steps ends as one that was left alone; `kills.py` has the long form."""

import json

import launch
import pytest


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "kills"), [(1, 2), (2, 2)])
def test_killed_jobs_end_as_if_left_alone_and_leave_no_temporary_file(ranks, kills, tmp_path, monkeypatch):
    launch.forked_python()  # its socket is in the folder of before
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    out = launch.script("kills.py", "--ranks", ranks, "--kills", kills, "--seed", 1)
    found = json.loads(out.splitlines()[-1])
    assert found["kills"] == kills
    assert found["equal"] == found["jobs"] >= 1
    assert list(tmp_path.iterdir()) == []
