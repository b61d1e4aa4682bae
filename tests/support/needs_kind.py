"""Marks of tests that need a strategy, whose folder may be gone."""

import pytest

from train.experiment.registry import kinds


def needs(kind: str, seam: str = "exchange") -> pytest.MarkDecorator:
    return pytest.mark.skipif(kind not in kinds(seam), reason=f"there is no {seam} of kind {kind}")
