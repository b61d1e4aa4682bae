"""Which networks a message names for a microscope."""

from train.apply.nearest import nearest_networks


def test_the_nearest_networks_of_the_task_are_named_with_what_differs():
    text = nearest_networks(80e3, 26.0, "density")
    assert text.startswith("The nearest of the package: 80kv-25mrad (80 keV, 25 for 26 mrad), ")
    assert "200kv-20mrad-reality (200 for 80 keV, 20 for 26 mrad)" in text
    assert "embed" not in text
    assert "Which network fits my microscope" in text


def test_networks_that_fit_are_named_alone_and_none_is_said():
    text = nearest_networks(80e3, 26.0, "density", lambda other: other.energy_ev == 80e3)
    assert text.startswith("These of the package fit: 80kv-25mrad (80 keV, 25 for 26 mrad). ")
    text = nearest_networks(200e3, 25.0, "density", lambda other: False)
    assert text.startswith("None of the package fits; the nearest: 200kv-20mrad-")
