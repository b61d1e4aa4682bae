"""Composite scans of known samples, and their scores."""

import numpy as np
import pytest

from train.tasks.embed.scores import choose_composites, score_composites


def rows(split="test", **samples):
    """Rows of so many samples of each material."""
    return [
        {"id": f"{split}-{material}-{number}", "material": material, "split": split}
        for material, count in samples.items()
        for number in range(count)
    ]


def material(id):
    return id.split("-")[1]


def test_each_composite_has_as_many_materials_and_no_sample_is_in_two():
    found = choose_composites(rows(a=2, b=2, c=1, d=1, e=1), 2)
    used = [id for composite in found for id in composite]
    assert [len(composite) for composite in found] == [2, 2, 2]  # of five first samples one is left, then two
    assert len(set(used)) == len(used)
    assert all(material(one) != material(other) for one, other in found)
    assert {material(id) for id in found[-1]} == {"a", "b"}


def test_composites_are_of_one_split_and_few_materials_make_smaller_ones():
    found = choose_composites([*rows(a=1, b=1, c=1), *rows("dev", d=1, e=1), *rows("images", f=3)], 3)
    assert [sorted(map(material, composite)) for composite in found] == [["d", "e"], ["a", "b", "c"]]


def test_choice_does_not_depend_on_the_order_of_the_samples():
    samples = rows(a=2, b=1, c=3, d=2)
    assert choose_composites(samples, 2) == choose_composites(samples[::-1], 2)


def test_clusters_that_are_the_materials_agree_and_those_of_noise_do_not():
    samples, rng = rows(a=1, b=1), np.random.default_rng(0)
    coordinates = {
        row["id"]: {"network": [[10.0 * index, 0.0]] * 50, "baseline": rng.normal(size=(50, 2)).tolist()}
        for index, row in enumerate(samples)
    }
    (scored,) = score_composites(samples, choose_composites(samples, 2), coordinates)
    assert (scored["split"], scored["patterns"]) == ("test", 100)
    assert scored["nmi"] == pytest.approx(1)
    assert scored["baseline_nmi"] < 0.2
