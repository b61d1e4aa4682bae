"""What a model's card says of its dataset."""

import pytest
from paths import CONFIGS

from train.experiment.experiment import load
from train.reports import card_sections


@pytest.mark.parametrize(
    ("name", "words"),
    [("quickstart", "slices of 2 Å; hash"), ("microscope", "slices for errors of 0.01 of the patterns; hash")],
)
def test_the_data_say_how_thick_slices_are_also_where_they_follow_from_the_accuracy(name, words):
    counts = {"train": 8, "dev": 1, "test": 1}
    strata = {
        **dict.fromkeys(("samples", "materials", "formulas"), counts),
        "elements": {"Si": counts},
        "sources": ["builtin"],
        "crystal_systems": {"cubic": counts},
    }
    assert words in "\n".join(card_sections.data(load(CONFIGS / f"{name}.yaml"), strata))
