"""`scripts/gpu_evidence.sh`: its parts, of which none needs a GPU here, and the page of its
results.
"""

import json
import os
import subprocess
import sys

import gpu_evidence
import gpu_page
import pytest
from paths import ROOT


@pytest.mark.slow
def test_a_machine_without_a_gpu_is_described(tmp_path):
    environment = os.environ | {"PYTHON": sys.executable, "WHEELS": str(tmp_path / "none")}
    command = ["scripts/gpu_evidence.sh", "--parts", "machine", "--rehearse", "--out", tmp_path]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    machine = json.loads((tmp_path / "gpu.json").read_text())["machine"]
    assert machine["ended"] == "well"
    assert machine["result"]["versions"]["numpy"] != "none"
    assert "== machine" in (tmp_path / "gpu.log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "ended", "result"),
    [
        ("print('{\"a\": 1}'); print('{\"a\": 2}')", "well", {"a": 2}),
        ("print('{\"a\": 1}'); raise SystemExit(3)", "with exit 3", {"a": 1}),
        ("raise SystemExit(2)", "no device", None),
        ("print('{broken', flush=True); import time; time.sleep(60)", "out of time", None),
    ],
)
def test_a_part_ends_alone_and_keeps_what_it_has_printed(code, ended, result, tmp_path):
    part = gpu_evidence.Part("one", 6, 6, ("-c", code))
    with (tmp_path / "log").open("w") as log:
        answer = gpu_evidence.run(part, 6, log, tmp_path, str(tmp_path))
    assert (answer["ended"], answer["result"]) == (ended, result)


def test_every_part_has_a_script_and_a_section():
    assert {part.name for part in gpu_evidence.PARTS} == {"machine", *gpu_page.SECTIONS}
    for part in gpu_evidence.PARTS:
        assert (ROOT / part.command[0]).is_file()


@pytest.mark.parametrize("left", [250, 520])
def test_each_part_leaves_the_later_ones_what_they_need(left):
    parts = {part.name: part for part in gpu_evidence.PARTS}
    times = {}
    remaining = left
    for index, part in enumerate(gpu_evidence.PARTS):
        times[part.name] = gpu_evidence.time_of(part, remaining, gpu_evidence.PARTS[index + 1 :])
        remaining -= times[part.name]
    assert remaining >= 0
    for name in ("step", "networks", "source", "quickstart", "training"):
        assert times[name] >= parts[name].least
    assert left < 520 or all(times[name] >= part.least for name, part in parts.items())


def test_the_page_is_that_of_the_results():
    results = json.loads(gpu_page.PAGE.with_suffix(".json").read_text(encoding="utf-8"))
    assert gpu_page.PAGE.read_text(encoding="utf-8") == gpu_page.page(results)


def write_page(runs, monkeypatch, tmp_path):
    """Runs the script on the results of some runs, and returns the page and the results kept."""
    paths = []
    for index, results in enumerate(runs):
        path = tmp_path / f"{index}.json"
        path.write_text(json.dumps(results))
        paths.append(str(path))
    page = tmp_path / "gpu.md"
    monkeypatch.setattr(gpu_page, "PAGE", page)
    monkeypatch.setattr(sys, "argv", ["gpu_page.py", *paths])
    assert gpu_page.main() == 0
    kept = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    return page.read_text(encoding="utf-8"), kept


def part_of(result):
    """Returns what is kept of a part that has ended well."""
    return {"ended": "well", "seconds": 7.4, "result": result}


MACHINE = part_of(
    {
        "gpu": ["name, driver, memory, clock, power", "A card, 1.2, 9 MiB, 8 MHz, 7 W"],
        "cores": 3,
        "python": "3.12.3",
        "versions": {"numpy": "2.5.2"},
    }
)
STEP = {
    "compute": "bfloat16",
    "step_s": 0.25,
    "flop_per_s": 45e12,
    "peak_flop_per_s": 90e12,
    "share_of_peak": 0.5,
    "peak_memory_gib": None,
    "compile_s": 12.0,
    "input_shape": [4, 8, 16],
    "parameters": 3e6,
    "step_flop": 1.5e12,
}
SOURCE = {
    "backend": "gpu",
    "rows": [{"workers": 0, "samples_per_s": 8.0, "worker_s": 0.125, "start_s": 2.0}],
    "patterns_of_sample": [3, 4, 5, 6],
    "samples_of_specimen": 2,
}
QUICKSTART = {
    "simulation_s": 1.0,
    "start_s": 2.0,
    "steps_s": 3.0,
    "evaluation_and_report_s": 4.0,
    "steps": 1200,
    "step_ms": 2.5,
    "first_step_s": 0.5,
    "mean": {"ssim": 0.75, "pearson": 0.875},
    "mean_predictor": {"ssim": 0.25, "pearson": 0.125},
    "samples": 6,
}
TRAINING = {
    "steps_s": 60.0,
    "steps": 1500,
    "simulated": 6000,
    "waited_for_simulator_s": 5.0,
    "first_losses": 0.5,
    "last_losses": 0.25,
    "validations": [{"epoch": 1, "ssim": 0.5, "pearson": 0.625, "samples": 24}],
}


def test_the_page_has_every_part_of_a_run(monkeypatch, tmp_path):
    results = {
        "machine": MACHINE,
        "step": part_of([STEP, {"compute": "float32", "failed": "no memory"}]),
        "source": part_of(SOURCE),
        "quickstart": part_of(QUICKSTART),
        "training": part_of(TRAINING),
        "tests": {"ended": "out of time", "seconds": 9.0, "result": None, "note": " Too slow."},
    }
    page, kept = write_page([results], monkeypatch, tmp_path)
    assert kept == results
    lines = page.splitlines()
    for line in (
        "Machine: one A card, 9 MiB, driver 1.2, at most 8 MHz and 7 W; 3 cores; Python 3.12.3; "
        "numpy 2.5.2. No TensorFlow, no",
        "| step of paper.yaml, bfloat16, share of the peak | 0.45 | 0.50 |",
        "| quickstart | well | 7 s |",
        "| bfloat16 | 250 ms | 45 | 90 | 0.50 | – | 12 s |",
        "float32: no memory",
        "| card | a thread | 8.0 | 125 ms | 2.0 s |",
        "| training | 3.0 s |",
        "| 1 | 0.500 | 0.625 |",
        "- Part tests: it has ended out of time. Too slow.",
        "- engines, networks: not in this run.",
    ):
        assert line in lines


def test_the_page_has_of_several_runs_the_last_result_of_each_part(monkeypatch, tmp_path):
    first = {"machine": MACHINE, "tests": part_of({"passed": 1}), "source": part_of(SOURCE)}
    second = {"machine": MACHINE, "tests": part_of({"passed": 2, "skipped": 1})}
    page, kept = write_page([first, second], monkeypatch, tmp_path)
    assert kept == first | second
    assert "Tests with the mark `gpu`: 2 passed, 1 skipped." in page
    assert "## Samples of the simulating source" in page


def test_results_of_different_cards_and_of_a_rehearsal_make_no_page(monkeypatch, tmp_path, capsys):
    other_card = {"engines": part_of({"device": "Another card"})}
    cases = {
        "these results are of different cards: A card, Another card": [
            {"machine": MACHINE},
            other_card,
        ],
        "these results are of a rehearsal": [{"machine": MACHINE, "rehearsal": True}],
    }
    for message, runs in cases.items():
        with pytest.raises(SystemExit) as ended:
            write_page(runs, monkeypatch, tmp_path)
        assert ended.value.code == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "gpu.md").exists()
