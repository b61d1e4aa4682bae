"""The suite's own scheduling: a worker that crashes fails the suite, which does not wait for its
tests.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from threadpoolctl import threadpool_info

ROOT = Path(__file__).parents[1]
CRASH = "import os\ndef test_crash(): os._exit(3)\ndef test_after(): pass\n"


@pytest.mark.slow
def test_a_worker_that_crashes_fails_the_suite(tmp_path):
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_crash.py").write_text(CRASH)
    for name in "abc":
        (tmp_path / f"test_{name}.py").write_text("def test_passes(): pass\n")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "pytest"
    ]["ini_options"]
    (tmp_path / "pytest.ini").write_text(f"[pytest]\naddopts = {settings['addopts']}\n")
    command = [sys.executable, "-m", "pytest", "-n", "2", "."]
    ended = subprocess.run(
        command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 1, ended.stdout
    assert "crashed while running" in ended.stdout
    assert "test_crash.py::test_crash" in ended.stdout


def test_linear_algebra_of_a_worker_takes_one_core():
    """Threads of several workers would wait for each other, at full load."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        pytest.skip("one process has all cores")
    pools = []
    for pool in threadpool_info():
        if pool["internal_api"] == "openblas":
            pools.append(pool)
    assert {pool["num_threads"] for pool in pools} <= {1}
