"""The experiments that ship are valid, and editors are given the schema of today's configuration."""

import json
from pathlib import Path

import pytest

from namsa import InputError
from train.config import Experiment, load

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize("name", ["quickstart", "summit", "paper"])
def test_shipped_experiments_are_valid(name):
    assert load(CONFIGS / f"{name}.yaml").name == name


def test_the_schema_is_that_of_the_code():
    """Written by CONTRIBUTING.md's command."""
    assert json.loads((CONFIGS / "schema.json").read_text()) == json.loads(json.dumps(Experiment.model_json_schema()))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("network.input_shape=[256, 24, 28]", r"set it to \[256, 24, 24\]"),
        ("training.inputs.layout=detector", r"set it to \[576, 16, 16\]"),
        ("target.at=grid", "the target's shape"),
        ("network.grwoth=3", "unknown key network.grwoth; did you mean growth"),
        ("training.epocs=3", "unknown key training.epocs; did you mean epochs"),
        ("detector=null", "give detector or simulation.grid_shape"),
    ],
)
def test_what_does_not_go_together_is_told_with_the_remedy(override, message):
    with pytest.raises(InputError, match=message):
        load(CONFIGS / "quickstart.yaml", [override])
