"""The pictures at the head of guides."""

import docs_pictures
from paths import ROOT


def test_every_network_of_the_package_stands_in_the_picture():
    figure = docs_pictures.which_network()
    shown = set()
    for text in figure.axes[0].texts:
        shown.update(text.get_text().splitlines())
    assert shown == {path.parent.name for path in ROOT.glob("train/models/*/config.yaml")}


def test_every_neighbouring_network_has_a_bar():
    bars = docs_pictures.networks().axes[0].patches
    assert len(bars) == len(list((ROOT / "configs/neighbours").glob("*.yaml")))
    widths = [bar.get_width() for bar in bars]
    assert widths == sorted(widths)
