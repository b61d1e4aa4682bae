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
        found = gpu_evidence.run(part, 6, log, tmp_path, str(tmp_path))
    assert (found["ended"], found["result"]) == (ended, result)


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
