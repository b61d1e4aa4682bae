"""Means over groups of held-out samples, and the samples that are shown."""

import pytest

from train.measure.metrics import NAMES
from train.tasks.density.summary import PICTURES, by_condition, choose, summarise


def sample(number, material, ssim, split="test", kind="crystal"):
    return {"id": f"{number:03}", "material": material, "ssim": ssim, "split": split, "conditions": {"kind": kind}}


def test_pictures_are_the_worst_the_median_the_best_and_of_many_kinds_and_materials():
    samples = [sample(n, "common", n / 100) for n in range(60)]
    samples += [sample(60 + n, f"rare-{n}", 0.7 + n / 100) for n in range(4)]
    samples += [sample(70 + n, "common", 0.8 + n / 100, kind="twin") for n in range(3)]
    samples += [sample(90, "dev", 0.0, "dev"), sample(91, "flat", None)]
    chosen = choose(samples)
    assert len(chosen) == PICTURES
    assert chosen[0] == "091"  # an undefined SSIM is worst
    assert chosen[1] == "000"
    assert "060" in chosen  # the third material that the worst are of
    assert "033" in chosen  # rank 34 of 0 ... 67
    assert chosen[-1] == "072"  # the best
    assert {"061", "062", "063"} <= set(chosen)
    assert "090" not in chosen
    ssims = {row["id"]: row["ssim"] or 0 for row in samples}
    assert sorted(chosen, key=lambda id: (ssims[id], id != "091")) == chosen


def test_the_worst_of_each_kind_is_shown():
    samples = [sample(n, "common", n / 100) for n in range(60)]
    samples += [sample(60 + n, "common", 0.4 + n / 1000, kind=f"kind-{n // 4}") for n in range(20)]
    assert {"060", "064", "068", "072", "076"} <= set(choose(samples))


def test_few_samples_are_all_chosen_once():
    samples = [sample(n, "one", n / 10) for n in range(5)]
    assert choose(samples) == ["000", "001", "002", "003", "004"]
    assert choose([]) == []


def test_scores_are_told_by_kind_and_by_ranges_of_thickness_and_defocus():
    rows = []
    for n in range(30):
        conditions = {"kind": "twin" if n % 3 else "crystal", "thickness_angstrom": 20.0, "defocus_angstrom": n - 10.0}
        scores = dict.fromkeys(NAMES, n / 30)
        facts = {"id": f"{n}", "split": "test", "wanted_thickness_angstrom": 20.0 + n, "conditions": conditions}
        rows.append(facts | scores | {"mean_predictor": dict.fromkeys(NAMES, 0.0)})
    ignored = rows[0] | {"split": "dev"}
    found = by_condition({"split": "test", "samples": [ignored, *rows]})
    assert [(row["by"], row["group"], row["samples"]) for row in found] == [
        ("kind", "crystal", 10),
        ("kind", "twin", 20),
        ("defocus_angstrom", "-10 to -1", 10),
        ("defocus_angstrom", "0 to 9", 10),
        ("defocus_angstrom", "10 to 19", 10),
    ]  # all have one thickness
    assert found[2]["ssim"] == pytest.approx(4.5 / 30)
    assert [row["least_ssim"] for row in found[2:]] == pytest.approx([0, 1 / 3, 2 / 3])
    earlier = [{name: value for name, value in row.items() if name != "conditions"} for row in rows]
    assert [row["group"] for row in by_condition({"split": "test", "samples": earlier})] == [
        "20 to 29",
        "30 to 39",
        "40 to 49",
    ]


def test_means_leave_undefined_numbers_out():
    rows = [
        {"material": "A", "formula": "A", "space_group": "P1", "split": "test", "wanted_thickness_angstrom": 20.0}
        | dict.fromkeys(NAMES, value)
        | {"mean_predictor": dict.fromkeys(NAMES, 1.0)}
        for value in (2.0, None)
    ]
    assert summarise(rows)["mean"] == dict.fromkeys(NAMES, 2.0)
    assert summarise(rows[1:])["mean"] == dict.fromkeys(NAMES)
