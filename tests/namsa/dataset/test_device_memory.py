"""The factory frees the memory of a GPU when its samples are made."""

import sys
from unittest.mock import MagicMock

import pytest
from fake_samples import produce

pytestmark = pytest.mark.usefixtures("fake_materials")


def test_after_a_simulation_the_memory_of_the_gpu_is_free_for_training(tmp_path, monkeypatch):
    cupy = MagicMock()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    produce(tmp_path, limit=1)
    cupy.get_default_memory_pool().free_all_blocks.assert_called_once()


def test_cupy_without_a_device_has_no_memory_to_free(tmp_path, monkeypatch):
    cupy = MagicMock()
    cupy.cuda.runtime.getDeviceCount.side_effect = RuntimeError("insufficient driver")
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    produce(tmp_path, limit=1)
    cupy.fft.config.get_plan_cache.assert_not_called()
