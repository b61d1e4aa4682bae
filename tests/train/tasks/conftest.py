"""A job of a task on small crystals, which each module of tests describes as `JOB` and runs
once.
"""

import json
import re
import shutil

import pytest
from tiny import differences, write_config

from namsa.dataset import manifest
from namsa.dataset.shards import Dataset
from namsa.io.hdf5 import write_samples
from train.__main__ import main as command
from train.experiment.experiment import load
from train.main import train


@pytest.fixture(scope="module")
def config(request, tmp_path_factory):
    """The file of the job's configuration: that of the tiny job with the module's changes, and a
    folder for samples.
    """
    return write_config(tmp_path_factory.mktemp("job"), **request.module.JOB)


@pytest.fixture(scope="module")
def run_dir(config):
    path = config.parent / "run"
    train(config, run_dir=path)
    return path


@pytest.fixture(scope="module")
def evaluation(run_dir):
    return json.loads((run_dir / "evaluation.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def validations(run_dir):
    return [json.loads(line) for line in (run_dir / "validation.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def page(run_dir):
    """The text of the report, with single spaces."""
    return re.sub(r"\s+", " ", (run_dir / "report.html").read_text(encoding="utf-8"))


@pytest.fixture
def opened(run_dir):
    """The configuration, the dataset and the manifest's entries."""
    experiment = load(run_dir / "config.yaml")
    with Dataset(experiment.data.directory) as dataset:
        yield experiment, dataset, manifest.present(experiment.data.directory, dataset.ids)


@pytest.fixture
def applied(run_dir, tmp_path):
    """Runs a task's command on the scan of a sample, again each time; returns its exit code and the
    file it writes.
    """

    def run(name, sample_id, weights=""):
        experiment = load(run_dir / "config.yaml")
        out = tmp_path / "out.h5"
        with Dataset(experiment.data.directory) as dataset:
            write_samples(tmp_path / "scan.h5", [("scan", dataset.read(sample_id).sample())])
        pixel = map(
            str, experiment.conditions().pixel_mrad
        )  # that of the largest cell, where the sample has its own
        files = [
            str(tmp_path / "scan.h5"),
            "--checkpoint",
            str(run_dir / weights),
            "--out",
            str(out),
        ]
        return command([name, *files, "--pixel-mrad", *pixel]), out

    return run


@pytest.fixture
def assert_resumed(run_dir, config, no_report):
    """Stops a second job after some steps, checks that it then ends as the other, and returns its
    first folder.
    """

    def check(steps):
        stopped = config.parent / "stopped-early"
        resumed = config.parent / "resumed"
        train(config, [f"training.steps={steps}"], resumed)
        shutil.copytree(resumed, stopped)
        train(config, run_dir=resumed)
        assert differences(resumed, run_dir) == []
        assert (resumed / "validation.jsonl").read_text() == (
            run_dir / "validation.jsonl"
        ).read_text()
        return stopped

    return check
