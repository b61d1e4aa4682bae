"""The pictures at the head of guides."""

import docs_diagrams
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


def test_every_kind_of_exchange_and_of_source_stands_in_its_picture():
    shown = " ".join(
        text.get_text() for text in docs_pictures.exchange_kinds().axes[0].get_yticklabels()
    )
    kinds = [path.parent.name for path in ROOT.glob("train/strategies/exchange/*/section.py")]
    assert len(kinds) == 4  # and allreduce, the default
    assert [kind for kind in kinds if kind not in shown] == []
    shown = " ".join(text.get_text() for text in docs_pictures.sources().axes[0].texts)
    kinds = [path.parent.name for path in ROOT.glob("train/strategies/source/*/section.py")]
    assert len(kinds) > 5
    assert [kind for kind in kinds if kind not in shown] == ["fixed"]  # the same at any place


def test_the_layers_of_the_picture_are_parts_of_the_packages():
    for package, layers in docs_diagrams.STACKS.items():
        for name in ", ".join(layers).split(", "):
            module = ROOT / package / name.removesuffix("/TASK")
            assert module.is_dir() or module.with_suffix(".py").is_file(), name
