"""A job of a task on small crystals, which each module of tests describes as `JOB` and runs once."""

import json
import re
import shutil

import numpy as np
import pytest
import yaml
from tiny import CONFIG, newest, numbers

from namsa.dataset import manifest
from namsa.dataset.shards import Dataset
from train.experiment.experiment import load
from train.main import train


@pytest.fixture(scope="module")
def config(request, tmp_path_factory):
    """The file of the job's configuration: that of the tiny job with the module's changes, and a folder for samples."""
    directory = tmp_path_factory.mktemp("job")
    path = directory / "job.yaml"
    path.write_text(yaml.safe_dump(CONFIG | request.module.JOB | {"data": {"directory": str(directory / "data")}}))
    return path


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
def assert_resumed(run_dir, config, no_report):
    """Stops a second job after some steps, checks that it then ends as the other, and returns its first folder."""

    def check(steps):
        stopped, resumed = config.parent / "stopped-early", config.parent / "resumed"
        train(config, [f"training.steps={steps}"], resumed)
        shutil.copytree(resumed, stopped)
        train(config, run_dir=resumed)
        assert numbers(resumed) == numbers(run_dir)
        assert (resumed / "validation.jsonl").read_text() == (run_dir / "validation.jsonl").read_text()
        for ours, theirs in zip(newest(resumed)[1].values(), newest(run_dir)[1].values(), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        return stopped

    return check
