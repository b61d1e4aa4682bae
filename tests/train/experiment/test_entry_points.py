"""Strategies and tasks of other packages, which are found by entry points."""

import json
import sys

import pytest
from installed_package import install
from paths import CONFIGS
from tiny import rows, write_config

from namsa import InputError
from train.experiment.data import SourceSection
from train.experiment.experiment import load
from train.input.source import SampleSource, source_of
from train.main import train
from train.tasks import registry, task_of
from train.tasks.reporting import report_of
from train.tasks.scan_command import commands_of

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


TASK = """
from dataclasses import dataclass

from train.optimization.losses import DensityObjective
from train.tasks.density.task import Density


@dataclass(frozen=True)
class Weighed(DensityObjective):
    factor: float = 1.0

    def __call__(self, output, target, setting):
        first, *others = super().__call__(output, target, setting)
        return (self.factor * first, *others)


@dataclass(frozen=True)
class Doubled(Density):
    @property
    def factor(self):
        return self.experiment.training.arguments["factor"]

    @property
    def objective(self):
        return Weighed(self.experiment.training.loss, self.split, self.factor)


TASK = Doubled
"""
RULES = """
from train.tasks.density import rules


def check(experiment):
    rules.check(experiment)
    if experiment.training.arguments.keys() != {"factor"}:
        raise ValueError("training.arguments must be factor alone")
"""


@pytest.fixture
def package_of_task(tmp_path, monkeypatch):
    modules = {
        "own_task_of_test/__init__.py": "",
        "own_task_of_test/rules.py": RULES,
        "own_task_of_test/task.py": TASK,
        "own_task_of_test/report.py": "from train.tasks.density.report.report import REPORT",
    }
    install(tmp_path, monkeypatch, modules, "namsa.tasks", {"doubled": "own_task_of_test"})
    yield
    for name in [name for name in sys.modules if name.startswith("own_task_of_test")]:
        del sys.modules[name]


@pytest.mark.usefixtures("package_of_task")
def test_a_task_of_another_package_is_chosen_by_its_name():
    experiment = load(QUICKSTART, ["training.task=doubled", "training.arguments={factor: 2}"])
    assert task_of(experiment).factor == 2
    assert report_of("doubled") is report_of("density")
    with pytest.raises(InputError, match="training.arguments must be factor alone"):
        load(QUICKSTART, ["training.task=doubled"])
    with pytest.raises(InputError, match="the task doubled has no module card: a task needs rul"):
        registry.part("doubled", "card")
    assert commands_of("doubled") == ()


@pytest.mark.slow
@pytest.mark.usefixtures("package_of_task")
def test_a_task_of_another_package_trains_from_samples_to_the_report(tmp_path):
    """With a factor of 0, all that is left of the loss is its L2."""
    run = tmp_path / "run"
    changes = ["training.task=doubled", "training.arguments={factor: 0}", "training.steps=1"]
    changes += ["network.layers=[1]"]
    train(write_config(tmp_path), changes, run)
    (row,) = rows(run)
    assert row["huber"] == 0
    assert row["loss"] == row["l2"]
    evaluation = json.loads((run / "evaluation.json").read_text())
    assert evaluation["mean"]["huber"] > 0
    assert "Electron density from 4D-STEM" in (run / "report.html").read_text()
    assert load(run / "config.yaml").training.task == "doubled"


def test_without_the_package_the_task_is_unknown_and_those_known_are_listed():
    with pytest.raises(InputError, match="must be 'density', .*'estimate'; a task of another"):
        load(QUICKSTART, ["training.task=doubled"])
    with pytest.raises(InputError, match="arguments are for tasks of other packages, and task is"):
        load(QUICKSTART, ["training.arguments={factor: 2}"])
