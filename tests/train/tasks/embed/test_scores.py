"""Composite scans of known samples, and their scores."""

import numpy as np
import pytest

from train.tasks.embed import principal_components, scores
from train.tasks.embed.principal_components import fit, moments, vectors
from train.tasks.embed.scores import (
    choose_composites,
    cluster,
    normalised_mutual_information,
    score_composites,
)


def rows(split="test", **samples):
    """Rows of so many samples of each material."""
    return [
        {"id": f"{split}-{material}-{index}", "material": material, "split": split}
        for material, count in samples.items()
        for index in range(count)
    ]


def material(id):
    return id.split("-")[1]


def test_each_composite_has_as_many_materials_and_no_sample_is_in_two():
    composites = choose_composites(rows(a=2, b=2, c=1, d=1, e=1), 2)
    used = []
    for composite in composites:
        used.extend(composite)
    assert [len(composite) for composite in composites] == [
        2,
        2,
        2,
    ]  # of five first samples one is left, then two
    assert len(set(used)) == len(used)
    for one, other in composites:
        assert material(one) != material(other)
    assert {material(id) for id in composites[-1]} == {"a", "b"}


def test_composites_are_of_one_split_and_few_materials_make_smaller_ones():
    composites = choose_composites(
        [*rows(a=1, b=1, c=1), *rows("dev", d=1, e=1), *rows("images", f=3)], 3
    )
    assert [sorted(map(material, composite)) for composite in composites] == [
        ["d", "e"],
        ["a", "b", "c"],
    ]


def test_choice_does_not_depend_on_the_order_of_the_samples():
    samples = rows(a=2, b=1, c=3, d=2)
    assert choose_composites(samples, 2) == choose_composites(samples[::-1], 2)


def test_clusters_that_are_the_materials_agree_and_those_of_noise_do_not():
    samples = rows(a=1, b=1)
    rng = np.random.default_rng(0)
    coordinates = {}
    for index, row in enumerate(samples):
        coordinates[row["id"]] = {
            "network": [[10.0 * index, 0.0]] * 50,
            "baseline": rng.normal(size=(50, 2)).tolist(),
        }
    (scored,) = score_composites(samples, choose_composites(samples, 2), coordinates)
    assert (scored["split"], scored["patterns"]) == ("test", 100)
    assert scored["nmi"] == pytest.approx(1)
    assert scored["baseline_nmi"] < 0.2


def patterns(spectrum, shape=(5, 6), count=400):
    """Patterns about a mean, with the variances `spectrum` along random directions."""
    rng = np.random.default_rng(0)
    pixels = shape[0] * shape[1]
    directions = np.linalg.qr(rng.normal(size=(pixels, pixels)))[0][:, : len(spectrum)]
    flat = (
        3
        + rng.random(pixels)
        + rng.normal(size=(count, len(spectrum))) * np.sqrt(spectrum) @ directions.T
    )
    return flat.reshape(count, *shape, 1).astype(np.float32)


def projector(columns):
    return columns @ columns.T


@pytest.mark.parametrize("exact", [30, 29])  # of 30 pixels
def test_components_are_those_of_the_singular_value_decomposition(monkeypatch, exact):
    monkeypatch.setattr(principal_components, "EXACT_PIXELS", exact)
    monkeypatch.setattr(principal_components, "RANDOM_VECTORS", 12)
    x = patterns([9.0, 4.0, 1.0, *[1e-8] * 20])
    probes = vectors(30)
    assert probes.shape == (30, 30 if exact == 30 else 12)
    halves = [moments(x[:200], probes), moments(x[200:], probes)]  # as of two samples
    fitted = fit(np.mean(halves, axis=0), probes, 3)
    flat = x.reshape(len(x), -1).astype(float)
    _, _, rows = np.linalg.svd(flat - flat.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(fitted.mean, flat.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(fitted.components.T @ fitted.components, np.eye(3), atol=1e-9)
    np.testing.assert_allclose(projector(fitted.components), projector(rows[:3].T), atol=1e-5)
    np.testing.assert_allclose(fitted.decode(fitted.encode(x)), flat, atol=1e-2)


def test_patterns_that_are_all_the_same_have_no_error():
    x = np.ones((4, 3, 5, 1), np.float32)
    fitted = fit(moments(x, vectors(15)), vectors(15), 2)
    np.testing.assert_allclose(fitted.decode(fitted.encode(x)), x.reshape(4, -1), atol=1e-6)


def blobs(sizes, spread=0.1):
    rng = np.random.default_rng(0)
    centres = 10 * np.arange(len(sizes))[:, None] + np.zeros(2)
    return np.concatenate(
        [
            centre + spread * rng.normal(size=(n, 2))
            for centre, n in zip(centres, sizes, strict=True)
        ]
    )


def test_groups_that_lie_apart_are_found_the_largest_first():
    points = blobs([20, 50, 30])
    centres, labels = cluster(points, 3)
    np.testing.assert_array_equal(labels, np.repeat([2, 0, 1], [20, 50, 30]))
    for index in range(3):
        np.testing.assert_allclose(centres[index], points[labels == index].mean(axis=0), atol=1e-6)


def test_clusters_follow_from_the_seed():
    points = np.random.default_rng(1).random((200, 3))
    np.testing.assert_array_equal(cluster(points, 5)[1], cluster(points, 5)[1])


def test_points_that_coincide_make_fewer_clusters():
    centres, labels = cluster(np.repeat([[1.0, 2.0], [3.0, 4.0]], [3, 2], axis=0), 4)
    np.testing.assert_array_equal(centres, [[1, 2], [3, 4]])
    np.testing.assert_array_equal(labels, [0, 0, 0, 1, 1])


def test_many_points_have_the_centres_of_a_part_of_them(monkeypatch):
    monkeypatch.setattr(scores, "FITTED", 60)
    _, labels = cluster(blobs([200, 100]), 2)
    np.testing.assert_array_equal(labels, np.repeat([0, 1], [200, 100]))


@pytest.mark.parametrize(
    ("one", "other", "agreement"),
    [
        ([0, 0, 1, 1, 2, 2], ["c", "c", "a", "a", "b", "b"], 1),  # names of groups do not matter
        ([0, 0, 1, 1, 2, 2], [5, 5, 7, 7, 6, 6], 1),
        ([0, 0, 1, 1], [0, 1, 0, 1], 0),
        ([0, 0, 1, 1], [4, 4, 4, 4], 0),
        ([3, 3], [4, 4], 1),
    ],
)
def test_groups_agree_or_are_independent(one, other, agreement):
    assert normalised_mutual_information(one, np.array(other)) == pytest.approx(
        agreement, abs=1e-12
    )


def test_agreement_is_the_mutual_information_over_the_mean_entropy():
    one = [0, 0, 0, 1, 1, 1]
    other = [0, 0, 1, 1, 2, 2]
    table = np.array([[2, 1, 0], [0, 1, 2]]) / 6
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0)
    filled = table > 0
    information = np.sum(table[filled] * np.log(table[filled] / expected[filled]))
    entropies = [-np.sum(p * np.log(p)) for p in (table.sum(axis=0), table.sum(axis=1))]
    assert normalised_mutual_information(one, other) == pytest.approx(
        2 * information / sum(entropies)
    )
