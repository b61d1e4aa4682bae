"""Performance in the report: rates, a profile's table and timeline, and power over time, from files
made by hand.
"""

import io
import json

import numpy as np
import pytest
from rich.console import Console
from run_files import SPREAD, TIMES, write_metrics

from namsa.base.errors import InputError
from train.measure.profile_results import read_profile
from train.profiling.tables import show, write
from train.reports.figures import time_figure, time_parts
from train.reports.performance_section import NOT_MEASURED, performance, power, power_figure
from train.reports.timeline_figure import timeline_figure
from train.tasks.reporting import write_report

SUMMARY = TIMES | {
    "samples_per_s": SPREAD,
    "step_s": SPREAD,
    "wall_s": {"mean": 0.5, "variance": 0.01, "steps": 1200},
    "step_flop": 2e9,
    "efficiency": 0.8,
    "sustained_flop_per_s": 16e9,
    "sustained_variance": 4e18,
    "flop_per_s": SPREAD,
    "memory_mib_per_rank": 1234.0,
}


def profile(**more):
    kinds = []
    for kind in ("convolution forward", "pointwise", "reduction", "idle"):
        kinds.append({"kind": kind, "calls": 3, "seconds": 0.1, "share": 0.25, "operation_s": 0.1})
    kinds[0]["flop_per_s"] = 1e10
    bars = [
        {"row": "tf_Compute 7", "bars": [(0.0, 0.1, 0), (0.2, 0.1, 1), (0.3, 0.05, 0)]},
        {"row": "reduction", "bars": [(0.1, 0.2, 2)]},
    ]
    return {
        "name": "made <b>",
        "data": "random",
        "device": "CPU",
        "machine": "Z80 <i>",
        "ranks": 4,
        "steps": 5,
        "step_flop": 2e9,
        "step_s": 0.4,
        "profiled_step_s": 0.45,
        "convolutions_s": 0.2,
        "kinds": kinds,
        "algorithms": [],
        "operations": [],
        "timeline": bars,
        "timeline_s": 0.4,
        "spread": [],
    } | more


def columns(**values):
    count = len(values["step_s"])
    missing = {name: np.full(count, np.nan) for name in ("wall_s", "flop_per_s", "energy_j")}
    return missing | {name: np.array(numbers, float) for name, numbers in values.items()}


def test_sustained_has_its_window_and_peak_needs_a_profile():
    words = performance({"ranks": 4, "performance": SUMMARY}, None)
    assert words["sustained FLOP/s of the convolutions, all ranks"] == (
        "1.6e+10, standard deviation 2e+09, variance 4e+18, over 1,200 steps; with reading and "
        "checkpoints"
    )
    assert words["peak FLOP/s of the convolutions, all ranks"] == NOT_MEASURED
    assert words["memory of rank 0"] == "1,234 MiB"
    fewer = SUMMARY | {"wall_s": {"mean": 0.5, "variance": 0.01, "steps": 999}}
    caption = performance({"ranks": 4, "performance": fewer}, None)[
        "sustained FLOP/s of the convolutions, all ranks"
    ]
    assert "over 999 steps, fewer than the 1,000 of Laanait et al. (2019)" in caption


def test_peak_is_that_of_the_profiles_convolutions_times_the_efficiency():
    peak = performance({"ranks": 4, "performance": SUMMARY}, profile())[
        "peak FLOP/s of the convolutions, all ranks"
    ]
    assert peak.startswith(
        f"{4 * 2e9 / 0.2 * 0.8:.4g}: 4 × FLOP / 200 ms of convolutions × efficiency 0.800"
    )
    other = performance({"ranks": 4, "performance": SUMMARY}, profile(step_flop=3e9))
    assert "of another size" in other["peak FLOP/s of the convolutions, all ranks"]


def test_local_sgd_has_its_synchronisations_in_the_facts_and_in_the_picture():
    label = "synchronisation (local SGD)"
    assert label not in performance({"performance": SUMMARY}, None)
    local = SUMMARY | {"sync_s": SPREAD, "t_sync_s": 0.25, "synchronisations": 7}
    words = performance({"performance": local}, None)[label]
    assert words == "7 in these steps, 2 s, 68% between 1 and 3; 0.25 s per step (mean)"
    steps = columns(step=range(1, 5), step_s=[1.0] * 4, comm_s=[0.1] * 4, data_s=[0.2] * 4)
    assert {name: shares[0] for name, shares in time_parts(steps).items()} == pytest.approx(
        {"computing": 0.7, "communication": 0.1, "waiting for data": 0.2}
    )
    steps["sync_s"] = np.array([0.0, 0.4, 0.0, 0.4])
    parts = time_parts(steps)
    assert parts["synchronisation"].tolist() == [0.0, 0.4, 0.0, 0.4]
    np.testing.assert_allclose(sum(parts.values()), steps["step_s"])
    labels = [text.get_text() for text in time_figure(steps).axes[0].get_legend().get_texts()]
    assert labels == list(parts)


def test_a_profile_of_local_sgd_says_its_phases_and_what_it_averages(tmp_path):
    phases = [{"phase": "synchronisation", "seconds": 0.02, "share": 0.05}]
    facts = {"configured": "epoch", "every": 5, "sent_bytes": 4_000_000, "seconds": 0.1}
    made = profile(phases=phases, synchronisation=facts)
    write_metrics(tmp_path, range(1, 5))
    (tmp_path / "profile.json").write_text(json.dumps(made))
    page = write_report(tmp_path).read_text()
    assert (
        "By phase of the step: synchronisation 20 ms. Local SGD averages 4 MB in 100 ms, here "
        "after every 5" in page
    )
    out = io.StringIO()
    show(made, Console(file=out, width=200))
    assert "local SGD averages 4 MB once an epoch: 100.000 ms each time" in out.getvalue()
    assert "Time by phase of the step" in out.getvalue()


def test_a_summary_of_version_0_1_claims_no_peak():
    old = TIMES | {"samples_per_s": SPREAD, "step_s": SPREAD, "memory_mib_per_rank": 100.0}
    old |= {"sustained_flop_per_s": 1e9, "peak_flop_per_s": 2e9}
    words = performance({"performance": old}, profile())
    assert (
        words["sustained FLOP/s of the convolutions, all ranks"]
        == "1e+09 (median step, without checkpoints)"
    )
    assert words["peak FLOP/s of the convolutions, all ranks"] == NOT_MEASURED


def test_power_is_energy_over_the_time_from_step_to_step():
    steps = columns(
        step_s=[1, 1, 2, 2, 2],
        wall_s=[9, 2, 2, 4, np.nan],  # the last row is of version 0.1
        flop_per_s=[1, 50, 50, 50, 50],
        energy_j=[7, 100, np.nan, 100, 100],
    )
    drawn = power(steps)
    assert drawn.watts.tolist() == [50, 25, 50]
    assert drawn.flop_per_joule.tolist() == [0.5, 1, 1]
    assert np.isnan(drawn.gpu_watts).all()
    assert drawn.seconds.tolist() == [2, 6, 8]
    above, below = power_figure(drawn).axes
    assert above.lines[0].get_ydata().tolist() == [50, 25, 50]
    assert below.get_xlabel() == "time in steps, s"
    assert len(above.lines) == 1
    assert power(columns(step_s=[1, 1])) is None
    assert power({"step_s": np.ones(3)}) is None


def test_the_power_of_the_gpu_is_drawn_beside_that_of_the_processors():
    steps = columns(
        step_s=[1] * 3,
        wall_s=[1, 2, 4],
        flop_per_s=[1] * 3,
        energy_j=[9, 600, 1200],
        energy_gpu_j=[0, 500, 900],
    )
    drawn = power(steps)
    assert drawn.gpu_watts.tolist() == [250, 225]
    lines = power_figure(drawn).axes[0].lines
    assert [line.get_label() for line in lines] == ["all", "GPU", "processors"]
    assert lines[2].get_ydata().tolist() == [50, 75]


def test_the_timeline_has_a_row_per_thread_and_bars_by_kind():
    figure = timeline_figure(profile())
    (ax,) = figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["thread 1", "reduction"]
    widths = []
    for bars in ax.collections:
        for path in bars.get_paths():
            widths.append(path.get_extents().width)
    assert widths == pytest.approx([100, 50, 100, 200])  # ms, by row and kind
    assert ax.get_legend().get_texts()[0].get_text() == "convolution forward 25.0%"


def test_a_profile_in_a_runs_folder_is_in_its_report(tmp_path):
    write_metrics(tmp_path, range(1, 5), wall_s=0.6, flop_per_s=4e9, energy_j=30.0)
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert "No profile." in page
    assert "50 W (median)" in page
    written = write(profile(), tmp_path)
    assert written == [tmp_path / name for name in ("profile.json", "timeline.png", "report.html")]
    page = written[-1].read_text(encoding="utf-8")
    assert "convolution forward" in page
    assert "5 steps on random data" in page
    assert "Z80 &lt;i&gt;" in page
    assert read_profile(tmp_path / "profile.json")["step_flop"] == 2e9


def test_without_a_meter_there_is_no_power_in_the_report(tmp_path):
    write_metrics(tmp_path, range(1, 5))
    assert "(median)" not in write_report(tmp_path).read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["[]", '{"name": "a"}', "{"])
def test_another_file_is_no_profile(tmp_path, text):
    (tmp_path / "profile.json").write_text(text)
    with pytest.raises(InputError, match=r"profile\.json"):
        read_profile(tmp_path / "profile.json")
