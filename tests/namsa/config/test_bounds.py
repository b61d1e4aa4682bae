"""Pairs of a configuration that one number stands for."""

import pytest

import namsa


def test_one_number_is_a_square_step_shape_and_cell():
    scan = namsa.Scan(shape=8, step_angstrom=0.4)
    assert scan.shape == (8, 8)
    assert scan.step_angstrom == (0.4, 0.4)
    assert namsa.Specimen(lateral_angstrom=20).lateral_angstrom == (20.0, 20.0)
    assert namsa.Detector(shape=16).shape == (16, 16)


def test_one_number_is_a_list_of_one_thickness_and_one_direction_of_one_axis():
    specimen = namsa.Specimen(thickness_angstrom=40, zone_axes=[1, 1, 0])
    assert specimen.thickness_angstrom == (40.0,)
    assert specimen.zone_axes == ((1, 1, 0),)


def test_an_energy_in_kev_is_refused_with_the_number_to_give():
    with pytest.raises(namsa.InputError, match="Is it in keV. Then give 300e3"):
        namsa.Microscope(energy_ev=300)


@pytest.mark.parametrize("wrong", [True, -1.0, [1.0, 2.0, 3.0]])
def test_what_is_no_step_is_refused(wrong):
    with pytest.raises(namsa.InputError, match="step_angstrom"):
        namsa.Scan(step_angstrom=wrong)
