"""Whether windows look like what was learnt: on patterns of thin phase objects, which a few lines
simulate.
"""

import json
from dataclasses import replace

import h5py
import numpy as np
import pytest
from scipy import fft
from scipy.stats import rankdata
from small_network import BEAM, DETECTOR, WINDOW, experiment, write_run
from small_network import patterns as scan

from namsa import InputError
from train.apply.models import load_model
from train.apply.weights import load_network
from train.experiment.conditions import Conditions
from train.tasks.density.scan.application import reconstruct
from train.tasks.density.scan.ensemble import Views, ensemble_predictor
from train.tasks.density.scan.live import next_row, reconstruct_live
from train.tasks.density.trust import familiarity
from train.tasks.density.trust.familiarity import (
    Familiarity,
    PatternStatistics,
    shrunk_covariance,
    window_features,
)

# Å, rad, Å, positions (y, x)
WAVELENGTH = 0.025
SEMIANGLE = 0.020
STEP = 0.4
SCAN = (8, 10)
GRID = 32
SAMPLING = 0.4
PIXELS = 20
TRAINED = Conditions(
    200e3, 20.0, SCAN, (STEP, STEP), (PIXELS, PIXELS), (3.0, 3.0), (-PIXELS / 2, -PIXELS / 2), True
)
WEIGHTS = np.random.default_rng(0).normal(size=(PIXELS**2, 6))


def phase_object_window(rng, defocus=None, semiangle=SEMIANGLE, step=STEP, turn=0.0, dose=None):
    """Patterns `(8, 10, 20, 20)` of a random phase object, fractions of the beam; by default as in
    training.
    """
    defocus = rng.uniform(-40, 40) if defocus is None else defocus
    q = np.fft.fftfreq(GRID, SAMPLING)
    square = q[:, None] ** 2 + q**2
    phase = np.fft.ifft2(np.fft.fft2(rng.normal(size=(GRID, GRID))) * np.exp(-square / 0.5)).real
    transmission = np.exp(1j * rng.uniform(0.1, 0.4) * phase / phase.std())
    lens = (square <= (semiangle / WAVELENGTH) ** 2) * np.exp(
        -1j * np.pi * WAVELENGTH * defocus * square
    )
    y, x = (step * (np.arange(n) - n / 2) for n in SCAN)
    y, x = np.meshgrid(y, x, indexing="ij")
    y, x = np.cos(turn) * y - np.sin(turn) * x, np.sin(turn) * y + np.cos(turn) * x
    ramps = (np.exp(-2j * np.pi * along[..., None] * q).astype(np.complex64) for along in (y, x))
    shifts = np.einsum("abk,abl->abkl", *ramps)
    waves = fft.fft2(
        fft.ifft2(lens.astype(np.complex64) * shifts) * transmission.astype(np.complex64)
    )
    intensity = fft.fftshift(np.abs(waves) ** 2, axes=(-2, -1))
    angles = np.fft.fftshift(q) * WAVELENGTH * 1e3 / 3.0 + PIXELS / 2
    bins = (np.floor(angles)[:, None] == np.arange(PIXELS)).astype(np.float32)
    patterns = bins.T @ intensity @ bins
    patterns /= intensity.sum(axis=(-2, -1)).mean()
    dose = 10 ** rng.uniform(4, 7) if dose is None else dose
    return (rng.poisson(patterns * dose) / dose).astype(np.float32)


def maps(patterns):
    """Means and standard deviations of six linear maps of the patterns, as of a network's first
    layer.
    """
    values = np.maximum(patterns.reshape(*patterns.shape[:3], -1) ** 0.5 @ WEIGHTS, 0)
    return np.concatenate([values.mean(axis=(1, 2)), values.std(axis=(1, 2))], axis=1)


def features(count, seed, **optics):
    rng = np.random.default_rng(seed)
    statistics = PatternStatistics.of(SCAN, TRAINED)
    patterns = np.stack([phase_object_window(rng, **optics) for _ in range(count)])
    return window_features(statistics, patterns, maps(patterns))


@pytest.fixture(scope="module")
def learnt():
    return Familiarity.fit(features(160, 1), features(60, 2))


def auroc(inside, outside):
    ranks = rankdata(np.concatenate([inside, outside]))[len(inside) :]
    return (ranks.sum() - len(outside) * (len(outside) + 1) / 2) / (len(inside) * len(outside))


def test_what_was_not_learnt_is_told_apart_though_no_such_case_was_used(learnt):
    inside = learnt.distance(features(40, 3))
    few = 10
    cases = {
        "defocus": {"defocus": 300.0},
        "semiangle": {"semiangle": 0.025},
        "scan step": {"step": 1.3 * STEP},
        "turned by 45°": {"turn": np.pi / 4},
        "hardly an electron": {"dose": 100.0},
    }
    outside = {name: learnt.distance(features(few, 4, **optics)) for name, optics in cases.items()}
    assert auroc(inside, np.concatenate(list(outside.values()))) >= 0.95
    assert min(auroc(inside, distances) for distances in outside.values()) >= 0.85
    flagged = np.mean(learnt.familiarity(features(40, 5)) < familiarity.UNFAMILIAR)
    assert flagged < 0.2  # about the 5 % of the dev split


def test_examples_from_outside_show_what_is_near_the_border_and_hide_nothing_else(learnt):
    rng = np.random.default_rng(9)
    defoci = np.concatenate(
        [features(1, 20 + n, defocus=rng.choice([-1, 1]) * rng.uniform(60, 160)) for n in range(50)]
    )
    far = features(
        10, 8, semiangle=0.022
    )  # many times as far away, and so many that they alone would decide
    taught = Familiarity.fit(features(160, 1), features(60, 2), np.concatenate([defoci, far]))
    inside = features(40, 3)
    few = 16
    near = features(few, 4, defocus=-80.0)
    before, after = (
        auroc(fitted.distance(inside), fitted.distance(near)) for fitted in (learnt, taught)
    )
    assert after > max(before, 0.98)
    others = {"semiangle": 0.025}, {"step": 1.3 * STEP}, {"turn": np.pi / 4}, {"dose": 100.0}
    distances = [taught.distance(features(few, 5, **optics)) for optics in others]
    assert min(auroc(taught.distance(inside), distance) for distance in distances) >= 0.9


def test_familiarity_is_the_share_of_the_dev_split_that_is_farther(learnt):
    dev = features(60, 2)
    share = learnt.familiarity(dev)
    ranks = rankdata(-learnt.distance(dev))
    np.testing.assert_allclose(
        share, (ranks - 1) / 59, atol=0.01
    )  # of 201 quantiles of 60 distances
    assert np.mean(learnt.distance(dev) > learnt.threshold) == pytest.approx(
        familiarity.UNFAMILIAR, abs=0.01
    )


def test_the_power_is_where_the_disks_of_a_phase_object_overlap():
    """A weak object of one frequency q along x scatters to angles between (q − 2α) and α along x
    only.
    """
    statistics = PatternStatistics.of((16, 24), replace(TRAINED, scan_shape=(16, 24)))
    patterns = np.full((1, 16, 24, PIXELS, PIXELS), 1e-3, np.float32)
    wave = np.cos(2 * np.pi * np.arange(24) / 4)  # a quarter per position, along x
    patterns[:, :, :, 10, 13] += 1e-4 * wave  # 1.5 mrad along y, 10.5 mrad along x
    power = statistics(patterns)[0][: statistics.count].reshape(len(familiarity.BANDS) - 1, -1)
    band = int(np.digitize(0.5, familiarity.BANDS)) - 1
    along = np.digitize(10.5 / 20, familiarity.ALONG)
    across = np.digitize(1.5 / 20, familiarity.ACROSS)
    assert np.unravel_index(np.nanargmax(power), power.shape) == (band, along * 3 + across)
    turned = statistics(patterns.transpose(0, 1, 2, 4, 3))[0][: statistics.count].reshape(
        power.shape
    )
    assert np.unravel_index(np.nanargmax(turned), power.shape) == (
        band,
        np.digitize(1.5 / 20, familiarity.ALONG) * 3 + np.digitize(10.5 / 20, familiarity.ACROSS),
    )


def test_features_that_a_smaller_window_lacks_count_as_usual_ones(learnt):
    rows = features(1, 6)
    lacking = np.where(np.arange(rows.size) % 3 == 0, np.nan, rows)
    usual = np.where(np.isnan(lacking), learnt.mean, rows)
    np.testing.assert_allclose(learnt.distance(lacking), learnt.distance(usual))
    assert learnt.distance(lacking) != learnt.distance(rows)


def test_the_covariance_of_few_samples_is_shrunk_and_of_many_is_not():
    rng = np.random.default_rng(7)
    true = np.diag([4.0, 1.0, 1.0, 0.25])
    few, many = (rng.normal(size=(n, 4)) @ np.sqrt(true) for n in (6, 100_000))
    assert np.linalg.cond(shrunk_covariance(few)) < np.linalg.cond(few.T @ few / 6)
    np.testing.assert_allclose(shrunk_covariance(many), true, atol=0.05)


def test_the_file_holds_what_is_needed_and_nothing_else_is_read(tmp_path, learnt):
    assert familiarity.read_familiarity(tmp_path) is None
    path = tmp_path / familiarity.FILE
    familiarity.write_familiarity(path, learnt)
    kept = familiarity.read_familiarity(tmp_path)
    rows = features(3, 8)
    np.testing.assert_array_equal(kept.distance(rows), learnt.distance(rows))
    good = vars(learnt)
    for change in (
        {"mean": good["mean"][1:]},
        {"distances": np.array([np.nan])},
        {"whitening": np.array(["x"])},
    ):
        np.savez(path, **(good | change))
        with pytest.raises(InputError, match="calibrate again"):
            familiarity.read_familiarity(tmp_path)
    np.savez(path, mean=good["mean"])
    with pytest.raises(InputError, match="has no whitening"):
        familiarity.read_familiarity(tmp_path)
    path.write_bytes(b"no archive")
    with pytest.raises(InputError, match="no archive of arrays"):
        familiarity.read_familiarity(tmp_path)


# ---- In a reconstruction
# --------------------------------------------------------------------------------------------


# of uncertainty: this network has not learnt, and a scan is not to be flagged for its stated error
FACTOR = 1e-3


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small network with a likelihood that has learnt noise of one kind."""
    small = experiment()
    loss = small.training.loss.model_copy(update={"likelihood": "laplace"})
    training = small.training.model_copy(update={"loss": loss})
    network = small.network.model_copy(update={"output_channels": 2})
    folder = tmp_path_factory.mktemp("familiar")
    write_run(folder, small.model_copy(update={"training": training, "network": network}))
    loaded = load_model(folder)
    predict = ensemble_predictor(
        load_network(loaded, WINDOW), loaded, Views(range(8), 0), with_maps=True
    )
    patterns = np.stack([scan(WINDOW, seed) for seed in range(60)])
    statistics = PatternStatistics.of(WINDOW, loaded.conditions)
    rows = window_features(statistics, patterns, predict(patterns).maps)
    familiarity.write_familiarity(folder / familiarity.FILE, Familiarity.fit(rows[:40], rows[40:]))
    (folder / "calibration.json").write_text(
        json.dumps(
            {"uncertainty_factor": FACTOR, "two_sigma_factor": 2.5, "predicted_weight": 0.25}
        )
    )
    return load_model(folder)


def test_a_strange_part_is_marked_in_the_file_on_the_picture_and_in_a_line(tmp_path, model):
    values = scan((36, 84), seed=100)
    values[:, 48:] = np.sort(values[:, 48:].reshape(36, 36, 16), axis=-1).reshape(36, 36, *DETECTOR)
    result = reconstruct(values, model, BEAM, beam_intensity=1.0)
    assert result.familiarity[:, :20].min() >= familiarity.UNFAMILIAR
    assert result.familiarity[:, 70:].max() < familiarity.UNFAMILIAR
    flagged = result.provenance["windows_not_familiar"]
    assert 0.3 < flagged < 1
    assert result.outside == (flagged > 0.5)
    result.save(tmp_path / "out.h5")
    with h5py.File(tmp_path / "out.h5") as file:
        np.testing.assert_array_equal(
            file["reconstruction/familiarity/data"][()], result.familiarity
        )
        provenance = json.loads(file["reconstruction"].attrs["provenance"])
    assert provenance["windows_not_familiar"] == flagged
    assert provenance["two_sigma_factor"] == 2.5
    assert any("within 2.5 times that" in line for line in result.notes)
    hatches = []
    for ax in result.show().axes:
        for shape in ax.collections:
            if getattr(shape, "hatches", None):
                hatches.append(shape)
    assert len(hatches) == 4  # bright field, density, uncertainty, familiarity


def test_a_scan_is_inside_or_outside_by_most_of_its_windows(model):
    inside = reconstruct(scan((36, 36), seed=101), model, BEAM, beam_intensity=1.0)
    assert not inside.outside
    median = float(np.nanmedian(inside.familiarity))
    assert any(line.startswith(f"familiarity: {median:.2f} in the median") for line in inside.notes)
    outside = reconstruct(3 * scan((36, 36), seed=101), model, BEAM, beam_intensity=1.0)
    assert outside.outside
    assert any(
        "lies outside of what the network learnt: 100 % of its windows" in line
        for line in outside.notes
    )
    assert "outside of what the network learnt" in [
        text.get_text() for text in outside.show().texts
    ]


def test_a_live_reconstruction_says_the_same_though_it_was_interrupted(model, tmp_path):
    values = scan((52, 36), seed=102)
    state = tmp_path / "state.npz"
    expected = reconstruct(values, model, BEAM, beam_intensity=1.0)
    options = {"scan_shape": (52, 36), "beam_intensity": 1.0, "state": state}
    stream = reconstruct_live(iter(values), model, BEAM, **options)
    next(stream)
    stream.close()
    row = next_row(state)
    *_, last = reconstruct_live(iter(values[row:]), model, BEAM, first_row=row, **options)
    assert expected.provenance["orientation"]["half_turn"] == pytest.approx(1, abs=0.05)  # of noise
    assert last.result.provenance["orientation"] == expected.provenance["orientation"]
    np.testing.assert_array_equal(last.result.familiarity, expected.familiarity)
    np.testing.assert_array_equal(last.result.uncertainty, expected.uncertainty)
    assert (
        last.result.provenance["windows_not_familiar"]
        == expected.provenance["windows_not_familiar"]
    )
    assert last.result.notes.count(expected.notes[-1]) == 1


def test_the_uncertainty_is_the_spread_and_a_part_of_the_predicted_error(model):
    values = scan(WINDOW, seed=103)
    predicted = ensemble_predictor(load_network(model, WINDOW), model, Views(range(8), 0))(
        values[None]
    )
    result = reconstruct(values, model, BEAM, beam_intensity=1.0)
    variance = predicted.density[:, 0].var(axis=0) + 0.25 * predicted.variance[:, 0].mean(axis=0)
    np.testing.assert_allclose(result.uncertainty, FACTOR * np.sqrt(variance), rtol=1e-4)
    assert (predicted.variance > 0).all()
