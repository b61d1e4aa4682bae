"""A job of two ranks from memory, or with parts from HDF5: the weights of that from the disk.

Later epochs from memory need nothing of the disk.
"""

import launch
import pytest


@pytest.mark.slow
def test_a_job_from_memory_has_the_bits_of_one_from_the_disk(tmp_path):
    found, printed = launch.on_ranks("memory_ranks.py", tmp_path, 1)
    assert "every rank keeps its samples in memory" in printed
    assert found[0]["differ"] == []
    for rank in found:
        assert max(rank["asked"][:-1]) < 100  # bytes in the second and the third epoch; the counter itself is read
    assert found[0]["steps"] == 3 * 4


@pytest.mark.slow
def test_a_job_with_parts_from_hdf5_has_the_bits_of_one_with_parts_from_the_dataset(tmp_path):
    found, printed = launch.on_ranks("memory_ranks.py", tmp_path, 2, "hdf5")
    assert "parts of samples are read from" in printed
    assert found[0]["differ"] == []
