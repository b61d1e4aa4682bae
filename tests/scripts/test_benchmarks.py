"""Parts of benchmarks: the data curve's jobs, planted defects, pretended ranks, and layouts of networks."""

import json

import data_curve
import layouts
import numpy as np
import paper_layout
import planted
import planted_cases
import pytest
import rehearse
from paths import ROOT
from rehearsal import watchdog

from fcdensenet.count import count
from namsa.inverse.excess import Excess
from namsa.pixels import PixelGrid
from train.experiment.experiment import load
from train.optimization.loop import learning_rate
from train.optimization.losses import huber_delta

CONFIG = ROOT / "configs/quickstart.yaml"  # 30 epochs, batches of 2


def overridden(samples, ranks, steps):
    changes = data_curve.stretched(load(CONFIG), samples, ranks, steps)
    return load(CONFIG, [f"{key}={value}" for key, value in changes.items()]).training


def test_fewer_samples_take_as_many_steps():
    for samples, ranks in ((40, 1), (80, 1), (320, 1), (80, 2), (320, 4)):
        training = overridden(samples, ranks, 1200)
        assert training.samples == samples
        an_epoch = samples // ranks // training.batch_size
        assert abs(training.epochs * an_epoch - 1200) <= an_epoch / 2


def test_rates_and_losses_are_those_of_the_same_step():
    few, many = overridden(40, 1, 1200), overridden(320, 1, 1200)
    steps = np.array([5, 30, 200, 400, 700, 1100])

    def rates(training, an_epoch):
        return [learning_rate(training.schedule, 1.0, 1, step / an_epoch) for step in steps]

    assert rates(few, 20) == pytest.approx(rates(many, 160), rel=0.05)
    deltas = [huber_delta(training.loss, training.epochs) for training in (few, many)]
    assert deltas[0] == pytest.approx(deltas[1])
    assert deltas[0] == pytest.approx(huber_delta(load(CONFIG).training.loss, 30))


def test_too_few_samples_for_the_ranks_are_refused():
    with pytest.raises(SystemExit, match="3 samples are too few for 2 ranks"):
        data_curve.stretched(load(CONFIG), 3, 2, 100)


def test_the_error_of_the_mean_is_over_materials_of_the_reported_split():
    rows = [{"split": "test", "mae": 1.0}, {"split": "test", "mae": 3.0}, {"split": "dev", "mae": 99.0}]
    assert data_curve.standard_error({"split": "test", "by_material": rows}, "mae") == pytest.approx(1.0)
    assert data_curve.standard_error({"split": "dev", "by_material": rows}, "mae") == 0


def test_a_find_is_the_largest_excess_near_the_defect_over_its_error():
    pixels, weights, amount = PixelGrid((0.4, 0.5), (0.0, 0.0)), np.full((3, 3), 1 / 3), np.ones((20, 18))
    amount[5, 8] = -7.0
    found, error = Excess(amount, amount / 2, pixels), np.full((20, 18), 4.0)
    row = planted.scores(found, error, weights, (2.0, 4.4))
    assert row["electrons"] == -7.0
    assert row["spread"] == {"score": 3.5, "near": True, "at_site": 3.5, "beyond_2": pytest.approx(1 / 360)}
    assert row["error"]["score"] == pytest.approx(7 / 12)  # of nine pixels alike, with a third each
    far = planted.scores(found, None, weights, (6.0, 4.4))
    assert not far["spread"]["near"]
    assert far["electrons"] == 1.0


def test_the_area_counts_a_find_at_the_wrong_place_as_missed():
    def rows(scores, near=True):
        return [{"spread": {"score": score, "near": near}} for score in scores]

    without = rows([1.0, 2.0, 3.0, 4.0])
    assert planted.curve(rows([5.0, 5.0]), without, "spread") == {"area": 1.0, "found": 1.0}
    assert planted.curve(rows([5.0, 5.0], near=False), without, "spread") == {"area": 0.0, "found": 0.0}
    assert planted.curve(rows([5.0, 2.5]), without, "spread") == {"area": 0.75, "found": 0.5}


def test_a_defect_changes_one_atom_of_the_same_thermal_snapshot():
    made = planted_cases.specimens(planted_cases.CRYSTALS[0], 0)
    (perfect, *_), sums = made.snapshots[None], {}
    for kind in planted_cases.KINDS:
        snapshot = made.snapshots[kind][0]
        sums[kind] = snapshot.numbers.sum() - perfect.numbers.sum()
        kept = np.delete(perfect.positions, 0, axis=0)[-5:]
        assert np.isin(kept, snapshot.positions).all()
    assert sums == made.electrons == {"vacancy": -38, "dopant": 18, "adatom": 78, "adatom on a column": 78}


@pytest.mark.slow
def test_the_watchdog_of_27600_ranks_says_nothing_false_and_names_the_one_that_is_silent():
    found = watchdog.rehearse(27_600, seconds=2.0, warning_s=5.0)
    assert (found["false warnings"], found["dead rank named"]) == (0, "yes")


@pytest.mark.slow
def test_what_rank_0_does_grows_no_faster_than_the_number_of_ranks(capsys, monkeypatch):
    parts = ["start", "agreement", "signal", "preflight"]
    monkeypatch.setattr("sys.argv", ["rehearse.py", "--json", "--ranks", "6", "1536", "--parts", *parts])
    rehearse.main()
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["too_fast"] == []
    assert found["results"]["start: nodes and configuration agreed"]["1536"]["nodes"] == 256
    preflight = found["results"]["preflight: reports of all ranks"]["1536"]
    assert (preflight["faults"], preflight["most in a folder"], preflight["read by rank 0"]) == (0, 78, 79)


@pytest.mark.parametrize("arm", layouts.ARMS)
def test_every_arm_is_valid_and_of_the_benchmarks_size(arm):
    reference = count(load(layouts.CONFIG).network).parameters
    experiment = load(layouts.CONFIG, layouts.overrides(arm, []))
    assert abs(count(experiment.network).parameters / reference - 1) < 0.05


@pytest.mark.parametrize("arm", paper_layout.ARMS)
def test_the_papers_layout_has_a_whole_scan_from_a_fixed_origin_and_a_growth_of_a_quarter(arm):
    experiment = load(paper_layout.CONFIG, paper_layout.ARMS[arm])
    patterns = experiment.pattern_shape()
    assert (experiment.scan.origin_angstrom, experiment.scan.step_angstrom) == ((0, 0), None)
    assert patterns[:2] == patterns[2:] == experiment.network.input_shape[1:]
    assert 4 * experiment.network.growth >= patterns[0] * patterns[1]
    assert 4 * experiment.network.first_filters >= patterns[0] * patterns[1]
