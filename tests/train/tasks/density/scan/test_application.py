"""Reconstruction of files with a small network of random weights, which responds to every change of
its input.
"""

import io
import json
import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from rich.console import Console
from small_network import BEAM, DETECTOR, WINDOW, density, experiment, patterns, stored, write_run

import namsa
from namsa import InputError
from namsa.base import long_calls, notebook_progress
from train.__main__ import main
from train.apply import reading, tiles, weights
from train.apply.models import load_model
from train.experiment.conditions import conditions
from train.optimization import checkpoint
from train.tasks.density.scan import application as reconstruct
from train.tasks.density.scan import ensemble, preparation
from train.tasks.density.scan.ensemble import Views
from train.tasks.density.trust.consistency import KnownSpecimen

SCAN = (28, 36)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("small"), experiment())


def test_the_file_has_axes_units_and_provenance(tmp_path, run):
    data = stored(tmp_path / "scan.h5", patterns(SCAN))
    options = (
        "--energy-ev 200e3 --semiangle-mrad 20.5 --scan-step-angstrom 0.4 0.405 --pixel-mrad 8 "
        "--beam-intensity 1"
    )
    out = tmp_path / "new" / "out.h5"
    assert (
        main(["reconstruct", str(data), "--checkpoint", run, "--out", str(out), *options.split()])
        == 0
    )
    assert out.with_suffix(".png").stat().st_size > 10_000
    with h5py.File(out) as file:
        group = file["reconstruction"]
        for name in ("density", "uncertainty"):
            assert group[name]["data"].shape == SCAN
            assert group[name]["data"].attrs["units"] == "e/Å²"
            assert np.isfinite(group[name]["data"][()]).all()
            np.testing.assert_allclose(group[name]["dim1"], 0.405 * np.arange(36))
            assert dict(group[name]["dim0"].attrs) == {"name": "y", "units": "Å"}
        assert group["uncertainty"]["data"][()].min() > 0
        assert "trust" not in group  # there is no specimen
        provenance = json.loads(group.attrs["provenance"])
    weights = load_model(run).weights
    assert provenance["weights"] == weights.name
    assert provenance["weights_digest"] == checkpoint.read(weights)[0]["digest"]
    assert str(tmp_path) not in json.dumps(provenance)
    assert any("not compared: trained for thickness 20 Å" in line for line in provenance["notes"])


def test_progress_goes_to_a_callback_or_to_the_bar_of_a_notebook(tmp_path, run, monkeypatch):
    data = stored(tmp_path / "scan.h5", patterns(SCAN))
    rows = []
    reported = {"beam_intensity": 1.0, "on_progress": lambda *row: rows.append(row)}
    reconstruct.reconstruct(data, run, BEAM, **reported)
    assert {stage for stage, _, _ in rows} == {"windows"}
    done = [row[1] for row in rows]
    assert done == sorted(done)
    assert done[-1] == rows[-1][2] > 1

    class Bar(list):
        def __call__(self, *row):
            self.append(row)

        def close(self):
            self.append("closed")

    bar = Bar()
    monkeypatch.setattr(notebook_progress, "in_notebook", lambda: True)
    monkeypatch.setattr(notebook_progress, "NotebookBar", lambda: bar)
    reconstruct.reconstruct(data, run, BEAM, beam_intensity=1.0)
    assert bar == [*rows, "closed"]


def test_a_long_reconstruction_says_how_long_it_takes(tmp_path, run, monkeypatch):
    data = stored(tmp_path / "scan.h5", patterns(SCAN))
    monkeypatch.setattr(long_calls, "MEASURED_AFTER_SECONDS", 0)
    monkeypatch.setattr(long_calls, "LONG_SECONDS", 0)
    with pytest.warns(namsa.SimulationWarning, match=r"^windows: \d+ of \d+ took .* left$"):
        reconstruct.reconstruct(data, run, BEAM, beam_intensity=1.0)


def test_one_window_gives_the_prediction_of_the_network_itself(tmp_path, run):
    values = patterns(WINDOW)
    model = load_model(run)
    network = weights.load_network(model, WINDOW)
    x = np.sqrt(
        16 * values.reshape(1, *WINDOW, 16)
    )  # the configuration's power and the number of pixels
    direct = 10 * np.asarray(network(x, training=False))[0, ..., 0]
    predicted = ensemble.ensemble_predictor(network, model, Views([0], passes=0))(
        values[None]
    ).density[0, 0]
    np.testing.assert_allclose(predicted, direct, rtol=1e-4)


def test_a_mirrored_scan_has_the_mirrored_density(tmp_path, run):
    values = patterns((36, 36))
    straight = density(tmp_path, values, run)
    mirrored = density(tmp_path, values[::-1, :, ::-1], run, name="mirrored")
    exchanged = density(tmp_path, values.transpose(1, 0, 3, 2), run, name="exchanged")
    assert np.abs(straight - straight[::-1]).max() > 0.1 * np.ptp(
        straight
    )  # the density itself is not symmetric
    np.testing.assert_allclose(mirrored, straight[::-1], rtol=1e-4)
    np.testing.assert_allclose(exchanged, straight.T, rtol=1e-4)


def test_a_lens_that_is_not_round_makes_no_mirrors(tmp_path):
    assert conditions(experiment()).symmetric
    assert conditions(experiment(aberrations={"C10": -50.0, "C30": 1e4})).symmetric
    assert not conditions(experiment(aberrations={"C12": 10.0, "phi12": 0.1})).symmetric
    assert not conditions(experiment(specimen_tilt_mrad=(0, 5))).symmetric
    assert ensemble.valid_symmetries(True, (16, 16), (4, 6), (0.4, 0.4)) == [0, 1, 2, 3]
    assert ensemble.valid_symmetries(False, (16, 16), (4, 4), (0.4, 0.4)) == [0]


def test_pieces_of_a_scan_make_the_whole(tmp_path, run, monkeypatch):
    values = patterns(SCAN)
    at_once = density(tmp_path, values, run)
    monkeypatch.setattr(reading, "PIECE_BYTES", 1000)
    monkeypatch.setattr(tiles, "BATCH_BYTES", 1)
    monkeypatch.setattr(ensemble, "IMAGES", 1)
    in_pieces = density(
        tmp_path, values, run, name="pieces", chunks=(3, 5, 4, 4), compression="gzip"
    )
    np.testing.assert_allclose(in_pieces, at_once, rtol=1e-5)


def test_progress_counts_the_windows(run):
    log = io.StringIO()
    reconstruct.reconstruct(
        patterns(SCAN), run, BEAM, beam_intensity=1.0, console=Console(file=log)
    )
    assert "windows: 4 of 4" in log.getvalue()


def test_a_scan_in_windows_is_the_scan_in_one(tmp_path, run, monkeypatch):
    """With a margin as wide as the network's receptive field, six positions here, no window's edge
    has an influence.
    """
    values = patterns((48, 60))
    monkeypatch.setattr(tiles, "MARGIN", 1 / 4)
    model = load_model(run)
    network = weights.load_network(model, (48, 60))
    predict = ensemble.ensemble_predictor(network, model, Views(range(4), passes=0))
    in_one = predict(values[None]).density[:, 0].mean(axis=0)
    # Exchanging y and x is no symmetry of the whole scan, so windows get the other four symmetries
    # only.
    monkeypatch.setattr(ensemble, "valid_symmetries", lambda *_: list(range(4)))
    in_windows = density(tmp_path, values, run)
    np.testing.assert_allclose(in_windows, in_one, atol=1e-4 * np.ptp(in_one))
    monkeypatch.setattr(tiles, "MARGIN", 0)
    assert np.abs(density(tmp_path, values, run) - in_one).max() > 1e-3 * np.ptp(in_one)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_scan(tmp_path, run, monkeypatch):
    monkeypatch.setattr(reading, "PIECE_BYTES", 2**20)
    scan = (320, 32)  # 168 MB of patterns
    with h5py.File(tmp_path / "long.h5", "w") as file:
        file.create_dataset(
            "scan", (*scan, 64, 64), "f4", chunks=(8, 8, 64, 64), compression="gzip", fillvalue=1.0
        )
    calibration = replace(BEAM, pixel_mrad=(0.5, 0.5), centre_pixels=(31.5, 31.5))

    def run_once():
        result = reconstruct.reconstruct(tmp_path / "long.h5", run, calibration)
        result.save(tmp_path / "out.h5")
        result.show(tmp_path / "out.png")

    run_once()  # TensorFlow and Matplotlib keep what they allocate first
    tracemalloc.start()
    run_once()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40e6  # a quarter of the patterns


def test_finer_pixels_other_counts_and_a_turned_detector_change_nothing(tmp_path, run):
    values = patterns(SCAN)
    expected = density(tmp_path, values, run)
    finer = values.repeat(2, axis=2).repeat(2, axis=3) / 4
    np.testing.assert_allclose(
        density(
            tmp_path, finer, run, replace(BEAM, pixel_mrad=(4, 4), centre_pixels=(3.5, 3.5)), "fine"
        ),
        expected,
        rtol=1e-4,
    )
    counts = np.round(values * 1e6).astype(np.uint32)
    np.testing.assert_allclose(
        density(tmp_path, counts, run, name="counts", beam=1e6), expected, rtol=1e-3
    )
    turned = values[..., ::-1, :].swapaxes(-1, -2)  # its y is the scan's x, its x the scan's −y
    calibration = replace(BEAM, rotation_deg=90.0)
    np.testing.assert_allclose(
        density(tmp_path, turned, run, calibration, "turned"), expected, rtol=1e-4
    )


def test_without_the_beams_intensity_the_mean_pattern_stands_for_it(tmp_path, run):
    values = patterns((16, 24))  # sixteen rows: the survey sees them all
    expected = density(tmp_path, values, run, beam=float(values.sum(dtype=np.float64) / (16 * 24)))
    np.testing.assert_allclose(
        density(tmp_path, 7 * values, run, name="assumed", beam=None), expected, rtol=1e-4
    )


def test_trust_is_measured_once_at_every_position(tmp_path, run, monkeypatch):
    calls = []

    def trust(density, patterns):
        calls.append((density.copy(), patterns.copy()))
        return 0.1 * len(calls)

    monkeypatch.setattr(preparation, "window_simulation", lambda *_: SimpleNamespace(trust=trust))
    values = patterns((28, 60))  # windows at 0 and 4, and at 0, 12, 24 and 36
    data = stored(tmp_path / "scan.h5", values)
    specimen = KnownSpecimen(20.0, "Au")
    reconstruct.reconstruct(data, run, BEAM, beam_intensity=1, specimen=specimen).save(
        tmp_path / "out.h5"
    )
    np.testing.assert_allclose(
        [patterns for _, patterns in calls[:2]], [values[:24, :24], values[:24, 24:48]], rtol=1e-5
    )
    assert len(calls) == 6
    with h5py.File(tmp_path / "out.h5") as file:
        trust_map, density_map = (
            file[f"reconstruction/{name}/data"][()] for name in ("trust", "density")
        )
    assert trust_map[0, 0] == pytest.approx(0.1)
    assert trust_map[0, 30] == pytest.approx(0.2)
    assert trust_map[27, 59] == pytest.approx(0.6)
    np.testing.assert_allclose(
        calls[0][0][:4, :8], density_map[:4, :8], rtol=1e-4
    )  # no other window has weight there


def test_dropout_makes_an_ensemble_where_symmetries_do_not(tmp_path):
    run = write_run(tmp_path / "astigmatic", experiment(aberrations={"C12": 10.0}))
    data = stored(tmp_path / "scan.h5", patterns(SCAN))
    reconstruct.reconstruct(data, run, BEAM).save(tmp_path / "out.h5")
    with h5py.File(tmp_path / "out.h5") as file:
        assert (
            "8 predictions of each: 1 by symmetry, times 8 with dropout"
            in file["reconstruction"].attrs["provenance"]
        )
        assert file["reconstruction/uncertainty/data"][()].min() > 0


def test_a_network_of_layout_detector_takes_its_own_scan_only(tmp_path):
    run = write_run(tmp_path / "paper", experiment("detector"))
    calibration = replace(BEAM, scan_step_angstrom=(4.0, 4.0))
    assert density(tmp_path, patterns((4, 4)), run, calibration).shape == DETECTOR
    with pytest.raises(InputError, match="takes exactly 4×4 positions at once .* not 4×5"):
        density(tmp_path, patterns((4, 5)), run, calibration)


def test_a_calibrated_model_scales_its_uncertainty_and_knows_the_beam(tmp_path, run):
    folder = tmp_path / "calibrated"
    write_run(folder, experiment())
    (folder / "calibration.json").write_text(
        '{"uncertainty_factor": 2.5, "transmitted_fraction": 0.9}'
    )
    data = stored(tmp_path / "scan.h5", patterns(SCAN))
    reconstruct.reconstruct(data, folder, BEAM).save(tmp_path / "out.h5")
    with h5py.File(tmp_path / "out.h5") as file:
        provenance = file["reconstruction"].attrs["provenance"]
    assert "times 2.5, as calibrated" in provenance
    assert "is 0.9 of the beam" in provenance


# ---- What was not recorded
# ------------------------------------------------------------------------------------------
