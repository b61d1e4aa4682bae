"""Quantities of scans of any size, with a small network of random weights, beside what another
network has learnt.
"""

import json
import math

import h5py
import numpy as np
import pytest
from small_network import BEAM, OPTIONS, experiment, patterns, stored, write_run

from namsa.base.pixels import PixelGrid
from train.__main__ import main
from train.apply.models import load_model
from train.apply.weights import build_loaded
from train.experiment.experiment import Experiment
from train.reports.results import write_json
from train.tasks.density.scan.result import Reconstruction
from train.tasks.estimate.application import estimate
from train.tasks.estimate.result import EstimatedQuantity, EstimatedScan

WINDOW = (4, 6)
FACTS = {"model": "estimate", "weights_digest": "0", "notes": []}
NAMES = ["defocus_angstrom", "specimen_tilt_x_mrad"]


def estimating():
    tree = experiment().model_dump(mode="json", exclude_unset=True)
    tree["variation"] = {"rule": "random", "configurations": 2}
    tree["variation"] |= {"defocus_angstrom": [-60, 100], "specimen_tilt_mrad": [0, 5]}
    tree["network"] = {"kind": "cosmoflow", "input_shape": [6, 4, 4, 4], "outputs": 4}
    tree["network"] |= {"filters": [4], "strides": [1], "dense": [8]}
    tree["training"] = {
        "task": "estimate",
        "epochs": 1,
        "inputs": {"layout": "volume", "window": WINDOW},
    }
    tree["training"] |= {"estimate": {"quantities": NAMES}, "loss": {"likelihood": "laplace"}}
    return Experiment.model_validate(tree)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("estimate"), estimating())


def calibrated(folder, **factors):
    quantities = {
        name: {"uncertainty_factor": 2.0, "two_sigma_factor": 3.0} | factors for name in NAMES
    }
    covered = {name: {"coverage_68": 0.7, "coverage_95": 0.9} for name in NAMES}
    facts = {"step": 7, "split": "dev", "windows": 8, "dev": covered, "transmitted_fraction": 1.0}
    write_json(folder / "calibration.json", {"quantities": quantities, **facts})


def estimated(error=8.0, **values):
    maps = {name: np.full((2, 3), float(value)) for name, value in values.items()}
    errors = {name: np.full((2, 3), error) for name in maps}
    two = dict.fromkeys(maps, 2.0)
    return EstimatedScan(
        maps, errors, dict.fromkeys(maps, (-60, 100)), two, PixelGrid((1, 1), (0, 0)), FACTS
    )


def test_windows_have_what_the_network_itself_gives_and_calibrated_errors(tmp_path):
    run = write_run(tmp_path, estimating())
    values = patterns((9, 13))
    plain = estimate(values, run, BEAM, beam_intensity=1.0)
    calibrated(tmp_path)
    result = estimate(values, run, BEAM, beam_intensity=1.0)
    model = load_model(run)
    network = build_loaded(model, model.experiment.network)
    for (row, column), y, x in (((0, 0), 0, 0), ((1, 1), 4, 6)):
        window = np.sqrt(16 * values[y : y + 4, x : x + 6]).transpose(0, 2, 3, 1)
        defocus, tilt, u, v = np.asarray(network(window[None], training=False))[0].astype(float)
        expected = {
            "defocus_angstrom": (20 + 80 * defocus, 80, u),
            "specimen_tilt_x_mrad": (5 * tilt, 5, v),
        }
        for name, (value, half, log) in expected.items():
            deviation = half * math.sqrt(2) * math.exp(7 * math.tanh(log / 7))
            assert result.values[name][row, column] == pytest.approx(value, rel=1e-4)
            assert result.errors[name][row, column] == pytest.approx(2 * deviation, rel=1e-4)
            assert plain.errors[name][row, column] == pytest.approx(deviation, rel=1e-4)
    assert result.values["defocus_angstrom"].shape == (2, 2)
    np.testing.assert_allclose(
        result.pixels.coordinates((2, 2))[1], [1.0, 3.4]
    )  # middles of windows of 6 positions
    assert result.quantities[0].two_sigma_factor == 3
    assert any("errors: not calibrated" in line for line in plain.notes)
    for line in result.notes:
        assert "not calibrated" not in line
    assert repr(result).startswith("<EstimatedScan: defocus ")


def test_the_mean_of_the_windows_is_weighted_and_not_taken_for_more_certain():
    scan = estimated(defocus_angstrom=10)
    scan.values["defocus_angstrom"][0, 0] = 70
    scan.errors["defocus_angstrom"][0, 0] = 4
    ((name, value, error, _),) = scan.quantities
    assert name == "defocus_angstrom"
    assert value == pytest.approx((70 / 16 + 5 * 10 / 64) / (1 / 16 + 5 / 64))
    assert error == pytest.approx(math.sqrt(6 / (1 / 16 + 5 / 64)))


@pytest.mark.parametrize(
    ("value", "outside"),
    [(-60, True), (-16.1, True), (-15.9, False), (0, False), (15.9, False), (16.1, True)],
)
def test_a_quantity_is_outside_where_two_errors_do_not_reach_the_range(value, outside):
    assert EstimatedQuantity("defocus_angstrom", value, 8.0).is_outside((0, 0)) == outside


def test_quantities_are_compared_with_what_a_network_has_learnt():
    compared = estimated(
        defocus_angstrom=-60, thickness_angstrom=25, specimen_tilt_y_mrad=3.0
    ).compared_with(experiment())
    assert compared.outside == ["defocus −60.0 ± 8.0 Å lies outside of 0 Å that the network learnt"]
    assert compared.lines[1:] == [
        "thickness 25.0 ± 8.0 Å agrees with 20 Å that the network learnt",
        "specimen tilt y 3.0 ± 8.0 mrad agrees with 0 mrad that the network learnt",
    ]
    assert compared.checked == {"defocus_angstrom", "thickness_angstrom", "specimen_tilt_mrad"}
    ranged = estimated(12.0, defocus_angstrom=-90, specimen_tilt_x_mrad=40).compared_with(
        estimating()
    )
    assert ranged.outside == [
        "defocus −90 ± 12 Å lies outside of −60 … 100 Å that the network learnt",
        "specimen tilt x 40 ± 12 mrad lies outside of −5 … 5 mrad that the network learnt",
    ]
    assert estimated(12.0, defocus_angstrom=-90).lines == [
        "defocus −90 ± 12 Å: outside of −60 … 100 Å that this network was trained for"
    ]


def test_a_reconstruction_says_what_lies_outside(tmp_path, run, capsys):
    density = write_run(tmp_path / "density", experiment(aberrations={"C10": 5000}))
    data = stored(tmp_path / "scan.h5", patterns((28, 36)))
    out = tmp_path / "density.h5"
    arguments = [
        "reconstruct",
        str(data),
        "--checkpoint",
        density,
        "--out",
        str(out),
        *OPTIONS.split(),
    ]
    assert main([*arguments, "--estimator", run]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Å lies outside of −5000 Å that the network learnt" in printed
    assert "not compared: trained for thickness 20 Å, without noise" in printed
    with h5py.File(out) as file:
        provenance = json.loads(file["reconstruction"].attrs["provenance"])
    facts = provenance["estimated"]
    (line,) = facts["outside"]
    result = Reconstruction(*[np.zeros((1, 1))] * 5, *[PixelGrid((1, 1), (0, 0))] * 3, provenance)
    assert result.warnings == [line]
    assert result.outside
    assert line.startswith("defocus ")
    assert list(facts["quantities"]) == NAMES
    assert facts["model"] == load_model(run).name
    assert main([*arguments, "--estimator", density]) == 2
    assert (
        "is a network for training.task density, and estimates are asked for"
        in capsys.readouterr().err
    )


def test_scans_and_calibrations_that_do_not_fit_are_named(tmp_path, capsys):
    run = write_run(tmp_path / "run", estimating())
    data = stored(tmp_path / "scan.h5", patterns((3, 9)))
    out = str(tmp_path / "o.h5")
    arguments = ["estimate", str(data), "--checkpoint", run, "--out", out, *OPTIONS.split()]
    assert main(arguments) == 2
    assert (
        "the scan has 3 of the network's positions along one side, and it needs 4"
        in capsys.readouterr().err
    )
    calibrated(tmp_path / "run", two_sigma_factor=-1.0)
    assert main(arguments) == 2
    assert (
        "factors that are not positive: remove it, and run namsa-train calibrate again"
        in capsys.readouterr().err
    )
