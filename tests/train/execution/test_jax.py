"""JAX in place of TensorFlow: the same numbers, the same files, and no import of TensorFlow or
Horovod.
"""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import on_jax
import pytest
from paths import ROOT
from small_network import BEAM, WINDOW, experiment, write_run
from tiny import CONFIG, differences, numbers, write_config

from namsa.view.page_overlay import read_images
from train.__main__ import main as command
from train.main import train

pytest.importorskip("jax")

STEPS = 10
TWO = ["training.batch_size=2", "training.accumulate=2", "training.steps=3"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("jax")


@pytest.fixture(scope="module")
def config(folder, no_reports):
    """A job whose runs begin with the same weights, and drop nothing: what is drawn differs from
    TensorFlow's.
    """
    network = CONFIG["network"] | {"dropout": 0.0}
    train(write_config(folder, network=network), ["training.steps=1"], folder / "start")
    training = CONFIG["training"] | {"steps": STEPS, "start_from": str(folder / "start")}
    return write_config(folder, network=network, training=training)


@pytest.fixture(scope="module")
def scan(folder):
    """A scan, and a network of random weights that reconstructs it."""
    write_run(folder / "network", experiment())
    values = (
        np.random.default_rng(2).poisson(60.0, (WINDOW[0] + 6, WINDOW[1], 4, 4)).astype(np.uint16)
    )
    values.tofile(folder / "scan.raw")
    return folder / "scan.raw"


def quickstart(folder, run):
    """The words of ten steps of quickstart's training, with few materials and a smaller network."""
    changes = [f"data.directory={folder / 'quick'}", "materials.limit=4", f"training.steps={STEPS}"]
    changes += ["network.layers=[1, 1, 1]", "network.growth=8"]
    return [
        "configs/quickstart.yaml",
        "--run-dir",
        str(folder / run),
        *(f"--set={change}" for change in changes),
    ]


def of_scan(name, scan, out):
    words = [name, str(scan), "--checkpoint", str(scan.parent / "network"), "--out", str(out)]
    words += [
        "--scan-shape",
        f"{WINDOW[0] + 6}x{WINDOW[1]}",
        "--dtype",
        "u2",
        "--detector-shape",
        "4x4",
    ]
    words += [
        "--energy-ev",
        "200e3",
        "--semiangle-mrad",
        "20",
        "--scan-step-angstrom",
        "0.4",
        "--pixel-mrad",
        "8",
    ]
    return [*words, "--centre-pixels", *map(str, BEAM.centre_pixels), "--beam-intensity", "900"]


@pytest.fixture(scope="module")
def trained(config, scan, folder):
    """Runs of both: whole, stopped after four steps and continued by itself, and continued by the
    other.
    """

    def job(name, *overrides):
        return [
            str(config),
            "--run-dir",
            str(folder / name),
            *(f"--set={override}" for override in overrides),
        ]

    train(config, run_dir=folder / "tf")
    train(config, ["training.steps=4"], folder / "tf_4")
    shutil.copytree(folder / "tf_4", folder / "tf_then_jax")
    commands = [
        job("jax", "training.backend=jax"),
        job("jax_then_jax", "training.steps=4"),
        job("jax_then_jax"),
        job("jax_then_tf", "training.steps=4"),
        job("tf_then_jax"),
        job("one_device", *TWO),
        quickstart(folder, "quick_jax"),
        of_scan("reconstruct", scan, folder / "jax.h5"),
        of_scan("live", scan, folder / "jax_live.h5"),
        job("none", "training.exchange={kind: lag}"),
    ]
    done = on_jax.run(commands, folder / "compiled")
    assert done.returncode == 2, done.stderr[-3000:]  # of the last, which needs Horovod
    train(config, run_dir=folder / "jax_then_tf")
    return done


def assert_like(run_dir, other, tolerance=1e-5):
    ours = numbers(run_dir)
    theirs = numbers(other)
    assert len(ours) == len(theirs) == STEPS
    for row, expected in zip(ours, theirs, strict=True):
        assert row == pytest.approx(expected, rel=tolerance)


@pytest.mark.slow
@pytest.mark.usefixtures("trained")
class TestJaxIsAsTensorFlow:
    def test_ten_steps_give_the_same_losses(self, folder):
        assert_like(folder / "jax", folder / "tf")

    def test_ten_steps_of_quickstart_give_the_same_losses_without_onednn(self, folder):
        """The first loss is that of the same weights. Later ones may differ by more than rounding:
        where a ReLU's input is zero to rounding, its sign depends on the processor, and on its
        gradient all later weights (1.3e-4 of the loss on one processor, 1e-7 on another).
        """
        code = (
            "import sys; from train import main; from train.__main__ import main as command\n"
            "main.write_report = lambda run_dir: None; sys.exit(command(sys.argv[1:]))"
        )
        words = quickstart(folder, "quick_tf")
        without = os.environ | {"TF_ENABLE_ONEDNN_OPTS": "0"}
        subprocess.run([sys.executable, "-c", code, *words], cwd=ROOT, env=without, check=True)
        losses, expected = (
            [row["loss"] for row in numbers(folder / run)] for run in ("quick_jax", "quick_tf")
        )
        assert len(losses) == STEPS
        assert losses[0] == pytest.approx(expected[0], rel=1e-6)
        assert losses == pytest.approx(expected, rel=1e-3)

    def test_a_job_that_stopped_goes_on_to_the_same_bits(self, folder):
        assert differences(folder / "jax_then_jax", folder / "jax") == []

    @pytest.mark.parametrize("run", ["jax_then_tf", "tf_then_jax"])
    def test_each_goes_on_from_the_checkpoint_of_the_other(self, folder, run):
        assert_like(folder / run, folder / "tf")

    def test_held_out_samples_score_the_same(self, folder):
        scores = []
        for run in ("jax", "tf"):
            scores.append(json.loads((folder / run / "evaluation.json").read_text()))
        for row, expected in zip(*(evaluation["samples"] for evaluation in scores), strict=True):
            for name in ("huber", "mae", "ssim", "pearson"):
                assert row[name] == pytest.approx(expected[name], rel=1e-4, abs=1e-6)
        versions = scores[0]["run"]["versions"]
        assert "jax" in versions
        assert not {"tensorflow", "horovod"} & set(versions)

    def test_scans_have_the_same_density(self, folder, scan):
        assert command(of_scan("reconstruct", scan, folder / "tf.h5")) == 0
        expected = read_images(folder / "tf.h5")[0].image
        for name in ("jax.h5", "jax_live.h5"):
            density = read_images(folder / name)[0].image
            np.testing.assert_allclose(density, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.usefixtures("trained")
def test_two_devices_share_the_batches_of_an_update(config, folder):
    job = [str(config), "--run-dir", folder / "two", *(f"--set={override}" for override in TWO)]
    single = [
        "--run-dir",
        folder / "single",
        "--set=training.batch_size=1",
        "--set=training.steps=2",
    ]
    single += ["--set=training.precision.compute=mixed_float16", "--set=network.dropout=0.25"]
    calibrate = ["calibrate", folder / "single"]
    commands = [job, [str(config), *single], calibrate]
    done = on_jax.run(commands, folder / "compiled", devices=2, report=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "2 JAX devices" in done.stdout
    assert "a batch of 1 images uses 1 of 2 devices" in done.stderr
    losses, expected = (
        [row["loss"] for row in numbers(folder / run)] for run in ("two", "one_device")
    )
    assert losses == pytest.approx(expected, rel=1e-5)
    for row in numbers(folder / "single"):
        assert row["loss_scale"] > 1
    assert "times the spread" in done.stdout


@pytest.mark.slow
def test_what_jax_does_not_do_is_one_line(trained, folder):
    (error,) = [line for line in trained.stderr.splitlines() if line.startswith("error:")]
    assert "kind lag needs Horovod, which exchanges no tensors of JAX" in error
    assert "Traceback" not in trained.stderr
    assert "/none'" in trained.stderr.splitlines()[-1]  # the command that ended the process
    assert not (folder / "none").exists()


def test_a_process_that_computes_with_one_refuses_the_other(folder, capsys):
    assert (
        command(
            [
                "tests/data/tiny.yaml",
                "--run-dir",
                str(folder / "none"),
                "--set=training.backend=jax",
            ]
        )
        == 2
    )
    assert (
        "this process computes with tensorflow already: set KERAS_BACKEND=jax"
        in capsys.readouterr().err
    )
