"""Principal components from mean products, against a decomposition of the patterns themselves."""

import numpy as np
import pytest

from train.tasks.embed import principal_components
from train.tasks.embed.principal_components import fit, moments, vectors


def patterns(spectrum, shape=(5, 6), count=400):
    """Patterns about a mean, with the variances `spectrum` along random directions."""
    rng = np.random.default_rng(0)
    pixels = shape[0] * shape[1]
    directions = np.linalg.qr(rng.normal(size=(pixels, pixels)))[0][:, : len(spectrum)]
    flat = 3 + rng.random(pixels) + rng.normal(size=(count, len(spectrum))) * np.sqrt(spectrum) @ directions.T
    return flat.reshape(count, *shape, 1).astype(np.float32)


def projector(columns):
    return columns @ columns.T


@pytest.mark.parametrize("exact", [30, 29])  # of 30 pixels
def test_components_are_those_of_the_singular_value_decomposition(monkeypatch, exact):
    monkeypatch.setattr(principal_components, "EXACT_PIXELS", exact)
    monkeypatch.setattr(principal_components, "RANDOM_VECTORS", 12)
    x, probes = patterns([9.0, 4.0, 1.0, *[1e-8] * 20]), vectors(30)
    assert probes.shape == (30, 30 if exact == 30 else 12)
    halves = [moments(x[:200], probes), moments(x[200:], probes)]  # as of two samples
    found = fit(np.mean(halves, axis=0), probes, 3)
    flat = x.reshape(len(x), -1).astype(float)
    _, _, rows = np.linalg.svd(flat - flat.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(found.mean, flat.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(found.components.T @ found.components, np.eye(3), atol=1e-9)
    np.testing.assert_allclose(projector(found.components), projector(rows[:3].T), atol=1e-5)
    np.testing.assert_allclose(found.decode(found.encode(x)), flat, atol=1e-2)


def test_patterns_that_are_all_the_same_have_no_error():
    x = np.ones((4, 3, 5, 1), np.float32)
    found = fit(moments(x, vectors(15)), vectors(15), 2)
    np.testing.assert_allclose(found.decode(found.encode(x)), x.reshape(4, -1), atol=1e-6)
