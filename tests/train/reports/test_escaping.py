"""Pages, notebooks and cards of hostile names: what crystals and files are called stays text
everywhere.
"""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from fake_samples import sample
from run_files import FACTS, NETWORK, Page, evaluation, write_picture
from tiny import CONFIG

from namsa import InputError
from namsa.base.pixels import PixelGrid
from namsa.view import viewer
from train.experiment.experiment import Experiment
from train.reports.results import write_json
from train.tasks.card import CardFacts, Rounding, write_card
from train.tasks.density.report.card import CARD, Measured
from train.tasks.density.scan.result import Reconstruction
from train.tasks.reporting import write_report

HOSTILE = (
    "<script>alert('1')</script>\"><img src=x onerror=alert(2)><!--{{data}}$name $x_$|[a](b)`c`"
)
NAMES = dict.fromkeys(("id", "material", "formula", "space_group", "split"), HOSTILE)
EVALUATION = evaluation(facts=FACTS | NAMES)
EVALUATION["run"] = {"ranks": 4, "parameters": 1, "epochs": 1, "steps": 1, "training_samples": 1}
EVALUATION["run"] |= {"machine": HOSTILE, "device": HOSTILE, "versions": {HOSTILE: HOSTILE}}


def check(text, scripts=0):
    page = Page(text)
    assert page.tags.count("script") == scripts
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert "link" not in page.tags
    for address in page.addresses:
        assert address.startswith("data:image/")
    assert HOSTILE in page.text
    return page


def test_the_report(tmp_path):
    write_picture(tmp_path, FACTS | NAMES)
    (tmp_path / "config.yaml").write_text(json.dumps({"name": HOSTILE, "seed": 1}))
    write_json(tmp_path / "evaluation.json", EVALUATION)
    page = check(write_report(tmp_path).read_text(encoding="utf-8"))
    assert page.text.count("alert('1')") >= 10
    assert page.addresses
    assert "http" not in page.text
    assert not page.open
    assert not list(tmp_path.glob(".*"))


def test_the_page_of_a_sample():
    provenance = {
        "energy_ev": 2e5,
        "semiangle_mrad": 4.0,
        "thickness_angstrom": 20.0,
        "grid_shape": [24, 30],
    }
    hostile = sample(**provenance, material=HOSTILE)
    check(viewer.sample_page(hostile, HOSTILE).text, scripts=3)
    check(hostile._repr_html_())


def test_no_text_in_the_data_of_a_page_ends_its_script(monkeypatch):
    signals = viewer.sample_signals
    renamed = lambda sample: [signal._replace(title=HOSTILE) for signal in signals(sample)]  # noqa: E731
    monkeypatch.setattr(viewer, "sample_signals", renamed)
    provenance = {
        "energy_ev": 2e5,
        "semiangle_mrad": 4.0,
        "thickness_angstrom": 20.0,
        "grid_shape": [24, 30],
    }
    page = viewer.sample_page(sample(**provenance), "name").text
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert "<" not in data
    assert json.loads(data)["values"][0]["title"] == HOSTILE


def test_a_reconstruction_in_a_notebook_and_its_figure(tmp_path):
    image = np.ones((4, 6), np.float32)
    pixels = PixelGrid([0.5, 0.5], [0.0, 0.0])
    provenance = {
        "data": f"/data/{HOSTILE.replace('/', '')}",
        "model": HOSTILE,
        "semiangle_mrad": 4.0,
        "notes": [HOSTILE],
    }
    result = Reconstruction(image, image, None, image, image, pixels, pixels, pixels, provenance)
    check(result._repr_html_())
    result.show(tmp_path / "x.svg")
    (tmp_path / "x.svg").read_text(encoding="utf-8")


@pytest.fixture
def facts():
    counts = {"train": 1, HOSTILE: 1}
    strata = dict.fromkeys(("samples", "materials", "formulas"), counts)
    strata |= {name: {HOSTILE: counts} for name in ("sources", "crystal_systems", "elements")}
    strata |= {"elements_not_in_train": [HOSTILE]}
    weights = {"dtype": "float16", "bytes": 1, "sha256": "0", "digest": "0"}
    calibration = {
        "scale": 1.0,
        "method": HOSTILE,
        "samples": 1,
        "coverage_68": 0.7,
        "coverage_95": 0.9,
    }
    doses = [NETWORK | {"electrons": None, "thickness_angstrom": 20.0, "samples": 1}]
    experiment = Experiment.model_validate(CONFIG)
    rounding = Rounding(0.1, 0.1, "0.1")
    return CardFacts(
        experiment,
        EVALUATION,
        1.0,
        [HOSTILE],
        strata,
        weights,
        rounding,
        measured=Measured(calibration, doses),
    )


def test_the_card(facts):
    text = write_card("name", CARD, facts)
    assert "<" not in text.replace("< 0", "")
    assert text.count("&lt;script&gt;alert") >= 10
    assert r"\|\[a\](b)\`c\`" in text
    measured = facts.measured
    plain = write_card(
        "name",
        CARD,
        replace(
            facts, measured=measured._replace(calibration=measured.calibration | {"method": "m"})
        ),
    )
    assert "times the spread of m. The factor" in plain


@pytest.mark.parametrize(
    ("source", "split"),
    [(HOSTILE, "test"), ("composite", HOSTILE)],
    ids=["of the patterns", "of the samples"],
)
def test_an_evaluation_with_names_of_no_split_is_refused(tmp_path, source, split):
    scores = {"scans": 1, "positions": 4, "fractions": {"matrix": 1.0}, "iou": {"matrix": 1.0}}
    scores |= dict.fromkeys(("mean_iou", "accuracy", "baseline_mean_iou"), 1.0)
    evaluation = {
        "task": "segment",
        "classes": ["matrix"],
        "weights": "none",
        "expected_fractions": [1.0],
    }
    evaluation |= {
        "first_epoch_fractions": [1.0],
        "scores": {source: {split: scores}},
        "confusion": {},
        "samples": [],
    }
    write_json(tmp_path / "evaluation.json", evaluation | {"run": EVALUATION["run"]})
    (tmp_path / "config.yaml").write_text("training: {task: segment}")
    with pytest.raises(InputError, match=r"evaluation\.json"):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()
