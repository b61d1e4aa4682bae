"""Marks of tests that need a strategy of the exchange between ranks, whose folder may be gone."""

import pytest

from train.experiment.registry import kinds


def needs(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(kind not in kinds("exchange"), reason=f"there is no exchange of kind {kind}")
