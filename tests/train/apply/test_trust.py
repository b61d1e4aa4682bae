"""Trust in true and in false densities, by their simulation."""

import numpy as np
import plane_of_atoms
import pytest

from namsa import InputError
from namsa.inverse import mott_bethe
from train.__main__ import main
from train.apply.models import Model, ModelCalibration
from train.apply.trust import KnownSpecimen, window_simulation
from train.experiment.conditions import conditions

THICKNESS = plane_of_atoms.THICKNESS


@pytest.fixture(scope="module")
def silicon():
    """Of the window that is all of the scan: density and patterns."""
    simulated, density = plane_of_atoms.sample(plane_of_atoms.crystal())
    return density, simulated.cbed.reshape(*density.shape, 16, 16)


def model(folder):
    # The step and the origin of the trained scan are not those of the data.
    scan = {"shape": (24, 24), "step_angstrom": (1.0, 1.0), "origin_angstrom": "random"}
    experiment = plane_of_atoms.EXPERIMENT
    trained = experiment.model_copy(update={"scan": experiment.scan.model_copy(update=scan)})
    return Model("silicon", folder, folder / "weights.npz", trained, conditions(trained), ModelCalibration())


def test_a_true_density_is_trusted_and_false_ones_are_not(tmp_path, silicon):
    density, patterns = silicon
    specimen = KnownSpecimen(THICKNESS, "Si")
    trust = window_simulation(specimen, model(tmp_path), density.shape, plane_of_atoms.STEP).trust
    true = trust(density, patterns)
    assert 0.5 < true < 1
    assert trust(np.roll(density, 4, axis=0), patterns) < 0.4 * true
    assert trust(np.full_like(density, density.mean()), patterns) < 0.05
    assert trust(2 * density, patterns) < 0.9 * true


def test_a_transfer_beside_the_weights_stands_for_a_formula(tmp_path, silicon):
    density, patterns = silicon
    window, step = density.shape, plane_of_atoms.STEP
    with pytest.raises(InputError, match="no transfer.json: give --formula"):
        window_simulation(KnownSpecimen(THICKNESS), model(tmp_path), window, step)
    with pytest.raises(InputError, match="--formula Sili is no chemical formula"):
        window_simulation(KnownSpecimen(THICKNESS, "Sili"), model(tmp_path), window, step)
    mott_bethe.write(mott_bethe.from_elements({"Si": 1}, plane_of_atoms.MAX_Q), tmp_path / "transfer.json")
    from_formula, from_file = (
        window_simulation(KnownSpecimen(THICKNESS, formula), model(tmp_path), window, step).trust(density, patterns)
        for formula in ("Si", None)
    )
    assert from_file == pytest.approx(from_formula)


def test_a_refined_density_is_trusted_more(tmp_path, silicon):
    density, patterns = silicon
    rough = density + 0.2 * np.std(density) * np.random.default_rng(4).normal(size=density.shape)
    specimen = KnownSpecimen(THICKNESS, "Si")
    simulation = window_simulation(specimen, model(tmp_path), density.shape, plane_of_atoms.STEP)
    refined = simulation.refined(rough, patterns, steps=8)
    assert refined.shape == density.shape
    assert simulation.trust(refined, patterns) > simulation.trust(rough, patterns)


def test_refinement_without_a_thickness_is_bad_input(tmp_path, capsys):
    words = ["reconstruct", "data.h5", "--checkpoint", "none", "--out", str(tmp_path / "out.h5"), "--refine-steps", "5"]
    assert main(words) == 2
    assert "takes --thickness-angstrom, too" in capsys.readouterr().err
