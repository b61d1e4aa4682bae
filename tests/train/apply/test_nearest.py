"""Which networks a message names for a microscope."""

from train.apply.nearest import nearest_networks


def test_the_nearest_networks_are_named_with_energy_and_angle():
    text = nearest_networks(80e3, 25.0)
    assert text.startswith("The nearest of the package: 80kv-25mrad (density, 80 keV, 25 mrad), ")
    assert "Which network fits my microscope" in text
