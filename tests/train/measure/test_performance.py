"""Accounting of steps against numbers worked out by hand, and counters that start again."""

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from train.measure.performance import (
    Energy,
    PerformanceAccount,
    counter,
    energy_meter,
    spread,
    sustained_and_peak,
)


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
    assert result["wall_s"] >= 0
    assert "energy_j" not in result


def test_table_1_adds_up_with_and_without_tensor_cores():
    """Convolutions (forward, by weights, by input), NCCL, pointwise operations and copies, ms."""
    columns = {
        863.298: (220.801, 226.612, 166.337, 43.080, 107.445, 99.023),
        4086.576: (1244.597, 1436.822, 918.487, 289.217, 106.911, 90.542),
    }
    peaks = []
    for step_ms, parts in columns.items():
        assert sum(parts) == pytest.approx(
            step_ms, abs=1e-3
        )  # so nothing overlaps in a profile of the paper's
        peaks.append(sustained_and_peak(5.151e13, step_ms / 1e3, sum(parts[:3]) / 1e3).peak)
    assert peaks == pytest.approx([83.92e12, 14.31e12], rel=1e-3)
    assert peaks[0] / peaks[1] == pytest.approx(6, rel=0.03)  # "approximately 6" (section 5.3)


def test_the_sustained_rate_includes_reading_and_checkpoints():
    now = iter(
        [0.0, 50.0, 51.0, 52.0, 56.0, 57.0, 63.0]
    )  # the start, five steps, and the end of the last checkpoint
    account = PerformanceAccount(flop=2e9, batch_size=4, clock=now.__next__)
    rows = [account.add(row(1.0)) for _ in range(5)]
    account.end()
    assert [step["wall_s"] for step in rows] == [
        50,
        1,
        1,
        4,
        1,
    ]  # of the fourth, 3 s for the third's checkpoint
    result = account.summary(TwoRanks())
    walls = 1.5 * np.array([1, 1, 4, 7])  # mean of the ranks
    assert result["wall_s"] == {
        "mean": walls.mean(),
        "variance": pytest.approx(walls.var()),
        "steps": 4,
    }
    assert result["sustained_flop_per_s"] == pytest.approx(2 * 2e9 / walls.mean())
    assert result["sustained_variance"] == pytest.approx(np.var(4e9 / walls))
    assert result["efficiency"] == pytest.approx(1 - 0.15 / walls.mean())
    assert result["flop_per_s"]["median"] == pytest.approx(
        2e9 * 1.5
    )  # the median does not see checkpoints


def test_with_local_sgd_synchronisation_is_counted_apart():
    account = PerformanceAccount(flop=2e9, batch_size=4, clock=iter(range(10)).__next__)
    for sync_s in (0.5, 0.0, 0.2, 0.0, 0.4):  # the first step is left out
        account.add(row(1.0) | {"sync_s": sync_s})
    result = account.summary(TwoRanks())
    assert result["synchronisations"] == 2
    assert result["sync_s"]["median"] == pytest.approx(1.5 * 0.3)
    assert result["t_sync_s"] == pytest.approx(1.5 * 0.6 / 4)
    assert result["efficiency"] == pytest.approx(1 - (1.5 * 0.1 + result["t_sync_s"]) / 1.5)
    assert "t_sync_s" not in PerformanceAccount(flop=2e9, batch_size=4).summary(TwoRanks())


def test_the_summary_is_the_median_over_time_of_the_mean_over_ranks():
    account = PerformanceAccount(flop=2e9, batch_size=4)
    for seconds in (9.0, 1.0, 2.0, 4.0, 2.0, 2.0):  # the first builds the graph
        account.add(row(seconds))
    result = account.summary(TwoRanks())
    assert result["steps"] == 6
    assert result["samples_per_s"]["median"] == pytest.approx(4 / 2 + 4 / 4)
    assert result["step_s"] == pytest.approx({"median": 3.0, "low": 2.46, "high": 4.08})
    assert result["t_comp_s"] + result["t_comm_s"] + result["t_misc_s"] == pytest.approx(
        result["step_s"]["median"]
    )
    assert result["flop_per_s"]["median"] == pytest.approx(
        2e9 / 4 * result["samples_per_s"]["median"]
    )
    assert result["step_flop"] == 2e9
    assert "peak_flop_per_s" not in result


def test_spread_is_the_median_and_the_central_68_percent():
    result = spread(np.random.default_rng(1).normal(5, 2, 100_000))
    assert result == pytest.approx({"median": 5, "low": 3.01, "high": 6.99}, abs=0.05)


def test_a_counter_starts_again_at_its_range():
    readings = iter([90, 95, 3, 3, 99])
    joules = counter(lambda: next(readings), wrap=100, unit=0.5)
    assert [joules() for _ in range(4)] == [2.5, 6.5, 6.5, 54.5]


def rapl(folder: Path, microjoules: list[int]) -> None:
    for index, value in enumerate(microjoules):
        domain = folder / f"intel-rapl:{index}"
        domain.mkdir(exist_ok=True)
        (domain / "max_energy_range_uj").write_text("262143328850\n")
        (domain / "energy_uj").write_text(f"{value}\n")
    core_domain = folder / "intel-rapl:0:0"  # of package 0, and counted there
    core_domain.mkdir(exist_ok=True)
    (core_domain / "energy_uj").write_text("7\n")


def test_ranks_share_the_energy_of_their_nodes_processors(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    rapl(tmp_path, [10_000_000, 50_000_000])
    meters = [energy_meter(local_rank, 2, tmp_path) for local_rank in (0, 1)]
    rapl(tmp_path, [13_000_000, 50_500_000])
    assert [meter() for meter in meters] == [(None, pytest.approx(1.75))] * 2


def test_energy_of_a_gpu_counts_for_its_rank(tmp_path, monkeypatch):
    readings = {"GPU-b": iter([1000, 5000])}
    library = ModuleType("pynvml")
    library.nvmlInit = lambda: None
    library.nvmlDeviceGetCount = lambda: 2
    library.nvmlDeviceGetHandleByUUID = lambda name: name
    library.nvmlDeviceGetTotalEnergyConsumption = lambda handle: next(readings[handle])
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    assert energy_meter(1, 2, tmp_path)() == (pytest.approx(4.0), 0)


def test_energy_is_that_of_the_meters_there_are(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert energy_meter(0, 1, tmp_path) is None
    account = PerformanceAccount(
        flop=1, batch_size=1, energy=iter([Energy(None, 1.0), Energy(None, 4.0)]).__next__
    )
    assert [account.add(row(1.0))["energy_j"] for _ in range(2)] == [1.0, 3.0]
    alone = PerformanceAccount(flop=1, batch_size=1)
    assert alone.add(row(1.0)).get("energy_j") is None
    assert alone.summary(TwoRanks()) == {}  # of one step
    account = PerformanceAccount(
        flop=1, batch_size=1, energy=iter([Energy(5.0, 1.0), Energy(25.0, 4.0)]).__next__
    )
    rows = [account.add(row(1.0)) for _ in range(2)]  # that of the GPU has a column of its own
    assert [(values["energy_j"], values["energy_gpu_j"]) for values in rows] == [
        (6.0, 5.0),
        (23.0, 20.0),
    ]
