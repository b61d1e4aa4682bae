"""The report: one self-contained page, which states what is missing; what a card says of the
dataset, and runs.
"""

import re
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from paths import CONFIGS
from rich.console import Console
from rich.table import Table as TerminalTable
from run_files import NETWORK, RIVAL, Page, evaluation, write_metrics

from namsa.base.console import LOG_WIDTH
from namsa.base.errors import InputError
from namsa.figures.document import Document
from namsa.figures.document_markdown import to_markdown
from train.experiment.experiment import load
from train.reports import card_sections, figures
from train.reports.results import write_json
from train.tasks.density.report.figures import sample_figure
from train.tasks.density.report.pictures import SamplePicture
from train.tasks.reporting import with_places, write_report


def page_of(run_dir):
    """The report, whose tags nest."""
    page = Page(write_report(run_dir).read_text(encoding="utf-8"))
    assert not page.open
    return page


@pytest.fixture
def run_dir(tmp_path):
    (tmp_path / "config.yaml").write_text("name: quick <i>\nseed: 1\n", encoding="utf-8")
    write_json(tmp_path / "evaluation.json", evaluation())
    write_metrics(tmp_path, range(1, 30))
    return tmp_path


def test_headline_and_tables_say_what_the_numbers_say(run_dir):
    text = page_of(run_dir).text.replace("\u00a0", " ")
    assert "On 1 held-out sample of 1 material" in text
    assert "SSIM 0.750 (mean image: 0.250)" in text
    assert "Pearson correlation 0.900 (mean image: 0.300)" in text
    assert "0.50 e/Å² (mean image: 2.00 e/Å²)" in text
    assert "4.0 times smaller" in text
    assert "higher in 1 of 1 sample" in text
    assert "10.0 dB higher" in text
    assert "1,234,567" in text
    assert "[11\u03040]" in text
    assert "P4 2 /m3\u0304" in text


def test_folders_of_absolute_paths_are_not_shown(run_dir):
    text = "name: quick\ndata:\n  directory: /home/someone/data/own\n  manifest_from: 'data/list'\n"
    text += "materials:\n  cif:\n  - /home/someone/crystal files/a.cif\n"
    (run_dir / "config.yaml").write_text(text, encoding="utf-8")
    shown = page_of(run_dir).text
    assert "someone" not in shown
    assert "directory: …/own" in shown
    assert "manifest_from: 'data/list'" in shown
    assert "- …/a.cif" in shown


def test_a_network_that_is_worse_is_called_worse(run_dir):
    write_json(run_dir / "evaluation.json", evaluation(RIVAL, NETWORK))
    text = page_of(run_dir).text
    assert "That error is 4.0 times larger" in text
    assert "0.500 lower" in text
    assert "higher in 0 of 1 sample" in text


def test_undefined_numbers_are_dashes(run_dir):
    write_json(run_dir / "evaluation.json", evaluation(dict.fromkeys(NETWORK), RIVAL))
    assert "SSIM – (mean image: 0.250)" in page_of(run_dir).text


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        ("config.yaml", "config.yaml is missing"),
        ("metrics.jsonl", "No step has been recorded"),
        ("evaluation.json", "No held-out sample has been evaluated"),
        ("predictions.npz", "predictions.npz is missing"),
    ],
)
def test_a_missing_part_is_said_and_the_rest_is_there(run_dir, missing, says):
    (run_dir / missing).unlink(missing_ok=True)
    page = page_of(run_dir)
    assert says in page.text
    others = {
        "config.yaml": "seed: 1",
        "metrics.jsonl": "29 steps",
        "evaluation.json": "4.0 times smaller",
    }
    for name, words in others.items():
        if name != missing:
            assert words in page.text


def test_one_part_is_enough_and_none_is_an_error(tmp_path):
    with pytest.raises(InputError, match="no run directory"):
        write_report(tmp_path)
    write_metrics(tmp_path, [1])
    assert "1 epoch, 1 step." in page_of(tmp_path).text


@pytest.mark.parametrize(
    "name", ["config.yaml", "metrics.jsonl", "evaluation.json", "predictions.npz"]
)
def test_a_damaged_file_is_an_error(run_dir, name):
    (run_dir / name).write_bytes(b"PK{\nPK")
    with pytest.raises(InputError, match=re.escape(name)):
        write_report(run_dir)


def test_binning_keeps_means_and_marks_empty_runs():
    x = np.arange(10.0)
    middle, mean = figures.binned(x, np.where(x < 2, np.nan, x), 5)
    assert middle.tolist() == [0.5, 2.5, 4.5, 6.5, 8.5]
    assert np.isnan(mean[0])
    assert mean[1:].tolist() == middle[1:].tolist()
    assert figures.binned(x[:3], x[:3], 5)[1].tolist() == [0, 1, 2]


def test_epoch_means_leave_out_skipped_steps():
    steps = {
        "step": np.array([1.0, 2, 3, 4, 5]),
        "epoch": np.array([0.0, 0, 0, 1, 1]),
        "loss": np.array([4.0, np.nan, 2, 1, 3]),
    }
    x, loss = figures.epoch_means(steps, "loss")
    assert x.tolist() == [2, 4.5]
    assert loss.tolist() == [3, 2]


def test_truth_and_reconstruction_share_a_scale_and_the_difference_is_symmetric():
    rng = np.random.default_rng(2)
    truth = rng.random((8, 12)) * 10
    facts = {
        "density_frame": [[1.0, 1.0], [0.0, 0.0]],
        "pattern_frame": [[1.0, 1.0], [-1.5, -2.5]],
        "extent_angstrom": [8.0, 12.0],
        "probes_angstrom": [[0.0, 0.0]],
        "semiangle_mrad": 2.0,
    }
    prediction = truth + np.where(truth > 9, -3.0, 0.5)
    picture = SamplePicture(facts, truth, prediction, np.ones((4, 6)), np.ones((1, 4, 6)))
    figure = sample_figure(picture, np.full((8, 12), 100.0))
    shown_truth, estimate, difference, mean, *patterns = (
        ax.images[0] for ax in figure.axes if ax.images
    )
    assert shown_truth.get_array().shape == (32, 48)  # four times as fine
    assert shown_truth.get_clim() == estimate.get_clim() == (0, truth.max())
    assert (
        mean.get_clim()[0] <= 100 <= mean.get_clim()[1]
    )  # a scale of its own, so that it does not saturate
    assert difference.get_clim() == pytest.approx((-3, 3))
    assert len(patterns) == 2


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("quickstart", "slices of 2 Å; hash"),
        ("microscope", "slices for errors of 0.01 of the patterns; hash"),
    ],
)
def test_the_data_say_how_thick_slices_are_also_where_they_follow_from_the_accuracy(name, words):
    counts = {"train": 8, "dev": 1, "test": 1}
    strata = {
        **dict.fromkeys(("samples", "materials", "formulas"), counts),
        "elements": {"Si": counts},
        "sources": ["builtin"],
        "crystal_systems": {"cubic": counts},
    }
    section = card_sections.data(load(CONFIGS / f"{name}.yaml"), strata)
    assert words in to_markdown(Document("name", (section,)))


def test_a_path_is_not_divided_at_the_width_of_a_narrow_table():
    console = Console(width=LOG_WIDTH, record=True, file=StringIO())
    table = TerminalTable("error", caption="baseline: the mean\n")
    table.add_row("0.5")
    run_dir = Path("/scratch/project/of-several-words/runs/classify-2026-11-29")
    console.print(with_places(table, run_dir, run_dir / "report.html"))
    lines = console.export_text().splitlines()
    assert [line.rstrip() for line in lines[-3:]] == [
        "baseline: the mean",
        f"report: {run_dir}/report.html",
        f"everything: {run_dir}",
    ]
