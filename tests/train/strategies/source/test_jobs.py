"""Jobs with other sources than the default: the bits of the job that simulates its samples."""

import json

import launch
import pytest
from needs_kind import needs
from tiny import CONFIG, differences, numbers, rows, write_config

from namsa.base.errors import InputError
from namsa.dataset.shards import Dataset
from namsa.dataset.slab_file import write_slab_file
from train.experiment import registry
from train.experiment.experiment import load
from train.main import train
from train.ranks import connection
from train.scaling import forecast
from train.scaling.forecast_table import table_rows


@pytest.mark.slow
@needs("staged", "source")
@pytest.mark.usefixtures("no_report")
def test_a_staged_dataset_whose_node_is_lost_gives_the_same_bits(undisturbed, config):
    shared = config.parent / "data"
    home = config.parent / "home"
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


@pytest.mark.slow
@needs("drawn", "source")
@pytest.mark.usefixtures("no_report", "undisturbed")
def test_a_node_that_draws_its_samples_draws_them_again_after_it_is_lost(config):
    def run(name, node, epochs):
        local = config.parent / node
        drawn = [f"data.source={{kind: drawn, folder: {config.parent / 'data'}, samples: 5}}"]
        train(
            config,
            [*drawn, f"data.directory={local}", f"training.epochs={epochs}"],
            config.parent / name,
        )
        return json.loads((config.parent / name / "staging.json").read_text())["drawn"], local

    uninterrupted, first = run("drawn", "draws", 2)
    begun, _ = run("drawn_again", "draws", 1)
    resumed, second = run("drawn_again", "draws_again", 2)
    assert uninterrupted == begun == resumed
    assert (
        uninterrupted["seed"],
        uninterrupted["samples"],
        uninterrupted["different"],
        len(uninterrupted["digests"]),
    ) == (
        3,
        5,
        5,
        1,
    )
    with Dataset(first) as ours, Dataset(second) as theirs:
        assert ours.ids == theirs.ids
    assert len(rows(config.parent / "drawn")) == 2 * 5
    assert numbers(config.parent / "drawn_again") == numbers(config.parent / "drawn")


@pytest.mark.slow
@needs("memory", "source")
@pytest.mark.usefixtures("undisturbed")
def test_a_forecast_states_the_memory_of_the_samples(config, monkeypatch):
    job = load(config, ["data.source.kind=memory", "training.accumulate=2", "training.steps=5"])
    connection.start(job.training)
    facts = forecast.forecast(job, ranks=2)
    table = dict(table_rows(facts))
    with Dataset(config.parent / "data") as dataset:
        stored = len(dataset.read_bytes(dataset.ids[0])) * facts["train_samples"] // 2
    assert stored <= facts["store_bytes"] < 1.3 * stored  # a fifth is the allowance for headers
    assert (
        table["samples in memory"] == f"{facts['store_bytes'] / 1e6:,.4g} MB per rank, beside that"
    )
    source = registry.strategy("source", "memory", "source").SOURCE
    monkeypatch.setattr(source, "kept_bytes", lambda *_: 10**15)
    with pytest.raises(
        InputError,
        match="of 8 samples on 2 ranks, for one of them: 1000000.0 GB of memory, and .* avail",
    ):
        forecast.forecast(job, ranks=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ways", "source", "message"),
    [
        pytest.param(
            1,
            "{kind: memory}",
            "every rank keeps its samples in memory",
            marks=needs("memory", "source"),
        ),
        pytest.param(
            2,
            "{kind: slabs, file: SLABS}",
            "parts of samples are read",
            marks=needs("slabs", "source"),
        ),
    ],
)
def test_a_job_of_two_ranks_has_the_bits_of_one_from_the_disk(ways, source, message, tmp_path):
    sections = {"inputs": {}, "split": {"ways": ways}, "exchange": {"groups": 1}}
    data = {"directory": str(tmp_path / "data"), "tiles": [1, 1, ways, 1] if ways > 1 else None}
    config = write_config(tmp_path, data=data, training=CONFIG["training"] | sections)

    def run(name, *overrides):
        ended = launch.horovodrun("-m", "train", config, "--run-dir", tmp_path / name, *overrides)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return " ".join(ended.stdout.split())

    run("disk")
    if ways > 1:
        with Dataset(tmp_path / "data") as dataset:
            write_slab_file(tmp_path / "slabs.h5", dataset)
    assert message in run(
        "other", f"--set=data.source={source.replace('SLABS', str(tmp_path / 'slabs.h5'))}"
    )
    assert differences(tmp_path / "other", tmp_path / "disk") == []
    assert len(rows(tmp_path / "disk")) == 3 * 4 * ways
