"""Training on a GPU against the CPU: one step, float16 with loss scaling, and gradients over
NCCL.
"""

import json
import os
import subprocess
import sys

import launch
import numpy as np
import pytest
from paths import ROOT

from fcdensenet.build import build
from fcdensenet.config import NetworkConfig
from train.experiment.sections import Training
from train.optimization import precision
from train.optimization.optimizers import LarsAdam

pytestmark = pytest.mark.gpu
SHAPE = {
    "input_shape": (6, 16, 24),
    "layers": (1, 2, 1),
    "growth": 8,
    "first_filters": 8,
    "kernel": 3,
    "dropout": 0.0,
}


@pytest.fixture
def tf():
    module = pytest.importorskip("tensorflow")
    if not module.config.list_physical_devices("GPU"):
        pytest.skip("TensorFlow sees no GPU")
    from train.ranks import connection

    connection.start()
    yield module
    connection.stop()


def losses(tf, device, compute="float32", data_format="channels_first", steps=5):
    """Losses and weights of some steps on one batch, on a device."""
    from train.optimization.loop import make_step

    training = Training.model_validate({"epochs": 1, "precision": {"compute": compute}})
    rng = np.random.default_rng(2)
    x = rng.random((2, 6, 16, 24), np.float32)
    y = x[:, :1] * x[:, 1:2]
    if data_format == "channels_last":
        x = np.moveaxis(x, 1, -1)
        y = np.moveaxis(y, 1, -1)
    with tf.device(device):
        with precision.policy(compute):
            model = build(NetworkConfig(**SHAPE, data_format=data_format), seed=1)
            optimizer = precision.with_loss_scale(LarsAdam(training.optimizer), training)
            optimizer.build(model.trainable_variables)
        step = make_step(model, optimizer, training)
        values = [tf.constant(value) for value in (x, y, np.float32(1e-2), np.float32(1.0))]
        numbers = [step(*values).numpy()[0] for _ in range(steps)]
    return np.array(numbers), [weight.numpy() for weight in model.trainable_variables], optimizer


@pytest.mark.parametrize("data_format", ["channels_first", "channels_last"])
def test_steps_on_a_gpu_lose_what_steps_on_a_cpu_do(data_format, tf):
    tf.config.experimental.enable_tensor_float_32_execution(False)
    on_gpu, weights, _ = losses(tf, "/GPU:0", data_format=data_format)
    on_cpu, expected, _ = losses(tf, "/CPU:0", data_format="channels_last")
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=1e-3)
    for weight, other in zip(weights, expected, strict=True):
        np.testing.assert_allclose(weight, other, atol=1e-3)


def test_float16_on_a_gpu_learns_with_a_finite_loss_scale(tf):
    half, _, optimizer = losses(tf, "/GPU:0", "mixed_float16", steps=30)
    single, *_ = losses(tf, "/GPU:0", steps=30)
    assert np.isfinite(half).all()
    np.testing.assert_allclose(half[0], single[0], rtol=2e-2)
    assert half[-5:].mean() < half[:5].mean()
    assert float(optimizer.dynamic_scale) >= 1


NCCL = """
import json, numpy as np, sys, tensorflow as tf
import horovod.tensorflow as hvd
from train.experiment.exchange import Allreduce
from train.execution.tensorflow import claim
from train.ranks import connection
from train.ranks.connection import engine
from train.ranks.exchange import make_exchange
connection.start()
claim(engine().local_rank(), engine().local_size())
found = {}
for compression in ("none", "fp16"):
    exchange = make_exchange(Allreduce(compression=compression))
    with tf.device("/GPU:0"):
        gradients = [tf.fill([1000 + n], float(engine().rank() + n)) for n in range(4)]
        mean = tf.function(lambda: exchange.average(gradients, [[0, 1], [2, 3]]))()
    found[compression] = [sorted(set(m.numpy().tolist())) for m in mean]
    found["device"] = mean[0].device
found["nccl"] = bool(hvd.nccl_built())
print(json.dumps(found), flush=True)
"""


def test_gradients_of_two_gpus_are_averaged_by_nccl(tf):
    import horovod.tensorflow as hvd

    if not hvd.nccl_built():
        pytest.skip("Horovod was built without NCCL")
    if len(tf.config.list_physical_devices("GPU")) < 2:
        pytest.skip("NCCL needs a GPU for each rank: two")
    done = launch.horovodrun("-c", NCCL, python=sys.executable)
    assert done.returncode == 0, done.stderr
    rows = []
    for line in done.stdout.splitlines():
        if '"nccl"' in line:
            rows.append(json.loads(line[line.index("{") :]))
    assert len(rows) == 2
    for row in rows:
        assert row["nccl"]
        assert "GPU" in row["device"]
        assert row["none"] == row["fp16"] == [[n + 0.5] for n in range(4)]


def test_the_job_trains_on_a_gpu(tf, tmp_path):
    line = [sys.executable, "-m", "train", "tests/data/tiny.yaml", "--run-dir", tmp_path / "run"]
    changes = [f"data.directory={tmp_path / 'data'}", "training.precision.compute=mixed_float16"]
    line += [word for change in changes for word in ("--set", change)]
    done = subprocess.run(
        line, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    evaluation = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert "CPU" not in evaluation["run"]["device"]
