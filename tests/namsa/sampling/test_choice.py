"""Pixels and slices that are chosen: what they follow from."""

import ase
import numpy as np
import pytest
from ase.build import bulk

import namsa
from namsa.physics import specimen
from namsa.physics.grid import Grid
from namsa.sampling import resolution
from namsa.sampling.resolution import Illumination
from namsa.sampling.slicing import plan_slices
from namsa.setup.settings import settings_of


def test_the_choice_follows_elements_thickness_energy_and_detector():
    def pixel(symbol, thickness=80.0, energy_ev=200e3, reach=30.0, accuracy=0.01):
        atoms = bulk(symbol, "fcc", a=4.05, cubic=True) * (2, 2, round(thickness / 4.05))
        columns = resolution.measure_columns(specimen.atom_list(atoms), (8.1, 8.1))
        beam = Illumination(energy_ev, 20.0)
        return resolution.largest_pixel(columns, beam, reach, accuracy)

    assert pixel("Au") < pixel("Ag") < pixel("Al")
    assert pixel("Au", 300) < pixel("Au")
    assert pixel("Au", energy_ev=60e3) < pixel("Au")
    assert pixel("Au", accuracy=0.002) < pixel("Au") < pixel("Au", accuracy=0.05)
    assert pixel("Al", reach=200.0) == pytest.approx(0.6 * 0.02508 / 0.4, rel=0.03)


def choose(atoms, **changed):
    """Returns the pixels and slices that are chosen, without any work."""
    arguments = {"energy_ev": 200e3, "semiangle_mrad": 20.0, "reach_mrad": 30.0, "backend": "cpu"}
    return plan_slices(atoms, settings_of(arguments | changed), overlaps=True)


def test_tilts_and_high_accuracy_reach_pixels_and_slices():
    glass = ase.Atoms("Si200", np.random.default_rng(3).uniform(0, 20, (200, 3)), cell=[20] * 3)
    upright = choose(glass)
    beam = choose(glass, beam_tilt_mrad=(0.0, 70.0))
    assert beam.grid.band_limit * 0.02508 > 0.070 + 0.020
    assert max(beam.grid.sampling_angstrom) < max(upright.grid.sampling_angstrom)
    tilted = choose(glass, specimen_tilt_mrad=(60.0, 0.0))
    accurate = choose(glass, accuracy=0.001)
    assert tilted.slices > upright.slices
    assert accurate.slices > 1.5 * upright.slices


def test_an_atom_far_below_changes_no_pixels():
    platinum = bulk("Pt", "fcc", a=3.924, cubic=True) * (2, 2, 8)
    platinum.pbc = (True, True, False)
    platinum.cell[2, 2] = 1000.0
    with_hydrogen = platinum + ase.Atoms("H", positions=[(1, 1, 980.0)])
    pixels = choose(platinum).grid.shape
    assert choose(with_hydrogen).grid.shape == pixels


def test_a_column_that_stands_alone_has_nearly_the_pixels_of_a_crystal():
    column = ase.Atoms("Au25", positions=[(8, 8, 4.08 * n) for n in range(25)], cell=[16, 16, 102])
    crystal = bulk("Au", "fcc", a=4.08, cubic=True) * (4, 4, 25)
    alone, among = (max(choose(atoms).grid.sampling_angstrom) for atoms in (column, crystal))
    assert alone < 1.1 * among


def test_narrow_probes_in_thick_specimens_have_smaller_pixels():
    gold = bulk("Au", "fcc", a=4.08, cubic=True) * (2, 2, 60)
    wide, parallel = (
        max(choose(gold, semiangle_mrad=angle).grid.sampling_angstrom) for angle in (10.0, 0.0)
    )
    assert parallel < 0.75 * wide


def test_each_snapshot_has_the_slices_of_its_own_atoms():
    rng = np.random.default_rng(5)
    frames = []
    for _ in range(30):
        frames.append(ase.Atoms("Si80", rng.uniform(0, 12, (80, 3)), cell=[12] * 3, pbc=True))
    together = choose(frames)
    alone = [choose(frame).slices for frame in frames]
    assert [plan.count for plan in together.plans] == alone
    assert min(alone) > 5


def test_a_message_about_chosen_pixels_says_what_needs_them():
    wide = bulk("Au", "fcc", a=4.08, cubic=True)
    wide.cell[0, 0] = 30_000.0
    with pytest.raises(namsa.InputError, match=r"which an accuracy of 1.00% within 30 mrad needs"):
        choose(wide)


def test_columns_count_alike_whatever_the_cell():
    one = bulk("W", "bcc", a=3.165, cubic=True)
    strengths = []
    for cell in (one * (2, 2, 20), one * (5, 3, 20)):
        strengths.append(
            resolution.measure_columns(
                specimen.atom_list(cell), tuple(cell.cell.lengths()[[1, 0]])
            ).strength
        )
    np.testing.assert_allclose(strengths, 2 * (74 / 3.165) ** 2 / 3.165**2, rtol=0.1)
    wider = Grid((64, 64), (6.4, 6.4))
    columns = resolution.measure_columns(specimen.atom_list(one * (2, 2, 20)), (6.33, 6.33))
    whole_band = Grid((64, 64), (6.4, 6.4), 1.0)
    beam = Illumination(200e3, 20.0)
    assert resolution.expected_error(columns, beam, wider) > resolution.expected_error(
        columns, beam, whole_band
    )
