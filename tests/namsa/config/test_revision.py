"""Samples of two physics are not mixed: what changes their numbers changes their hash."""

import json

import pytest
import reference_patterns
from reference_patterns import CASES, FILE, configuration, differences, numbers

from namsa.config import simulation
from namsa.config.simulation import REVISIONS

STORED = json.loads(FILE.read_text())
REMEDY = """
the physics gives samples of the group {group!r} other numbers than revision {revision} did. If that
is meant, raise REVISIONS[{group!r}] in namsa/config/simulation.py, so that no dataset is continued
with other physics; then write the numbers anew:
    PYTHONPATH=. python tests/support/reference_patterns.py"""
SAMPLES = [(group, name) for group, cases in CASES.items() for name in cases]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::namsa.SimulationWarning")  # small cells, few configurations
@pytest.mark.parametrize(("group", "name"), SAMPLES)
def test_reference_patterns_are_those_of_the_revision(group, name):
    stored = STORED[group]
    message = REMEDY.format(group=group, revision=stored["revision"])
    assert REVISIONS[group] == stored["revision"], message
    changed = differences(numbers(CASES[group][name]), stored["cases"][name])
    assert not changed, message


@pytest.mark.parametrize(("group", "name"), SAMPLES)
def test_the_hash_of_a_case_has_the_revision_of_its_group(group, name, monkeypatch):
    config = configuration(CASES[group][name])
    before = config.samples_hash()
    for other, revision in REVISIONS.items():
        monkeypatch.setattr(simulation, "REVISIONS", REVISIONS | {other: revision + 1})
        assert (config.samples_hash() != before) == (other == group)


def test_other_physics_fails_with_the_remedy(monkeypatch):
    """As with a constant of the potential that is wrong by one part in a thousand."""
    from namsa.physics import potential

    monkeypatch.setattr(potential, "POTENTIAL_CONSTANT", potential.POTENTIAL_CONSTANT * 1.001)
    with pytest.raises(AssertionError, match=r"raise REVISIONS\['given'\]"):
        test_reference_patterns_are_those_of_the_revision("given", "pixels and slices")


def test_changed_numbers_are_not_written_before_the_revision_is_raised(tmp_path, monkeypatch):
    path = tmp_path / "numbers.json"
    monkeypatch.setattr(reference_patterns, "FILE", path)
    rings = {"rings": [1.0]}
    monkeypatch.setattr(reference_patterns, "numbers", lambda sections: rings)
    reference_patterns.write()
    rings["rings"] = [1.001]
    with pytest.raises(SystemExit, match=r"rings changed: first raise REVISIONS\['given'\]"):
        reference_patterns.write()
    raised = {group: revision + 1 for group, revision in REVISIONS.items()}
    monkeypatch.setattr(reference_patterns, "REVISIONS", raised)
    reference_patterns.write()
    written = json.loads(path.read_text())
    assert {group: values["revision"] for group, values in written.items()} == raised
