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
from namsa.inverse.columns import atom_density
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


EDGE, ATOMS, STRONTIUM = 3.9, 5, 38
PIXELS = PixelGrid((0.39, 0.41), (0.0, 0.0))
SHAPE = (30, 34)
SITE = (3 * EDGE / 2, 3 * EDGE / 2)


def lattice(missing: float) -> np.ndarray:
    """Columns of five atoms of strontium, one of which has lost some; e/Å²."""
    y, x = PIXELS.coordinates(SHAPE)
    r = np.linspace(0, 8, 800)
    profile = STRONTIUM * atom_density(r, STRONTIUM, planted.OPTICS.max_q, planted.VIBRATION)
    image = np.zeros(SHAPE)
    for i in np.arange(-2, 6):
        for j in np.arange(-2, 6):
            distance = np.hypot(y[:, None] - EDGE * (i + 0.5), x - EDGE * (j + 0.5))
            atoms = ATOMS - missing * ((i, j) == (1, 1))
            image += atoms * np.interp(distance, r, profile, right=0.0)
    return image


def test_the_excess_of_a_vacancy_is_minus_its_electrons_at_its_place():
    vectors = [(EDGE * i, EDGE * j) for i in range(-3, 4) for j in range(-3, 4) if (i, j) != (0, 0)]
    error = np.full(SHAPE, 20.0)
    found = planted.excess(lattice(1.0), error, PIXELS, vectors, STRONTIUM)
    row = planted.scores(found, PIXELS, SITE)
    assert row["electrons"] == pytest.approx(-STRONTIUM, rel=0.1)
    assert row["spread"]["near"]
    assert row["error"]["near"]
    twice = planted.scores(planted.excess(lattice(1.0), 2 * error, PIXELS, vectors, STRONTIUM), PIXELS, SITE)
    assert twice["error"]["score"] == pytest.approx(row["error"]["score"] / 2)
    none = planted.excess(lattice(0.0), None, PIXELS, vectors, STRONTIUM)
    assert np.nanmax(np.abs(none.electrons)) < 0.02 * STRONTIUM


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
    arguments = [
        "rehearse.py",
        "--json",
        "--ranks",
        "6",
        "1536",
        "--parts",
        "start",
        "agreement",
        "signal",
        "preflight",
    ]
    monkeypatch.setattr("sys.argv", arguments)
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
