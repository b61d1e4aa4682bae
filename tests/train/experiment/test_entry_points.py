"""Strategies of other packages, which are found by entry points."""

import sys

import pytest
from installed_package import install
from paths import CONFIGS

from namsa import InputError
from train.experiment.data import SourceSection
from train.experiment.experiment import load
from train.input.source import SampleSource, source_of

QUICKSTART = CONFIGS / "quickstart.yaml"
SECTION = """
from typing import Literal

from train.experiment.data import SourceSection


class OwnSource(SourceSection):
    kind: Literal["own_of_test"] = "own_of_test"
    count: int = 3
"""
SOURCE = """
from train.input.source import SampleSource


class OwnSamples(SampleSource):
    pass


SOURCE = OwnSamples
"""


@pytest.fixture
def other_package(tmp_path, monkeypatch):
    modules = {
        "own_source_of_test/__init__.py": "",
        "own_source_of_test/section.py": SECTION,
        "own_source_of_test/source.py": SOURCE,
    }
    points = {"own_of_test": "own_source_of_test"}
    install(tmp_path, monkeypatch, modules, "namsa.strategies.source", points)
    yield
    SourceSection.variants.pop("own_of_test", None)
    for name in [name for name in sys.modules if name.startswith("own_source_of_test")]:
        del sys.modules[name]


@pytest.mark.usefixtures("other_package")
def test_a_source_of_another_package_is_chosen_by_its_name():
    experiment = load(QUICKSTART, ["data.source={kind: own_of_test, count: 5}"])
    assert experiment.data.source.count == 5
    source = source_of(experiment)
    assert isinstance(source, SampleSource)
    assert type(source).__name__ == "OwnSamples"
    with pytest.raises(InputError, match=r"data.source.count: must be a whole number"):
        load(QUICKSTART, ["data.source={kind: own_of_test, count: many}"])


def test_without_the_package_the_kind_is_unknown():
    with pytest.raises(InputError, match="kind 'own_of_test' is none of simulated"):
        load(QUICKSTART, ["data.source.kind=own_of_test"])
