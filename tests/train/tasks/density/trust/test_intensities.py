"""Patterns that were each divided by their maximum are told from others."""

import numpy as np

from train.tasks.density.trust.intensities import (
    MOMENTS,
    add_moments,
    intensity_facts,
    is_scaled_each,
    scaled_line,
)


def patterns() -> np.ndarray:
    """Patterns of 90 % of the beam each, whose largest pixel differs."""
    rng = np.random.default_rng(0)
    values = rng.random((6, 7, 50)) ** rng.uniform(1, 4, (6, 7, 1))
    return 0.9 * values / values.sum(axis=-1, keepdims=True)


def facts_of(values: np.ndarray) -> dict[str, float]:
    moments = np.zeros(MOMENTS)
    for strip in values:
        add_moments(moments, strip)
    facts = intensity_facts(moments)
    assert facts is not None
    return facts


def test_patterns_that_were_each_divided_by_their_maximum_are_told():
    values = patterns()
    drifting = values * np.linspace(0.8, 1, 6)[:, None, None]
    for right in (values, drifting):
        assert not is_scaled_each(facts_of(right))
        assert scaled_line(facts_of(right)) == ""
    wrong = facts_of(values / values.max(axis=-1, keepdims=True) / 20)
    assert wrong["maximum_variation"] < 1e-6
    assert is_scaled_each(wrong)
    assert "each divided by their maximum" in scaled_line(wrong)


def test_lost_and_dark_patterns_do_not_count():
    values = patterns()
    lost = values.copy()
    lost[0, 0] = np.nan
    lost[1, 1] = 0
    moments = np.zeros(MOMENTS)
    add_moments(moments, lost)
    assert moments[0] == 40
    assert np.isfinite(moments).all()
    assert intensity_facts(np.zeros(MOMENTS)) is None
    assert not is_scaled_each(None)
