"""Which networks a message names for a microscope."""

from train.apply.nearest import nearest_networks


def test_the_nearest_networks_of_the_task_are_named_with_what_differs():
    text = nearest_networks(80e3, 26.0, "density")
    assert text.startswith("The nearest of the package: 80kv-25mrad (80 keV, 25 for 26 mrad), ")
    assert "200kv-20mrad-reality (200 for 80 keV, 20 for 26 mrad)" in text
    assert "embed" not in text
    assert "Which network fits my microscope" in text
