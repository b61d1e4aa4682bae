"""Accounting of steps against numbers worked out by hand, and counters that start again."""

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from train.measure.performance import PerformanceAccount, counter, energy_meter, spread


class TwoRanks:
    """The other rank takes twice as long for everything."""

    def size(self):
        return 2

    def total(self, array):
        return np.asarray(array) * (1.5 if np.ndim(array) == 1 else 3.0)


def row(seconds):
    return {
        "step_s": seconds,
        "compute_s": 0.6 * seconds,
        "comm_s": 0.1 * seconds,
        "misc_s": 0.3 * seconds,
        "data_s": 0,
    }


def test_a_row_says_what_the_rank_sustained():
    result = PerformanceAccount(flop=2e9, batch_size=4).add(row(0.5))
    assert result["flop_per_s"] == 4e9
    assert result["step_s"] == 0.5
    assert result["memory_mib"] > 10
    assert "energy_j" not in result


def test_the_summary_is_the_median_over_time_of_the_mean_over_ranks():
    account = PerformanceAccount(flop=2e9, batch_size=4)
    for seconds in (9.0, 1.0, 2.0, 4.0, 2.0, 2.0):  # the first builds the graph
        account.add(row(seconds))
    result = account.summary(TwoRanks())
    assert result["steps"] == 6
    assert result["samples_per_s"]["median"] == pytest.approx(4 / 2 + 4 / 4)
    assert result["step_s"] == pytest.approx({"median": 3.0, "low": 2.46, "high": 4.08})
    assert result["t_comp_s"] + result["t_comm_s"] + result["t_misc_s"] == pytest.approx(result["step_s"]["median"])
    assert result["sustained_flop_per_s"] == pytest.approx(2 * 2e9 / 3)
    assert result["peak_flop_per_s"] == pytest.approx(2 * 2e9 / 1.8)


def test_too_few_steps_have_no_summary():
    account = PerformanceAccount(flop=1, batch_size=1)
    account.add(row(1.0))
    assert account.summary(TwoRanks()) == {}


def test_spread_is_the_median_and_the_central_68_percent():
    result = spread(np.random.default_rng(1).normal(5, 2, 100_000))
    assert result == pytest.approx({"median": 5, "low": 3.01, "high": 6.99}, abs=0.05)


def test_a_counter_starts_again_at_its_range():
    readings = iter([90, 95, 3, 3, 99])
    joules = counter(lambda: next(readings), wrap=100, unit=0.5)
    assert [joules() for _ in range(4)] == [2.5, 6.5, 6.5, 54.5]


def rapl(folder: Path, microjoules: list[int]) -> None:
    for number, value in enumerate(microjoules):
        domain = folder / f"intel-rapl:{number}"
        domain.mkdir(exist_ok=True)
        (domain / "max_energy_range_uj").write_text("262143328850\n")
        (domain / "energy_uj").write_text(f"{value}\n")
    part = folder / "intel-rapl:0:0"  # of package 0, and counted there
    part.mkdir(exist_ok=True)
    (part / "energy_uj").write_text("7\n")


def test_energy_of_a_nodes_processors_counts_for_its_first_rank(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    rapl(tmp_path, [10_000_000, 50_000_000])
    first = energy_meter(0, tmp_path)
    assert energy_meter(1, tmp_path) is None
    rapl(tmp_path, [13_000_000, 50_500_000])
    assert first() == pytest.approx(3.5)


def test_energy_of_a_gpu_counts_for_its_rank(tmp_path, monkeypatch):
    readings = {"GPU-b": iter([1000, 5000])}
    library = ModuleType("pynvml")
    library.nvmlInit = lambda: None
    library.nvmlDeviceGetCount = lambda: 2
    library.nvmlDeviceGetHandleByUUID = lambda name: name
    library.nvmlDeviceGetTotalEnergyConsumption = lambda handle: next(readings[handle])
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    assert energy_meter(1, tmp_path)() == pytest.approx(4.0)


def test_without_meters_there_is_no_energy(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert energy_meter(0, tmp_path) is None
    account = PerformanceAccount(flop=1, batch_size=1, energy=iter([1.0, 4.0]).__next__)
    assert [account.add(row(1.0))["energy_j"] for _ in range(2)] == [1.0, 3.0]
    assert PerformanceAccount(flop=1, batch_size=1).add(row(1.0)).get("energy_j") is None
