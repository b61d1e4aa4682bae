"""Clusters of the potential around probe positions."""

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from namsa.base.errors import InputError
from train.tasks.classify.potential_clusters import (
    WIDTHS_ANGSTROM,
    find_clusters,
    surroundings,
)

EXTENT = (6.0, 8.0)
SHAPE = (40, 64)
PIXEL = np.divide(EXTENT, SHAPE)


def record(potential, positions):
    provenance = {
        "extent_angstrom": list(EXTENT),
        "grid_shape": list(SHAPE),
        "scan_shape": [1, len(positions)],
    }
    positions = np.array(positions, float)
    header = {"provenance": provenance}
    return SimpleNamespace(
        header=header, projected_potential=potential, positions_angstrom=positions
    )


def gaussian(centre, width):
    """A periodic Gaussian of integral 100 V·Å³ on the grid."""
    axes = []
    for n, pixel, extent, at in zip(SHAPE, PIXEL, EXTENT, centre, strict=True):
        distance = np.arange(n)[:, None] * pixel - at + extent * np.arange(-8, 9)
        axes.append(
            np.exp(-(distance**2) / (2 * width**2)).sum(axis=1) / (width * np.sqrt(2 * np.pi))
        )
    return (100 * np.outer(*axes)).astype(np.float32)


@pytest.mark.slow
def test_a_blurred_gaussian_is_a_wider_one_across_the_cells_borders():
    probes = np.array([(0.0, 0.0), (5.7, 0.25), (3.0, 4.0)])  # on pixels
    averages = surroundings(record(gaussian((0.3, 0.5), 0.4), probes))
    row, column = (probes / PIXEL).round().astype(int).T
    for index, width in enumerate(WIDTHS_ANGSTROM):
        expected = gaussian((0.3, 0.5), np.hypot(0.4, width))[row, column]
        np.testing.assert_allclose(averages[:, index], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_a_mirrored_specimen_has_the_same_surroundings():
    potential = gaussian((1.5, 2.0), 0.3) + 2 * gaussian((3.0, 5.0), 0.3)
    mirrored = np.roll(potential[::-1], 1, axis=0)  # y becomes −y
    positions = np.array([(1.2, 2.25), (4.5, 0.5)])
    expected = surroundings(record(potential, positions))
    np.testing.assert_allclose(
        surroundings(record(mirrored, positions * (-1, 1))), expected, atol=1e-6
    )


class Samples:
    """An atom of a strength in each sample, with positions on it and far from it."""

    def __init__(self, strengths):
        positions = [(3.0, 4.0), (3.0, 4.05), (0.0, 0.0), (0.1, 0.0)]
        self.records = {
            str(n): record(s * gaussian((3, 4), 0.3), positions) for n, s in enumerate(strengths)
        }
        self.entries = [SimpleNamespace(id=name) for name in self.records]

    @contextmanager
    def view(self, sample_id, check=False):
        yield self.records[sample_id]


@pytest.mark.slow
def test_clusters_are_in_the_order_of_the_potential_at_the_probe():
    samples = Samples([1, 2, 4])
    clusters = find_clusters(samples, samples.entries, 6, seed=1)
    classes = np.array([clusters.nearest(stored) for stored in samples.records.values()])
    assert classes[:, 0].tolist() == classes[:, 1].tolist() == [3, 4, 5]
    assert sorted(classes[:, 2].tolist()) == sorted(classes[:, 3].tolist()) == [0, 1, 2]
    np.testing.assert_array_equal(
        find_clusters(samples, samples.entries, 6, seed=1).centres, clusters.centres
    )


@pytest.mark.slow
@pytest.mark.parametrize(("strengths", "clusters"), [([1, 2], 9), ([0, 0, 0], 2), ([], 2)])
def test_surroundings_that_do_not_form_the_clusters_are_refused(strengths, clusters):
    samples = Samples(strengths)
    with pytest.raises(InputError, match=f"do not form {clusters} clusters: lower network.classes"):
        find_clusters(samples, samples.entries, clusters, seed=1)
