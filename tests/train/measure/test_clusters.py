"""Clusters of points that are known, and agreement of groupings against its definition."""

import numpy as np
import pytest

from train.measure import clusters
from train.measure.clusters import cluster, normalised_mutual_information


def blobs(sizes, spread=0.1):
    rng = np.random.default_rng(0)
    centres = 10 * np.arange(len(sizes))[:, None] + np.zeros(2)
    return np.concatenate([centre + spread * rng.normal(size=(n, 2)) for centre, n in zip(centres, sizes, strict=True)])


def test_groups_that_lie_apart_are_found_the_largest_first():
    points = blobs([20, 50, 30])
    centres, labels = cluster(points, 3)
    np.testing.assert_array_equal(labels, np.repeat([2, 0, 1], [20, 50, 30]))
    for number in range(3):
        np.testing.assert_allclose(centres[number], points[labels == number].mean(axis=0), atol=1e-6)


def test_clusters_follow_from_the_seed():
    points = np.random.default_rng(1).random((200, 3))
    np.testing.assert_array_equal(cluster(points, 5)[1], cluster(points, 5)[1])


def test_points_that_coincide_make_fewer_clusters():
    centres, labels = cluster(np.repeat([[1.0, 2.0], [3.0, 4.0]], [3, 2], axis=0), 4)
    np.testing.assert_array_equal(centres, [[1, 2], [3, 4]])
    np.testing.assert_array_equal(labels, [0, 0, 0, 1, 1])


def test_many_points_have_the_centres_of_a_part_of_them(monkeypatch):
    monkeypatch.setattr(clusters, "FITTED", 60)
    _, labels = cluster(blobs([200, 100]), 2)
    np.testing.assert_array_equal(labels, np.repeat([0, 1], [200, 100]))


def test_agreement_knows_no_names_of_groups():
    groups = np.array([0, 0, 1, 1, 2, 2])
    assert normalised_mutual_information(groups, np.array(["c", "c", "a", "a", "b", "b"])) == pytest.approx(1)
    assert normalised_mutual_information(groups, [5, 5, 7, 7, 6, 6]) == pytest.approx(1)


def test_independent_groups_do_not_agree():
    assert normalised_mutual_information([0, 0, 1, 1], [0, 1, 0, 1]) == pytest.approx(0, abs=1e-12)
    assert normalised_mutual_information([0, 0, 1, 1], [4, 4, 4, 4]) == pytest.approx(0, abs=1e-12)
    assert normalised_mutual_information([3, 3], [4, 4]) == 1


def test_agreement_is_the_mutual_information_over_the_mean_entropy():
    one, other = [0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2]
    table = np.array([[2, 1, 0], [0, 1, 2]]) / 6
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0)
    filled = table > 0
    information = np.sum(table[filled] * np.log(table[filled] / expected[filled]))
    entropies = [-np.sum(p * np.log(p)) for p in (table.sum(axis=0), table.sum(axis=1))]
    assert normalised_mutual_information(one, other) == pytest.approx(2 * information / sum(entropies))
