"""The number of thermal configurations that follows from the accuracy."""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from ase.build import bulk

import namsa
from namsa.config.specimen import FrozenPhonons
from namsa.sampling.slicing import plan_slices
from namsa.setup.settings import settings_of


def test_every_shipped_configuration_is_in_the_table_of_errors():
    root = Path(__file__).parents[3]
    table = (root / "docs/benchmarks/simulation.md").read_text()
    simulated = []
    for path in root.glob("configs/*.yaml"):
        if "simulation" in yaml.safe_load(path.read_text()):
            simulated.append(path.stem)
    assert len(simulated) > 15
    assert [
        name
        for name in simulated
        if not re.search(rf"^\| {name}(, chosen)? \|", table, re.MULTILINE)
    ] == []


GOLD = bulk("Au", "fcc", a=4.078, cubic=True) * (2, 3, 15)
GERMANIUM = bulk("Ge", "diamond", a=5.658, cubic=True) * (2, 3, 14)
IRON = bulk("Fe", "bcc", a=2.866, cubic=True) * (4, 3, 18)
SALT = bulk("NaCl", "rocksalt", a=5.64, cubic=True) * (3, 2, 7)
CASES = {  # atoms, u in Å, energy in eV, semi-angle in mrad, accuracy, pixels
    "gold": (GOLD, 0.085, 200e3, 21.0, 0.12, (72, 50)),
    "germanium": (GERMANIUM, 0.08, 300e3, 15.0, 0.04, (108, 72)),
    "iron": (IRON, 0.06, 80e3, 24.0, 0.05, (54, 72)),
    "salt": (SALT, {"Na": 0.14, "Cl": 0.13}, 200e3, 17.5, 0.03, (72, 108)),
}


def simulated(case, seed=0, **changed):
    atoms, rms, energy_ev, semiangle_mrad, accuracy, shape = CASES[case]
    lx, ly, _ = atoms.cell.lengths()
    arguments = {
        "energy_ev": energy_ev,
        "semiangle_mrad": semiangle_mrad,
        "positions_angstrom": np.stack(np.mgrid[:10, :10], -1).reshape(-1, 2) / 10 * (ly, lx),
        "grid_shape": shape,
        "band_fraction": 1.0,
        "accuracy": accuracy,
        "frozen_phonons": FrozenPhonons(rms_angstrom=rms, configurations="auto"),
        "seed": seed,
    }
    return namsa.simulate(atoms, **arguments | changed)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:pixels of")
@pytest.mark.parametrize("case", CASES)
def test_means_of_the_chosen_number_differ_by_the_accuracy(case):
    """Two independent means differ by √2 of the error of each. The formula was fitted to none of
    these crystals.
    """
    one, other = (simulated(case, seed) for seed in (0, 1))
    error = (
        np.linalg.norm(one.cbed - other.cbed) / 2**0.5 / np.linalg.norm((one.cbed + other.cbed) / 2)
    )
    accuracy = CASES[case][4]
    assert 4 <= one.provenance["frozen_phonons"]["configurations"] < 30
    assert accuracy / 2 < error < accuracy


def test_the_number_follows_from_the_accuracy_and_the_snapshots():
    """A quarter of the error takes sixteen times as many; atoms at rest take one."""

    def chosen(atoms, accuracy, rms=0.085, **changed):
        asked = FrozenPhonons(rms_angstrom=rms, configurations="auto")
        settings = settings_of(
            {
                "energy_ev": 200e3,
                "semiangle_mrad": 21.0,
                "reach_mrad": 40.0,
                "accuracy": accuracy,
                "frozen_phonons": asked,
                "backend": "cpu",
            }
        )
        slicing = plan_slices(atoms, settings)
        assert slicing.statistical_error <= accuracy
        return slicing.settings.frozen_phonons.configurations

    fine = chosen(GOLD, 0.02)
    assert fine == pytest.approx(16 * chosen(GOLD, 0.08), abs=16)
    assert chosen([GOLD, GOLD], 0.02) == pytest.approx(fine / 2, abs=1)
    assert chosen(GOLD, 0.02, rms=0.0) == 1
    assert chosen(GOLD * (2, 1, 1), 0.02) == pytest.approx(fine, rel=0.05)
    with pytest.raises(namsa.InputError, match="ask for an accuracy of 0.[0-9]+% or more"):
        chosen(GOLD, 0.001)


@pytest.mark.filterwarnings("ignore:pixels of")
def test_a_given_number_is_judged():
    few = FrozenPhonons(rms_angstrom=0.085, configurations=2)
    with pytest.warns(
        namsa.SimulationWarning, match=r"of 2 thermal configurations, a statistical error of about"
    ):
        sample = simulated("gold", frozen_phonons=few, positions_angstrom=[(1, 1)])
    assert any(
        "set frozen_phonons.configurations to 'auto'" in text
        for text in sample.provenance["warnings"]
    )
    assert sample.provenance["frozen_phonons"]["configurations"] == 2
    silent = simulated("gold", frozen_phonons=few, positions_angstrom=[(1, 1)], accuracy=None)
    for text in silent.provenance["warnings"]:
        assert "statistical" not in text
