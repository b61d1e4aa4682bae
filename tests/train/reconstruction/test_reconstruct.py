"""From a file to a density, with a small network of random weights: it answers to whatever it is shown."""

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import h5py
import keras
import numpy as np
import pytest

from fcdensenet.build import build
from namsa import InputError
from namsa.config.loading import dump_yaml
from namsa.io.foreign import CalibrationOverrides
from train.__main__ import main
from train.experiment.conditions import conditions
from train.experiment.experiment import Experiment
from train.optimization import checkpoint
from train.optimization.checkpoint import TrainingPosition
from train.reconstruction import ensemble, models, reading, reconstruct, windows
from train.reconstruction.ensemble import Views
from train.reconstruction.models import load_model
from train.reconstruction.trust import KnownSpecimen

SCAN, WINDOW, DETECTOR = (28, 36), (24, 24), (4, 4)
BEAM = CalibrationOverrides(
    energy_ev=200e3,
    semiangle_mrad=20.0,
    scan_step_angstrom=(0.4, 0.4),
    pixel_mrad=(8.0, 8.0),
    centre_pixels=(1.5, 1.5),
)


def experiment(layout="scan", **microscope):
    images = (16, *WINDOW) if layout == "scan" else (16, 4, 4)
    scan = {"shape": WINDOW, "step_angstrom": (0.4, 0.4)} if layout == "scan" else {"shape": (4, 4)}
    layers = (1, 1, 1)
    return Experiment.model_validate(
        {
            "name": "small",
            "microscope": {"energy_ev": 200e3, "semiangle_mrad": 20.0} | microscope,
            "scan": scan,
            "simulation": {"sampling_angstrom": 0.2} if layout == "scan" else {"grid_shape": (4, 4)},
            "detector": {"shape": DETECTOR, "pixel_mrad": 8.0},
            "target": {"at": "scan" if layout == "scan" else "grid"},
            "network": {"input_shape": images, "layers": layers, "growth": 6, "kernel": 3, "first_kernel": 3}
            | {"first_filters": 6, "dropout": 0.2},
            "training": {"epochs": 1, "inputs": {"layout": layout, "density_scale_e_per_angstrom2": 10}},
        }
    )


def write_run(folder, of):
    """A run directory of random weights."""
    keras.utils.clear_session()
    model = build(of.network, seed=3)
    rng = np.random.default_rng(3)
    for variable in model.variables:
        if variable.dtype == "float32":  # biases and statistics, too, are not those of an untrained network
            change = (
                rng.uniform(0.0, 0.5, variable.shape)
                if "variance" in variable.path
                else rng.normal(0, 0.1, variable.shape)
            )
            variable.assign(np.asarray(variable) + change)
    checkpoint.save(folder / "checkpoints", TrainingPosition(step=7), model.variables, of.network, keep=1)
    (folder / "config.yaml").write_text(dump_yaml(of))
    return str(folder)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("small"), experiment())


def patterns(scan=SCAN, seed=0):
    return np.random.default_rng(seed).uniform(0.2, 1.8, (*scan, *DETECTOR)).astype(np.float32) / 16


def stored(path, values, **options):
    with h5py.File(path, "w") as file:
        file.create_dataset("scan", data=values, **options)
    return path


def density(folder, values, run, given=BEAM, name="out", beam=1.0, **options):
    out = folder / f"{name}.h5"
    data = stored(folder / f"{name}-in.h5", values, **options)
    reconstruct.reconstruct(data, run, given, beam_intensity=beam).save(out)
    with h5py.File(out) as file:
        return file["reconstruction/density/data"][()]


def test_the_file_has_axes_units_and_provenance(tmp_path, run):
    data = stored(tmp_path / "scan.h5", patterns())
    options = "--energy-ev 200e3 --semiangle-mrad 20.5 --scan-step-angstrom 0.4 0.405 --pixel-mrad 8 --beam-intensity 1"
    out = tmp_path / "new" / "out.h5"
    assert main(["reconstruct", str(data), "--checkpoint", run, "--out", str(out), *options.split()]) == 0
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
        provenance = json.loads(group.attrs["provenance"])
    assert provenance["weights_digest"] == checkpoint.read(Path(provenance["weights"]))[0]["digest"]
    assert any("not in the file, so not checked: trained for thickness 20 Å" in line for line in provenance["said"])


def test_a_window_alone_is_what_the_network_says_of_it(tmp_path, run):
    values = patterns(WINDOW)
    of = load_model(run)
    built = ensemble.load_network(of, WINDOW)
    x = np.sqrt(16 * values.reshape(1, *WINDOW, 16))  # the configuration's power and the number of pixels
    direct = 10 * np.asarray(built(x, training=False))[0, ..., 0]
    with_one = ensemble.ensemble_predictor(built, of, Views([0], passes=0))(values[None])[0, 0]
    np.testing.assert_allclose(with_one, direct, rtol=1e-4)


def test_a_mirrored_scan_has_the_mirrored_density(tmp_path, run):
    values = patterns((36, 36))
    straight = density(tmp_path, values, run)
    mirrored = density(tmp_path, values[::-1, :, ::-1], run, name="mirrored")
    exchanged = density(tmp_path, values.transpose(1, 0, 3, 2), run, name="exchanged")
    assert np.abs(straight - straight[::-1]).max() > 0.1 * np.ptp(straight)  # it is not symmetric itself
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
    values = patterns()
    at_once = density(tmp_path, values, run)
    monkeypatch.setattr(reading, "PIECE_BYTES", 1000)
    monkeypatch.setattr(windows, "BATCH_BYTES", 1)
    in_pieces = density(tmp_path, values, run, name="pieces", chunks=(3, 5, 4, 4), compression="gzip")
    np.testing.assert_allclose(in_pieces, at_once, rtol=1e-5)


def test_a_scan_in_windows_is_the_scan_in_one(tmp_path, run, monkeypatch):
    """Where the margin is as wide as the network looks, six positions here, nothing sees a window's own edge."""
    values = patterns((48, 60))
    monkeypatch.setattr(windows, "MARGIN", 1 / 4)
    of = load_model(run)
    network = ensemble.load_network(of, (48, 60))
    in_one = ensemble.ensemble_predictor(network, of, Views(range(4), passes=0))(values[None])[:, 0].mean(axis=0)
    # The exchange of y and x is no symmetry of the scan in one, so windows are turned by the other four only.
    monkeypatch.setattr(ensemble, "valid_symmetries", lambda *_: list(range(4)))
    in_windows = density(tmp_path, values, run)
    np.testing.assert_allclose(in_windows, in_one, atol=1e-4 * np.ptp(in_one))
    monkeypatch.setattr(windows, "MARGIN", 0)
    assert np.abs(density(tmp_path, values, run) - in_one).max() > 1e-3 * np.ptp(in_one)


def test_memory_does_not_grow_with_the_scan(tmp_path, run, monkeypatch):
    monkeypatch.setattr(reading, "PIECE_BYTES", 2**20)
    scan = (320, 32)  # 168 MB of patterns
    with h5py.File(tmp_path / "long.h5", "w") as file:
        file.create_dataset("scan", (*scan, 64, 64), "f4", chunks=(8, 8, 64, 64), compression="gzip", fillvalue=1.0)
    given = replace(BEAM, pixel_mrad=(0.5, 0.5), centre_pixels=(31.5, 31.5))
    reconstruct.reconstruct(tmp_path / "long.h5", run, given).show()  # what TensorFlow and Matplotlib hold
    tracemalloc.start()
    reconstruct.reconstruct(tmp_path / "long.h5", run, given).show()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40e6  # a quarter of the patterns


def test_finer_pixels_other_counts_and_a_turned_detector_change_nothing(tmp_path, run):
    values = patterns()
    wanted = density(tmp_path, values, run)
    finer = values.repeat(2, axis=2).repeat(2, axis=3) / 4
    np.testing.assert_allclose(
        density(tmp_path, finer, run, replace(BEAM, pixel_mrad=(4, 4), centre_pixels=(3.5, 3.5)), "fine"),
        wanted,
        rtol=1e-4,
    )
    counts = np.round(values * 1e6).astype(np.uint32)
    np.testing.assert_allclose(density(tmp_path, counts, run, name="counts", beam=1e6), wanted, rtol=1e-3)
    turned = values[..., ::-1, :].swapaxes(-1, -2)  # its y is the scan's x, its x the scan's −y
    given = replace(BEAM, rotation_deg=90.0)
    np.testing.assert_allclose(density(tmp_path, turned, run, given, "turned"), wanted, rtol=1e-4)


def test_without_the_beams_intensity_the_mean_pattern_stands_for_it(tmp_path, run):
    values = patterns((16, 24))  # sixteen rows: the survey sees them all
    wanted = density(tmp_path, values, run, beam=float(values.sum(dtype=np.float64) / (16 * 24)))
    np.testing.assert_allclose(density(tmp_path, 7 * values, run, name="assumed", beam=None), wanted, rtol=1e-4)


def test_trust_is_asked_for_once_at_every_position(tmp_path, run, monkeypatch):
    asked = []

    def trust(image, shown):
        asked.append((image.copy(), shown.copy()))
        return 0.1 * len(asked)

    monkeypatch.setattr(reconstruct, "window_simulation", lambda *_: SimpleNamespace(trust=trust))
    values = patterns((28, 60))  # windows at 0 and 4, and at 0, 12, 24 and 36
    data = stored(tmp_path / "scan.h5", values)
    specimen = KnownSpecimen(20.0, "Au")
    reconstruct.reconstruct(data, run, BEAM, beam_intensity=1, specimen=specimen).save(tmp_path / "out.h5")
    np.testing.assert_allclose([shown for _, shown in asked[:2]], [values[:24, :24], values[:24, 24:48]], rtol=1e-5)
    assert len(asked) == 6
    with h5py.File(tmp_path / "out.h5") as file:
        found, density = (file[f"reconstruction/{name}/data"][()] for name in ("trust", "density"))
    assert found[0, 0] == pytest.approx(0.1)
    assert found[0, 30] == pytest.approx(0.2)
    assert found[27, 59] == pytest.approx(0.6)
    np.testing.assert_allclose(asked[0][0][:4, :8], density[:4, :8], rtol=1e-4)  # where no other window counts


def test_dropout_makes_an_ensemble_where_symmetries_do_not(tmp_path):
    run = write_run(tmp_path / "astigmatic", experiment(aberrations={"C12": 10.0}))
    data = stored(tmp_path / "scan.h5", patterns())
    reconstruct.reconstruct(data, run, BEAM).save(tmp_path / "out.h5")
    with h5py.File(tmp_path / "out.h5") as file:
        assert (
            "8 predictions of each: 1 by symmetry, times 8 with dropout" in file["reconstruction"].attrs["provenance"]
        )
        assert file["reconstruction/uncertainty/data"][()].min() > 0


def test_a_network_of_layout_detector_takes_its_own_scan_only(tmp_path):
    run = write_run(tmp_path / "paper", experiment("detector"))
    given = replace(BEAM, scan_step_angstrom=(4.0, 4.0))
    assert density(tmp_path, patterns((4, 4)), run, given).shape == DETECTOR
    with pytest.raises(InputError, match="takes exactly 4×4 positions at once .* not 4×5"):
        density(tmp_path, patterns((4, 5)), run, given)


def test_a_calibrated_model_scales_its_uncertainty_and_knows_the_beam(tmp_path, run):
    folder = tmp_path / "calibrated"
    write_run(folder, experiment())
    (folder / "calibration.json").write_text('{"uncertainty_factor": 2.5, "transmitted_fraction": 0.9}')
    data = stored(tmp_path / "scan.h5", patterns())
    reconstruct.reconstruct(data, folder, BEAM).save(tmp_path / "out.h5")
    with h5py.File(tmp_path / "out.h5") as file:
        said = file["reconstruction"].attrs["provenance"]
    assert "times 2.5, as calibrated" in said
    assert "is 0.9 of the beam" in said


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.full((16, 16, 4, 4), np.nan), "not finite"),
        (np.where(np.arange(4) == 0, -0.1, np.ones((16, 16, 4, 4))), "more than 1 % of the intensity is negative"),
    ],
)
def test_patterns_that_are_none_are_refused(tmp_path, run, values, message):
    with pytest.raises(InputError, match=message):
        density(tmp_path, values, run)
    assert not (tmp_path / "out.h5").exists()


def test_models_are_found_by_place_and_by_name(tmp_path, run, monkeypatch, capsys):
    weights = next((Path(run) / "checkpoints").glob("*.npz"))
    assert load_model(run).weights == weights
    assert load_model(str(weights)).experiment == experiment()
    shipped = tmp_path / "models/gold"
    shipped.mkdir(parents=True)
    (shipped / "config.yaml").write_text((Path(run) / "config.yaml").read_text())
    (shipped / "weights.npz").write_bytes(weights.read_bytes())
    monkeypatch.setattr(models, "MODELS", tmp_path / "models")
    assert load_model("gold").weights == shipped / "weights.npz"
    assert main(["reconstruct", "a.h5", "--checkpoint", "silver", "--out", str(tmp_path / "o.h5")]) == 2
    assert "silver is neither a run directory, nor a checkpoint, nor a model" in capsys.readouterr().err
    assert main(["reconstruct", "a.h5", "--checkpoint", "gold", "--out", str(tmp_path / "o.h5")]) == 2
    assert capsys.readouterr().err == "error: there is no file a.h5\n"
