"""The projected potential as the target: its values, its scale, a job and its report."""

from dataclasses import replace

import numpy as np
import pytest
from fake_samples import sample

from namsa import InputError
from namsa.dataset import records
from train.__main__ import main as command
from train.apply.models import load_model
from train.experiment.experiment import load
from train.tasks.density.results import target_image

JOB = {
    "target": {"kind": "potential", "max_q_per_angstrom": 1.0},
    "training": {
        "epochs": 1,
        "inputs": {"potential_scale_v_angstrom": 50},
        "optimizer": {"learning_rate": 1e-3},
    },
}


def wave(max_q, kind):
    """The target of a plane wave of 2/18 1/Å along x and 1/16 along y on a grid of 8 × 10 pixels
    over 16 × 18 Å.
    """
    y, x = np.mgrid[:8, :10] / np.array([8, 10])[:, None, None]
    potential = (100 + 80 * np.cos(2 * np.pi * (y + 2 * x))).astype(np.float32)
    with_potential = replace(
        sample(density_max_q_per_angstrom=max_q), projected_potential=potential
    )
    return target_image(records.decode(records.encode(with_potential)), kind)


@pytest.mark.slow
def test_the_target_is_the_potential_at_the_pixels_and_in_the_band_of_the_density():
    # pixels of the density, Å
    y = 1.0 + 0.5 * np.arange(2)
    x = 3.0 + 0.25 * np.arange(3)
    q = np.hypot(1 / 16, 2 / 18)
    window = 0.5 * (1 + np.cos(np.pi * q / 0.2))
    expected = 100 + 80 * window * np.cos(2 * np.pi * (y[:, None] / 16 + 2 * x / 18))
    np.testing.assert_allclose(wave(0.2, "potential"), expected, rtol=1e-5)
    standard = wave(0.2, "standardised_potential")
    np.testing.assert_allclose(standard, (expected - expected.mean()) / expected.std(), atol=1e-3)
    assert standard.dtype == np.float32
    np.testing.assert_allclose(
        wave(0.1, "standardised_potential"), 0, atol=1e-4
    )  # the band ends before the wave


@pytest.mark.slow
def test_a_job_learns_the_potential_of_samples_that_serve_a_density_too(
    run_dir, evaluation, page, opened
):
    experiment, dataset, entries = opened
    assert evaluation["target"] == "potential"
    density = load(
        run_dir / "config.yaml",
        ["target.kind=density", "training.inputs.potential_scale_v_angstrom=null"],
    )
    assert density.samples_hash() == experiment.samples_hash()
    mean = np.mean(
        [target_image(dataset.read(e.id), "potential") for e in entries if e.split == "train"],
        axis=0,
    )
    for row in evaluation["samples"]:
        truth = target_image(dataset.read(row["id"]), "potential")
        assert truth.mean() > 20  # V·Å; the density is of other numbers
        assert row["mean_predictor"]["mae"] == pytest.approx(np.abs(mean - truth).mean(), rel=1e-4)
    assert "reconstructs the projected potential with" in page
    assert "MAE, V·Å" in page
    assert "e/Å²" not in page


@pytest.mark.slow
def test_a_network_of_a_potential_is_not_taken_for_one_of_a_density(run_dir, capsys):
    assert command(["calibrate", str(run_dir)]) == 2
    assert "network for target.kind potential" in capsys.readouterr().err
    assert command(["evaluate", str(run_dir)]) == 0
    with pytest.raises(InputError, match="network for target.kind potential"):
        _ = load_model(run_dir).network


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "target.kind=density",
            "potential_scale_v_angstrom is for target.kind potential, not density",
        ),
        (
            "training.inputs.density_scale_e_per_angstrom2=3",
            "is for target.kind density, not potential",
        ),
        ("target.depth_bins=2", "needs 2"),
    ],
)
def test_a_scale_of_another_target_is_refused(config, override, message):
    with pytest.raises(InputError, match=message):
        load(config, [override])
