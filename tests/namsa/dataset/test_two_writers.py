"""Two processes on one shard: the second is refused, and what the first wrote is whole."""

import multiprocessing
import threading

import fake_samples
import pytest
import yaml

from namsa import locks
from namsa.cli.parser import main
from namsa.dataset.shards import Dataset, shard_path

FORK = multiprocessing.get_context("fork")
SETTINGS = {
    "materials": {"builtin": ["Al-225-cF4"]},
    "simulation": {"grid_shape": [16, 16]},
    "scan": {"shape": [2, 2]},
    "specimen": {"thickness_angstrom": [4, 8], "lateral_angstrom": [5, 5]},
}


def produce_slowly(directory, settings, started, go_on):
    def simulate(*arguments):
        started.set()
        assert go_on.wait(60)
        return fake_samples.simulate(*arguments)

    fake_samples.produce(directory, settings=fake_samples.config(**settings), simulate=simulate)


@pytest.fixture
def dataset(tmp_path, monkeypatch):
    """A dataset that another process writes, and the event that lets it end."""
    monkeypatch.setattr(locks, "WAIT_S", 0.1)
    started, go_on = FORK.Event(), FORK.Event()
    process = FORK.Process(target=produce_slowly, args=(tmp_path / "d", SETTINGS, started, go_on))
    process.start()
    assert started.wait(60)
    yield tmp_path / "d", go_on, process
    process.kill()
    process.join()


def test_a_second_command_on_a_shard_is_refused_in_one_line(dataset, tmp_path, capsys):
    directory, go_on, process = dataset
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(fake_samples.config(**SETTINGS).model_dump(mode="json")))
    capsys.readouterr()
    assert main(["dataset", str(tmp_path / "c.yaml"), "--out", str(directory)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: process {process.pid} on ")
    assert f" is writing to {shard_path(directory, 0)}: wait for it, or give each process its own rank" in line
    go_on.set()
    process.join(60)
    assert process.exitcode == 0
    with Dataset(directory) as written:
        assert len(written.ids) == 2
        assert all(written.read(sample_id) for sample_id in written.ids)
    assert not list(directory.glob(".*"))


def test_a_second_command_that_waits_simulates_nothing_again(dataset, monkeypatch):
    directory, go_on, process = dataset
    monkeypatch.setattr(locks, "WAIT_S", 60.0)
    threading.Timer(0.5, go_on.set).start()
    simulated = []
    summary = fake_samples.produce(directory, settings=fake_samples.config(**SETTINGS), simulate=simulated.append)
    process.join(60)
    assert (summary["written"], summary["present"], summary["remaining"], simulated) == (0, 2, 0, [])
