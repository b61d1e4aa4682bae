"""Jobs with other sources than the default: the bits of the job that simulates its samples."""

import json

import launch
import pytest
from needs_kind import needs
from tiny import differences, numbers, rows

from namsa.dataset.shards import Dataset
from namsa.errors import InputError
from train.experiment import registry
from train.experiment.experiment import load
from train.main import train
from train.ranks import reduction
from train.scaling import forecast


@needs("staged", "source")
@pytest.mark.usefixtures("no_report")
def test_a_staged_dataset_whose_node_is_lost_gives_the_same_bits(undisturbed, config):
    shared, home = config.parent / "data", config.parent / "home"
    for node, epochs in enumerate((1, 3)):
        local = config.parent / f"node{node}"
        staged = [
            f"data.source={{kind: staged, folder: {shared}}}",
            f"data.directory={local / 'data'}",
            f"training.epochs={epochs}",
        ]
        train(config, staged, local / "run", home=home)
        counts = json.loads((home / "staging.json").read_text())
        assert counts["ranks"][0]["read"] == counts["bytes"] == counts["ranks"][0]["written"]
    assert differences(home, undisturbed) == []


@needs("drawn", "source")
@pytest.mark.usefixtures("no_report", "undisturbed")
def test_a_node_that_draws_its_samples_draws_them_again_after_it_is_lost(config):
    def run(name, node, epochs):
        local = config.parent / node
        drawn = [f"data.source={{kind: drawn, folder: {config.parent / 'data'}, samples: 5}}"]
        train(config, [*drawn, f"data.directory={local}", f"training.epochs={epochs}"], config.parent / name)
        return json.loads((config.parent / name / "staging.json").read_text())["drawn"], local

    whole, first = run("drawn", "draws", 2)
    begun, _ = run("drawn_again", "draws", 1)
    resumed, second = run("drawn_again", "draws_again", 2)
    assert whole == begun == resumed
    assert (whole["seed"], whole["samples"], whole["different"], len(whole["digests"])) == (3, 5, 5, 1)
    with Dataset(first) as ours, Dataset(second) as theirs:
        assert ours.ids == theirs.ids
    assert len(rows(config.parent / "drawn")) == 2 * 5
    assert numbers(config.parent / "drawn_again") == numbers(config.parent / "drawn")


@pytest.mark.slow
@needs("memory", "source")
@pytest.mark.usefixtures("undisturbed")
def test_a_forecast_states_the_memory_of_the_samples(config, monkeypatch):
    job = load(config, ["data.source.kind=memory", "training.accumulate=2", "training.steps=5"])
    reduction.start(job.training)
    found = forecast.forecast(job, ranks=2)
    told = dict(forecast.table_rows(found))
    with Dataset(config.parent / "data") as dataset:
        stored = len(dataset.read_bytes(dataset.ids[0])) * found["train_samples"] // 2
    assert stored <= found["store_bytes"] < 1.3 * stored  # a fifth is the allowance for headers
    assert told["samples in memory"] == f"{found['store_bytes'] / 1e6:,.4g} MB per rank, beside that"
    source = registry.strategy("source", "memory", "source").Source
    monkeypatch.setattr(source, "kept_bytes", lambda *_: 10**15)
    with pytest.raises(
        InputError, match="of 8 samples on 2 ranks, for one of them: 1000000.0 GB of memory, and .* avail"
    ):
        forecast.forecast(job, ranks=2)


@pytest.mark.slow
@needs("memory", "source")
def test_a_job_from_memory_has_the_bits_of_one_from_the_disk(tmp_path):
    found, printed = launch.on_ranks("memory_ranks.py", tmp_path, 1)
    assert "every rank keeps its samples in memory" in printed
    assert found[0]["differ"] == []
    for rank in found:
        assert max(rank["asked"][:-1]) < 100  # bytes in the second and the third epoch; the counter itself is read
    assert found[0]["steps"] == 3 * 4


@pytest.mark.slow
@needs("memory", "source")
def test_a_job_with_parts_from_hdf5_has_the_bits_of_one_with_parts_from_the_dataset(tmp_path):
    found, printed = launch.on_ranks("memory_ranks.py", tmp_path, 2, "hdf5")
    assert "parts of samples are read from" in printed
    assert found[0]["differ"] == []
