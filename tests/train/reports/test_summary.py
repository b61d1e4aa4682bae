"""Means over groups of held-out samples, and the samples that are shown."""

from train.measure.metrics import NAMES
from train.reports.summary import PICTURES, choose, summarise


def sample(number, material, ssim, split="test"):
    return {"id": f"{number:03}", "material": material, "ssim": ssim, "split": split}


def test_pictures_are_the_best_median_and_worst_and_of_many_materials():
    samples = [sample(n, "common", n / 100) for n in range(60)]
    samples += [sample(60 + n, f"rare-{n}", 0.7 + n / 100) for n in range(4)]
    samples += [sample(90, "dev", 1.0, "dev"), sample(91, "flat", None)]
    chosen = choose(samples)
    assert len(chosen) == PICTURES
    assert chosen[0] == "063"  # best SSIM of the test split
    assert chosen[-1] == "091"  # an undefined SSIM is worst
    assert "031" in chosen  # rank 32 of 0 ... 64, behind the four rare ones
    assert {"060", "061", "062"} <= set(chosen)


def test_few_samples_are_all_chosen_once():
    samples = [sample(n, "one", n / 10) for n in range(5)]
    assert choose(samples) == ["004", "003", "002", "001", "000"]
    assert choose([]) == []


def test_means_leave_undefined_numbers_out():
    rows = [
        {"material": "A", "formula": "A", "space_group": "P1", "split": "test", "wanted_thickness_angstrom": 20.0}
        | dict.fromkeys(NAMES, value)
        | {"mean_predictor": dict.fromkeys(NAMES, 1.0)}
        for value in (2.0, None)
    ]
    assert summarise(rows)["mean"] == dict.fromkeys(NAMES, 2.0)
    assert summarise(rows[1:])["mean"] == dict.fromkeys(NAMES)
