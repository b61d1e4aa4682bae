"""JAX on a GPU against JAX on the processor, each in a process of its own: numbers, losses of a
job, float16.
"""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from paths import ROOT, SUPPORT

pytestmark = pytest.mark.gpu
ON_PROCESSOR = {"JAX_PLATFORMS": "cpu"}


def run(environment, *words):
    paths = os.pathsep.join([str(ROOT), str(SUPPORT), os.environ.get("PYTHONPATH", "")])
    exact = {"KERAS_BACKEND": "jax", "JAX_DEFAULT_MATMUL_PRECISION": "highest", "PYTHONPATH": paths}
    given = os.environ | exact | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} | environment
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module", autouse=True)
def _a_gpu():
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX sees no GPU")


def train(folder, environment, *changes):
    """Rows of metrics.jsonl and evaluation.json of a small job that drops nothing: what is drawn
    may differ.
    """
    changes = [
        f"data.directory={folder.parent / 'data'}",
        "network.dropout=0",
        "training.steps=6",
        *changes,
    ]
    words = []
    for change in changes:
        for word in ("--set", change):
            words.append(word)
    run(environment, "-m", "train", "tests/data/tiny.yaml", "--run-dir", folder, *words)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return rows, json.loads((folder / "evaluation.json").read_text())


def test_numbers_on_a_gpu_are_those_on_a_processor(tmp_path):
    for name, environment in (("gpu", {}), ("cpu", ON_PROCESSOR)):
        run(environment, ROOT / "tests/train/test_backends.py", tmp_path / f"{name}.npz")
    with np.load(tmp_path / "gpu.npz") as on_gpu, np.load(tmp_path / "cpu.npz") as expected:
        assert set(on_gpu) == set(expected)
        for name in expected:
            error = 1e-4 * np.abs(expected[name]).max()
            np.testing.assert_allclose(
                on_gpu[name], expected[name], rtol=0, atol=error, err_msg=name
            )


def test_a_job_on_a_gpu_loses_what_one_on_a_processor_does(tmp_path):
    steps, evaluation = train(tmp_path / "gpu", {})
    expected, _ = train(tmp_path / "cpu", ON_PROCESSOR)
    assert "CPU" not in evaluation["run"]["device"]
    np.testing.assert_allclose(
        [row["loss"] for row in steps], [row["loss"] for row in expected], rtol=1e-3
    )


def test_a_job_in_float16_on_a_gpu_has_finite_losses_and_a_loss_scale(tmp_path):
    rows, _ = train(tmp_path / "half", {}, "training.precision.compute=mixed_float16")
    for row in rows:
        assert np.isfinite(row["loss"])
    for row in rows:
        assert row["loss_scale"] >= 1
