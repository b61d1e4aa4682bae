"""Jobs of several ranks from memory: the weights of those from the disk, of which later epochs need nothing."""

import json

import launch
import pytest


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "ways"), [(2, 1), (4, 2)])
def test_a_job_from_memory_has_the_bits_of_one_from_the_disk(tmp_path, ranks, ways):
    ended = launch.horovodrun("tests/support/memory_ranks.py", tmp_path, ways, ranks=ranks)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    assert "every rank keeps its samples in memory" in ended.stdout
    assert ("every rank reads 1/2 of the patterns of a sample" in ended.stdout) == (ways > 1)
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(ranks)]
    assert found[0]["differ"] == []
    for rank in found:
        assert max(rank["asked"][:-1]) < 100  # bytes in the second and the third epoch; the counter itself is read
    assert found[0]["steps"] == 3 * (8 // (ranks // ways))
