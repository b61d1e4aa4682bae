"""Files of a run directory that others have changed: one InputError that names the file and the
remedy.
"""

import json

import numpy as np
import pytest
from run_files import FACTS, NETWORK, RIVAL, TIMES, evaluation, write_metrics, write_picture

from namsa.base.errors import InputError
from train.__main__ import main
from train.reports.calibration_results import read_calibration
from train.reports.results import check_facts, write_json
from train.reports.runs import read_steps
from train.tasks.density.report.pictures import ARRAYS, read_predictions
from train.tasks.density.results import read_evaluation
from train.tasks.reporting import write_report


def nested(levels):
    return "[" * levels + "]" * levels


EVALUATIONS = {
    "a list": [],
    "no run": {"samples": []},
    "a run that is text": evaluation() | {"run": "x"},
    "samples that are text": evaluation() | {"samples": "x"},
    "a sample that is a number": evaluation() | {"samples": [1]},
    "a sample without id": evaluation() | {"samples": [{"ssim": 1}]},
    "a score that is text": evaluation(NETWORK | {"ssim": "0.5"}),
    "a mean that is a list": evaluation() | {"mean": [1]},
    "an axis of words": evaluation()
    | {"samples": [FACTS | NETWORK | {"mean_predictor": RIVAL, "zone_axis": "001"}]},
    "a thickness that is null": evaluation()
    | {"by_thickness": [{"wanted_thickness_angstrom": None}]},
    "a material without samples": evaluation() | {"samples": []},
    "half of a performance": evaluation() | {"run": {"performance": TIMES}},
    "a performance of words": evaluation() | {"run": {"performance": dict.fromkeys(TIMES, "fast")}},
    "ranks of words": evaluation() | {"run": {"ranks": "4"}},
}
TEXTS = {
    "empty": "",
    "nested": nested(5000),
    "infinite": '{"run": 1e999}',
    "Latin": b'{"run": "\xe9"}',
}


@pytest.mark.parametrize(
    "content", [*map(json.dumps, EVALUATIONS.values()), *TEXTS.values()], ids=EVALUATIONS | TEXTS
)
def test_an_evaluation_is_one(tmp_path, capsys, content):
    path = tmp_path / "evaluation.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=r"evaluation\.json"):
        read_evaluation(path)
    assert main(["report", str(tmp_path)]) == 2
    line = capsys.readouterr().err
    assert (line.count("\n"), len(line) < 1000) == (1, True)


def test_the_facts_for_a_card_are_complete(tmp_path):
    with pytest.raises(
        InputError,
        match=r"e\.json: run: device is .*a value is needed.*run namsa-train evaluate",
    ):
        check_facts(tmp_path / "e.json", evaluation())


@pytest.mark.parametrize("content", ["[]", "{}", '{"scale": "x"}', "{"])
def test_a_calibration_is_one(tmp_path, content):
    (tmp_path / "calibration.json").write_text(content)
    with pytest.raises(InputError, match=r"calibration\.json.*run namsa-train calibrate again"):
        read_calibration(tmp_path / "calibration.json")


@pytest.mark.parametrize(
    "line",
    ["[]", "1", "{}", '{"step": "1", "loss": 1}', '{"step": [1], "loss": 1}',
    '{"step": 1, "loss": "x"}', nested(200),
     '{"step": 1}', '{"step": 1, "loss": 1e999}', '{"step": true, "loss": 1}', "\x00\x01"],
)  # fmt: skip
def test_a_line_of_metrics_is_a_step(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{line}\n{{"step": 2, "loss": 1.0}}\n')
    with pytest.raises(InputError, match=r"metrics\.jsonl: line 1 is no step"):
        read_steps(path, ("step", "loss"))


@pytest.fixture
def predictions(tmp_path):
    """Writes a predictions.npz with some of its arrays and facts changed; returns the folder."""

    def write(arrays=(), **facts):
        write_picture(tmp_path)
        write_json(tmp_path / "evaluation.json", evaluation())
        write_metrics(tmp_path, [1, 2])
        path = tmp_path / "predictions.npz"
        with np.load(path) as file:
            stored = dict(file)
        (listed,) = json.loads(str(stored["metadata"]))
        stored["metadata"] = np.array(json.dumps([listed | facts]))
        np.savez(
            path,
            **{name: array for name, array in (stored | dict(arrays)).items() if array is not None},
        )
        return tmp_path

    return write


def test_pictures_that_are_whole_are_read(predictions):
    (picture,), mean_image = read_predictions(predictions() / "predictions.npz")
    assert (picture.facts["id"], mean_image.shape) == (FACTS["id"], (8, 12))


@pytest.mark.parametrize(
    "facts",
    [
        {"id": "../x"}, {"id": 5}, {"zone_axis": [1, "x", 0]}, {"ssim": "high"},
        {"probes_angstrom": [[1.0]]},
        {"probes_angstrom": [[1.0, 2.0]]}, {"density_frame": [[0, 1], [0, 0]]},
        {"density_frame": [[1e-99, 1], [0, 0]]},
        {"density_frame": [[1, 1]]}, {"pattern_frame": "x"}, {"extent_angstrom": [1, 2, 3]},
        {"mean_predictor": None},
        {"material": None}, {"semiangle_mrad": [1]}, {"energy_ev": None},
    ],
)  # fmt: skip
def test_facts_of_a_picture_have_their_types(predictions, facts):
    with pytest.raises(InputError, match=r"predictions\.npz") as caught:
        write_report(predictions(**facts))
    assert "run namsa-train evaluate again" in str(caught.value)


ID = FACTS["id"]


@pytest.mark.parametrize(
    "arrays",
    [
        {"metadata": None}, {"metadata": np.arange(3)}, {"metadata": np.array("{")},
        {"metadata": np.array("{}")},
        {"metadata": np.array([1, {}], dtype=object)}, {"mean_image": None},
        {"mean_image": np.zeros(5)},
        {"mean_image": np.full((8, 12), np.nan)}, {"mean_image": np.zeros((0, 5))},
        *({f"{ID}/{name}": None} for name in ARRAYS), {f"{ID}/truth": np.zeros((5, 6), "f4")},
        {f"{ID}/patterns": np.zeros((2, 5, 6), "f4")}, {f"{ID}/patterns": np.zeros((1, 6, 6),
        "f4")},
        {f"{ID}/prediction": np.full((8, 12), "x")},
    ],
    ids=range(17),
)  # fmt: skip
def test_arrays_of_a_picture_are_images_that_fit_together(predictions, arrays):
    with pytest.raises(InputError, match=r"predictions\.npz"):
        write_report(predictions(arrays))
