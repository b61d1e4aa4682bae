"""STEMDL's task: the class of three patterns together, from files that are written here with h5py,
and the macro F1.
"""

import json
import re
from io import StringIO

import numpy as np
import pytest
import yaml
from rich.console import Console
from stemdl_files import write_stacks
from tiny import CONFIG

from namsa import InputError
from train.__main__ import main as command
from train.experiment.experiment import load
from train.main import train
from train.tasks.classify.report import REPORT
from train.tasks.classify.scores import in_top, macro_f1, scores

GROUPS = ["225", 194, 62]  # as text or number


def stacks(count, seed):
    """Patterns whose spot says the class together: of the second pattern for one, of the third for
    another.
    """
    rng = np.random.default_rng(seed)
    patterns = rng.exponential(1e-4, (count, 3, 32, 48)).astype(np.float32)
    for index in range(count):
        patterns[index, index % 3, 10:22, 16:32] += 1e-2
    return patterns


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stemdl")
    for mode, count in (
        ("train", 24),
        ("dev", 6),
        ("test", 4),
    ):  # the test split lacks no class, but is uneven
        write_stacks(
            folder / f"batch_{mode}_0.h5",
            stacks(count, count),
            [GROUPS[n % 3] for n in range(count)],
        )
    kept = {key: CONFIG[key] for key in ("seed", "microscope", "simulation")}
    job = kept | {
        "name": "stemdl",
        "scan": {"shape": [1, 3], "step_angstrom": [1, 1]},
        "target": {"at": "scan"},
        "data": {
            "directory": str(folder / "data"),
            "source": {"kind": "stemdl", "folder": str(folder)},
        },
        "network": {
            "kind": "resnet50",
            "input_shape": [3, 32, 48],
            "classes": 3,
            "units": [1, 1],
            "width": 8,
        },
        "training": {
            "task": "classify",
            "epochs": 8,
            "batch_size": 4,
            "classify": {"label": "space_group"},
            "inputs": {"layout": "detector", "normalisation": "log", "gain": 0.1},
            "validation": {"every_epochs": 4},
            "optimizer": {"learning_rate": 3e-3, "lars": "none"},
        },
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    train(folder / "job.yaml", run_dir=folder / "run")
    return folder / "run"


@pytest.mark.slow
def test_the_space_group_of_three_patterns_is_learnt_and_scored_by_f1(run_dir):
    evaluation = json.loads((run_dir / "evaluation.json").read_text())
    assert evaluation["classes"] == ["Fm-3m", "P6_3/mmc", "Pnma"]
    test = evaluation["by_split"]["test"]
    assert (test["samples"], test["patterns"]) == (4, 4)  # one answer for three patterns
    assert test["macro_f1"] == 1
    assert (
        test["baseline_balanced_accuracy"] == 1
    )  # profiles of the three patterns differ, and their sum does not
    counts = np.zeros((3, 3))
    for row in evaluation["samples"]:
        assert row["class"] == ["Fm-3m", "P6_3/mmc", "Pnma"].index(row["space_group"])
        for true, given, count in row["counts"]:
            counts[true, given] += count
    assert counts.sum() == 10
    assert "The macro F1 is <strong>1.000</strong>." in (run_dir / "report.html").read_text()
    assert json.loads((run_dir / "validation.jsonl").read_text().splitlines()[0])["macro_f1"] <= 1


@pytest.mark.slow
def test_the_scores_fit_a_terminal_of_80_columns(run_dir):
    console = Console(width=80, record=True, file=StringIO())
    console.print(REPORT.table(REPORT.read(run_dir / "evaluation.json"), run_dir, None))
    shown = console.export_text()
    assert "…" not in shown
    assert re.search(r"macro F1 .*1\.000", shown)


@pytest.mark.slow
def test_the_top_5_error_counts_patterns_whose_class_is_not_among_five():
    """Zhuang et al. (2020) compare by it. Of up to five classes it is 0 and left out."""
    logits = np.array([[7, 6, 5, 4, 3, 2, 1], [1, 2, 3, 4, 5, 6, 7], [0, 0, 0, 0, 0, 0, 1.0]])
    true = np.array([4, 1, 6])
    assert in_top(true, logits) == 2
    row = {"class": 4, "counts": [[4, 0, 2], [1, 6, 1]], "cross_entropy": 1.0, "top5": 2}
    row["probability"] = [1 / 7] * 7
    assert scores([row], 7)["top5_error"] == pytest.approx(1 / 3)
    row["counts"] = [[4, 0, 3]]
    assert "top5_error" not in scores([row | {"probability": [0.2] * 5}], 5)


@pytest.mark.slow
def test_the_macro_f1_is_the_mean_of_that_of_each_class_that_occurs():
    table = np.array([[3, 1, 0, 0], [2, 2, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]])
    precision = np.array([3 / 5, 2 / 4])
    recall = np.array([3 / 4, 2 / 4])
    f1 = [*(2 * precision * recall / (precision + recall)), 0]  # the last class does not occur
    assert macro_f1(table) == pytest.approx(np.mean(f1))


@pytest.mark.slow
def test_a_network_of_stacks_is_not_applied_to_a_scan(run_dir, tmp_path, capsys):
    np.save(tmp_path / "scan.npy", np.zeros((2, 2, 8, 8)))
    line = [
        "classify",
        str(tmp_path / "scan.npy"),
        "--checkpoint",
        str(run_dir),
        "--out",
        str(tmp_path / "out.h5"),
    ]
    assert command(line) == 2
    assert "network of 3 patterns of a specimen at once" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("target.at=grid", "a sample has one class: set target.at to scan"),
        ("training.classify.label=thickness", "classify with label space_group or material"),
        ("training.inputs.layout=volume", "set it to pattern, or to detector"),
    ],
)
def test_what_stacks_do_not_go_with_is_refused(run_dir, override, message):
    with pytest.raises(InputError, match=message):
        load(run_dir / "config.yaml", [override])
