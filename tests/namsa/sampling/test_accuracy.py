"""Pixels, slices and thermal configurations that are chosen, and the check that says how wrong
given ones are.
"""

import itertools
import json
import re
from pathlib import Path

import ase
import numpy as np
import pytest
import yaml
from ase.build import bulk

import namsa
from namsa.base.pixels import pattern_grid
from namsa.cli.parser import main
from namsa.config.instrument import Detector
from namsa.config.numerics import Simulation
from namsa.config.specimen import FrozenPhonons
from namsa.sampling.choice import thermal_deviation

# wurtzite in its orthogonal cell, (c, √3 a, a): the beam is along [100], layers are a/2 apart
ZINC_OXIDE = ase.Atoms(
    "Zn4O4",
    scaled_positions=[
        *((z, y, x) for z, y, x in ((0, 0, 0), (0, 0.5, 0.5), (0.5, 1 / 3, 0), (0.5, 5 / 6, 0.5))),
        *(
            (z, y, x)
            for z, y, x in (
                (0.3817, 0, 0),
                (0.3817, 0.5, 0.5),
                (0.8817, 1 / 3, 0),
                (0.8817, 5 / 6, 0.5),
            )
        ),
    ],
    cell=[5.2069, 3.2495 * 3**0.5, 3.2495],
    pbc=True,
)

URANIUM = ase.Atoms(  # α, Cmcm
    "U4",
    scaled_positions=[
        (0, 0.1025, 0.25),
        (0, 0.8975, 0.75),
        (0.5, 0.6025, 0.25),
        (0.5, 0.3975, 0.75),
    ],
    cell=[2.854, 5.869, 4.955],
    pbc=True,
)


def probes(atoms, count=3):
    ly, lx = atoms.cell.lengths()[[1, 0]]
    return np.stack(
        np.meshgrid(np.arange(count) / count * ly, np.arange(count) / count * lx), -1
    ).reshape(-1, 2)


def errors(atoms, energy_ev, semiangle_mrad, reach_mrad):
    """Of chosen pixels against 0.028 Å: of all patterns, and the largest of five rings."""
    cell = atoms.cell.lengths()
    made, finest = (
        namsa.simulate(
            atoms,
            energy_ev=energy_ev,
            semiangle_mrad=semiangle_mrad,
            positions_angstrom=probes(atoms),
            reach_mrad=reach_mrad,
            **grid,
        )
        for grid in (
            {},
            {"grid_shape": [round(cell[i] / 0.056) * 2 for i in (1, 0)], "band_fraction": 1.0},
        )
    )
    (ny, nx), (my, mx) = made.cbed.shape[1:], finest.cbed.shape[1:]
    wanted = finest.cbed[:, (my - ny) // 2 :, (mx - nx) // 2 :][:, :ny, :nx]
    angle = pattern_grid(made.provenance).distance((ny, nx))
    inside = angle < reach_mrad
    edges = np.linspace(0, reach_mrad, 6)
    rings = [(angle >= low) & (angle < high) for low, high in itertools.pairwise(edges)]
    ratios = []
    for ring in rings:
        if ring.any():
            ratios.append(made.cbed[:, ring].sum() / wanted[:, ring].sum())
    relative = np.linalg.norm((made.cbed - wanted)[:, inside]) / np.linalg.norm(wanted[:, inside])
    return relative, max(abs(np.array(ratios) - 1)), made.provenance


@pytest.mark.parametrize(
    ("atoms", "energy_ev", "semiangle_mrad", "reach_mrad"),
    [
        (bulk("Pt", "fcc", a=3.924, cubic=True) * (2, 2, 10), 200e3, 20, 52),
        (
            URANIUM * (2, 1, 6),
            80e3,
            25,
            60,
        ),  # 1.9 % if transmissions were computed on pixels half as large
        (bulk("Pb", "fcc", a=4.95, cubic=True) * (1, 2, 3), 80e3, 20, 80),
        (bulk("Si", "diamond", a=5.431, cubic=True) * (1, 1, 8), 300e3, 20, 60),
    ],
    ids=["Pt", "U", "Pb", "Si"],
)
def test_chosen_pixels_meet_the_accuracy(atoms, energy_ev, semiangle_mrad, reach_mrad):
    error, ring, provenance = errors(atoms, energy_ev, semiangle_mrad, reach_mrad)
    assert error < 0.01
    assert ring < 0.1
    assert provenance["accuracy"] == 0.01
    assert provenance["band_fraction"] == 1.0
    assert provenance["slices_follow_layers"]
    assert provenance["warnings"] == []


def test_the_rings_of_magnesium_oxide_are_those_of_finer_pixels_and_other_slices():
    """README's specimen, with what is chosen for it, against 0.039 Å and slices a fifth as
    thick.
    """
    atoms = bulk("MgO", "rocksalt", a=4.212, cubic=True) * (4, 3, 10)
    shown = {
        "energy_ev": 200e3,
        "semiangle_mrad": 20.0,
        "positions_angstrom": [(0.0, 0.0), (1.05, 1.05)],
    }
    shown["aberrations"] = {"C10": -80.0, "C30": 1e5}
    made = namsa.simulate(atoms, **shown)
    finer = namsa.simulate(
        atoms, **shown, grid_shape=(320, 432), band_fraction=1.0, slice_thickness_angstrom=0.4212
    )
    assert made.provenance["slices"] == 20
    assert finer.provenance["slices"] == 100
    np.testing.assert_allclose(made.annular(25, 45), finer.annular(25, 45), rtol=0.01)
    np.testing.assert_allclose(made.annular(65, 90), finer.annular(65, 90), rtol=0.1)


@pytest.mark.filterwarnings("always::namsa.SimulationWarning")  # which the command prints
def test_a_dataset_says_how_far_some_of_its_samples_are_from_finer_ones(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    tree = {
        "name": "few",
        "materials": {
            "builtin": ["C-227-cF8", "Al-225-cF4", "Cu-225-cF4", "Ag-225-cF4", "Au-225-cF4"]
        },
        "specimen": {"lateral_angstrom": [9, 9], "thickness_angstrom": [20, 30]},
        "microscope": {"energy_ev": 200e3, "semiangle_mrad": 20},
        "scan": {"shape": [2, 2], "step_angstrom": [0.5, 0.5]},
        "simulation": {"sampling_angstrom": 0.2},
        "detector": {"max_angle_mrad": 30},
    }
    Path("few.yaml").write_text(yaml.safe_dump(tree))
    for limit in (["--limit", "1"], []):  # the continued run warns, too
        assert main(["dataset", "few.yaml", "--out", "data", *limit]) == 0
        assert (
            "Au-225-cF4-001-30A: patterns within 30 mrad have a relative error of"
            in capsys.readouterr().err
        )
    written = Path("data/convergence.json").read_text()
    samples = json.loads(written)["samples"]
    assert {name.split("-")[0] for name in samples} == {"C", "Cu", "Au"}
    gold = samples["Au-225-cF4-001-30A"]
    assert gold["error"] > 0.02 > samples["C-227-cF8-001-20A"]["error"]
    assert gold["reference_pixel_angstrom"] == pytest.approx(gold["pixel_angstrom"] / 3)
    assert gold["problem"] is not None
    # Nothing is missing, and nothing is checked again: files of older versions are read.
    Path("data/convergence.json").write_text(written.replace("problem", "fault"))
    assert main(["dataset", "few.yaml", "--out", "data"]) == 0
    assert "Au-225-cF4-001-30A: patterns within 30 mrad have" in capsys.readouterr().err
    assert "fault" in Path("data/convergence.json").read_text()
    assert (
        main(["dataset", "few.yaml", "--out", "fewer", "--set", "specimen.thickness_angstrom=[20]"])
        == 0
    )
    assert not Path("fewer/convergence.json").exists()  # of five samples


def test_slices_that_follow_the_layers_make_no_ring():
    """ZnO [100], 300 kV: 2 Å slices beat with layers 1.625 Å apart, with a period of about 9 Å."""
    atoms = ZINC_OXIDE * (2, 2, 18)
    signals = {}
    for thickness in (None, 2.0):
        sample = namsa.simulate(
            atoms,
            energy_ev=300e3,
            semiangle_mrad=21.4,
            grid_shape=(200, 180),
            positions_angstrom=probes(atoms, 5),
            slice_thickness_angstrom=thickness,
            accuracy=None,
        )
        signals[thickness] = float(sample.annular(65, 99).mean())
        assert sample.provenance["slices"] == (36 if thickness is None else 30)
    assert signals[None] < 3e-4
    assert signals[2.0] > 10 * signals[None]


def test_atoms_stay_in_their_slices_when_they_are_displaced():
    """Atoms at the entrance that wrapped to the exit would scatter half of the beam less often."""
    shown = {"energy_ev": 200e3, "semiangle_mrad": 20.0, "grid_shape": (96, 96), "accuracy": None}
    dark = []
    for z in (0.0, 15.0):
        atoms = ase.Atoms("Au", positions=[(4, 4, z)], cell=[8, 8, 30], pbc=[True, True, False])
        phonons = FrozenPhonons(rms_angstrom=0.08, configurations=4)
        sample = namsa.simulate(atoms, positions_angstrom=[(4, 4)], frozen_phonons=phonons, **shown)
        dark.append(float(sample.annular(30)[0]))
    assert dark[0] == pytest.approx(dark[1], rel=0.1)


def test_given_pixels_are_judged():
    gold = bulk("Au", "fcc", a=4.078, cubic=True) * (2, 2, 12)
    arguments = {"energy_ev": 300e3, "semiangle_mrad": 21.4, "positions_angstrom": [(1.0, 1.0)]}
    with pytest.warns(
        namsa.SimulationWarning,
        match=r"pixels of 0\.146 Å give patterns a relative error of about \d+",
    ):
        sample = namsa.simulate(
            gold, grid_shape=(56, 56), slice_thickness_angstrom=2.039, **arguments
        )
    assert any("leave grid_shape" in text for text in sample.provenance["warnings"])
    beam = {"energy_ev": 300e3, "semiangle_mrad": 21.4, "detector": Detector(max_angle_mrad=37)}
    convergence = namsa.check_convergence(
        gold, **beam, grid_shape=(56, 56), slice_thickness_angstrom=2.039
    )
    assert convergence.error > 0.1
    assert convergence.lost > 0.1 > convergence.lost_in_reference
    assert "relative error of" in convergence.problem
    assert convergence.advice < 0.07


def test_the_check_tells_the_statistical_error_of_thermal_configurations():
    """Of four it is half as large as that of one, about what is predicted, and the fault has the
    number needed.
    """
    silver = bulk("Ag", "fcc", a=4.085, cubic=True) * (2, 2, 2)
    arguments = {
        "energy_ev": 200e3,
        "semiangle_mrad": 20.0,
        "detector": Detector(max_angle_mrad=40),
    }

    def check(count, **changes):
        phonons = FrozenPhonons(rms_angstrom=0.09, configurations=count)
        return namsa.check_convergence(silver, frozen_phonons=phonons, **arguments | changes)

    four = check(4)
    many = check(16)
    assert (four.configurations, many.configurations) == (4, 16)
    assert four.statistical_error == pytest.approx(2 * many.statistical_error)
    assert (
        0.3
        < four.statistical_error
        / (thermal_deviation(silver, FrozenPhonons(rms_angstrom=0.09), 200e3, 20) / 2)
        < 2
    )
    needed = int(
        re.search(r"of 4 configurations of the atoms, .* takes about (\d+)", four.problem)[1]
    )
    assert needed == pytest.approx(4 * (four.statistical_error / 0.01) ** 2, abs=1)
    assert check(4, accuracy=0.3).problem is None
    assert check("auto", accuracy=0.05).configurations > 1
    assert namsa.check_convergence(silver, **arguments).statistical_error == 0
    still = namsa.check_convergence([silver, silver], **arguments)
    assert (still.configurations, still.statistical_error) == (2, 0)


def test_rings_beyond_the_band_limit_are_refused():
    silver = bulk("Ag", "fcc", a=4.085, cubic=True) * (2, 2, 2)
    sample = namsa.simulate(
        silver,
        energy_ev=200e3,
        semiangle_mrad=20.0,
        grid_shape=(64, 64),
        positions_angstrom=[(0, 0)],
        accuracy=None,
    )
    with pytest.raises(namsa.InputError, match=r"band limit of 65\.5 mrad"):
        sample.annular(70, 90)
    with pytest.warns(
        namsa.SimulationWarning, match=r"cut at the simulation's band limit of 65\.5 mrad"
    ):
        sample.annular(50, 90)


def test_automatic_settings_are_the_default_of_each_other():
    assert Simulation().sampling_angstrom == "auto"
    assert Simulation().slice_thickness_angstrom == "auto"
    assert Simulation(sampling_angstrom="auto").slice_thickness_angstrom == "auto"
    assert (
        Simulation(sampling_angstrom="auto", slice_thickness_angstrom=2.0).slice_thickness_angstrom
        == 2.0
    )
    assert Simulation(sampling_angstrom=0.1).slice_thickness_angstrom == 2.0


def test_a_grid_so_coarse_that_its_reference_leaves_rings_dark_is_judged_by_the_others():
    """Pixels of 0.6 Å hold 14 mrad, and those of the reference 28."""
    aluminium = bulk("Al", cubic=True).repeat((3, 3, 1))
    convergence = namsa.check_convergence(
        aluminium, energy_ev=200e3, semiangle_mrad=10.0, grid_shape=(20, 21)
    )
    assert convergence.reach_mrad > 40
    assert 0 < len(convergence.rings) < 5
    for ring in convergence.rings:
        assert np.isfinite(ring.error)


# ---- The number of thermal configurations
# ---------------------------------------------------------------------------
