"""Work that does not fit into the memory is refused with the numbers."""

import resource

import pytest

from namsa.errors import InputError
from namsa.memory import available_memory_bytes, check_memory_for


def test_work_that_does_not_fit_is_refused_with_the_numbers():
    check_memory_for(10**9, "a grid", "use a smaller one", available_bytes=10**9)
    with pytest.raises(InputError, match=r"a grid: 2\.0 GB of memory, and 1\.0 GB are available: use a smaller one"):
        check_memory_for(2 * 10**9, "a grid", "use a smaller one", available_bytes=10**9)
    with pytest.raises(MemoryError):  # on a machine with more memory it can be done
        check_memory_for(1e18, "a grid", "use a smaller one")


def test_the_limit_on_the_address_space_counts(monkeypatch):
    free = available_memory_bytes()
    assert 10**8 < free < 10**14
    monkeypatch.setattr(resource, "getrlimit", lambda _: (10**6, 10**6))
    assert available_memory_bytes() == 0
