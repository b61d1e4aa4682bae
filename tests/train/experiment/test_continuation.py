"""Effects of changed keys on a continued run: every key has an effect, and each its test."""

import json
import re
import typing

import pytest
import yaml
from paths import ROOT
from pydantic import BaseModel
from tiny import write_config

from namsa.base.errors import InputError
from train.experiment import continuation
from train.experiment.continuation import EFFECTS, Effect
from train.experiment.experiment import Experiment, load


def sections(annotation):
    """The sections in a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    for argument in typing.get_args(annotation):
        yield from sections(argument)


def keys(section, prefix="", around=()):
    """All keys of a section and of those in it, of all kinds that are imported.

    Args:
        around: The sections that this one is in. One that may contain itself is followed once.
    """
    if section in around:
        return
    for name, field in section.model_fields.items():
        inner = list(sections(field.annotation))
        for one in inner:
            for variant in [one, *getattr(one, "variants", {}).values()]:
                yield from keys(variant, f"{prefix}{name}.", (*around, section))
        if not inner:
            yield f"{prefix}{name}"


def test_every_key_has_an_effect():
    covered = set()
    for key in keys(Experiment):
        entry = key
        while entry and entry not in EFFECTS:
            entry = entry.rpartition(".")[0]
        assert entry, f"{key} has no effect: add it to train/experiment/continuation.py"
        covered.add(entry)
    of_sections = set(keys(Experiment)) | covered
    stale = set()
    for key in EFFECTS:
        names_a_section = any(one == key or one.startswith(f"{key}.") for one in of_sections)
        if not key.startswith("samples.") and not names_a_section:
            stale.add(key)
    assert stale == set()


def test_a_key_that_nobody_has_thought_of_is_refused():
    assert continuation.effect_of("training.surprise") is Effect.REFUSED
    assert continuation.effect_of("training.loss.surprise") is Effect.REFUSED


ROW = re.compile(r"^\| ([a-z ]+) \| (`.+`) \|$", re.MULTILINE)


def changes_of_page():
    """Changes of a configuration by what docs/structure.md says happens to a run with them."""
    page = (ROOT / "docs/structure.md").read_text(encoding="utf-8")
    table = page.partition("| what happens | change |")[2].partition("\n\n")[0]
    return {effect: re.findall("`(.+?)`", listed) for effect, listed in ROW.findall(table)}


CHANGES = changes_of_page()
REFUSED = CHANGES["refused"]
REPORTED = CHANGES["reported"]
WITHOUT_EFFECT = CHANGES["named as without effect"]
NOT_COMPARED = CHANGES["nothing"]


def test_the_page_has_changes_of_every_effect():
    counts = [len(changes) for changes in (REFUSED, REPORTED, WITHOUT_EFFECT, NOT_COMPARED)]
    assert sum(counts) >= 50
    assert min(counts) >= 5
    assert len(CHANGES) == 4


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return write_config(tmp_path_factory.mktemp("continuation"))


def differences(config, change, samples=None):
    """Between the run of a configuration, as its checkpoints have it in JSON, and that with a
    change.
    """
    stored = json.loads(json.dumps(continuation.configuration_of(load(config))))
    return continuation.compare(stored, load(config, [change]), samples)


@pytest.mark.parametrize("change", REFUSED)
def test_a_change_of_what_is_learnt_is_refused(config, change):
    key = change.partition("=")[0]
    with pytest.raises(InputError) as refusal:
        continuation.check(config.parent, differences(config, change))
    first, *lines, remedy = str(refusal.value).splitlines()
    assert first == f"the run in {config.parent} was made differently:"
    assert lines
    for line in lines:
        assert line.startswith(f"  {key}")
        assert ": was " in line
    assert "another --run-dir" in remedy


@pytest.mark.parametrize("change", REPORTED)
def test_a_change_of_how_or_how_long_is_reported_and_the_run_goes_on(config, change):
    reported, silent = continuation.check(config.parent, differences(config, change))
    key, _, value = change.partition("=")
    assert [difference.key for difference in reported] == [key]
    assert silent == []
    assert reported[0].now == yaml.safe_load(value)


@pytest.mark.parametrize("change", WITHOUT_EFFECT)
def test_a_change_without_effect_is_named_alone(config, change):
    reported, silent = continuation.check(config.parent, differences(config, change))
    assert reported == []
    assert [difference.key for difference in silent] == [change.partition("=")[0]]


@pytest.mark.parametrize("change", NOT_COMPARED)
def test_a_place_is_not_compared(config, change):
    assert differences(config, change) == []


def test_the_samples_are_compared_by_their_list_and_their_values(config):
    samples = {"list": "ab", "values": "cd", "trained_on": 8}
    stored = continuation.configuration_of(load(config)) | {"samples": samples}
    for key, effect in (("list", Effect.REFUSED), ("values", Effect.REFUSED)):
        (difference,) = continuation.compare(stored, load(config), samples | {key: "ef"})
        assert continuation.effect_of(difference.key) is effect
    (difference,) = continuation.compare(stored, load(config), samples | {"trained_on": 9})
    reported, _ = continuation.check(config.parent, [difference])
    assert str(*reported) == "samples.trained_on: was 8, is 9"
    assert continuation.compare(stored, load(config), None) == []  # before they are shared out


def test_a_key_of_a_later_version_counts_as_its_default(config):
    stored = continuation.configuration_of(load(config))
    del stored["training"]["loss"]["relative"]
    assert continuation.compare(stored, load(config), None) == []
    changed = load(config, ["training.loss.relative=true"])
    (difference,) = continuation.compare(stored, changed, None)
    assert str(difference) == "training.loss.relative: was (none), is true"
