"""Jobs that simulate beside the training: the same draws after a stop, and one line for what goes
wrong.
"""

import json
import os
import signal
import time
from collections import Counter

import pytest
import thread_ranks
from tiny import differences, newest, rows

from namsa.base.errors import InputError, WorkError
from namsa.dataset import drawn, manifest
from namsa.dataset.shards import Dataset
from train.experiment.experiment import load
from train.input.source import TrainingSet, source_of
from train.main import train
from train.ranks.signals import Stopped
from train.strategies.source.simulate.ring import Ring
from train.strategies.source.simulate.simulator import Simulator

# 4 specimens of two samples in an epoch
SOURCE = "samples_per_epoch: 24, reuse: 3, window: 6, baseline_samples: 2"


def settings(workers=0, **more):
    text = SOURCE + "".join(f", {name}: {value}" for name, value in more.items())
    return [f"data.source={{kind: simulate, workers: {workers}, {text}}}"]


@pytest.fixture(scope="module")
def directory(config):
    return [f"data.directory={config.parent / 'beside'}"]


@pytest.fixture
def taken(monkeypatch):
    """The samples that training takes, in their order."""
    take = Ring.take
    ids = []

    def noted(ring, key):
        entry = take(ring, key)
        ids.append(entry.id)
        return entry

    monkeypatch.setattr(Ring, "take", noted)
    return ids


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_a_stopped_job_goes_on_with_the_same_draws_whatever_simulates(
    config, directory, taken, capsys
):
    uninterrupted = config.parent / "beside_whole"
    stopped = config.parent / "beside_stopped"
    train(config, [*settings(2), *directory], uninterrupted)
    printed = capsys.readouterr().out
    expected = list(taken)
    taken.clear()
    train(
        config, [*settings(0), *directory, "training.steps=29"], stopped
    )  # within a window of the second epoch
    assert taken[:29] == expected[:29]
    taken.clear()
    train(config, [*settings(1), *directory], stopped)
    assert taken == expected[29:]
    assert set(Counter(expected).values()) == {3}
    assert len(set(expected)) == 3 * 8
    assert differences(stopped, uninterrupted) == []
    assert (
        "by 2 processes of a rank on the processor, each on one core at niceness 10, each trained "
        "on 3 times" in (" ".join(printed.split()))
    )
    assert "s of waiting for them" in " ".join(printed.split())
    assert sum(row["simulated"] for row in rows(uninterrupted)) == 3 * 8
    with Dataset(config.parent / "beside") as dataset:
        stored = manifest.present(config.parent / "beside", dataset.ids)
    listed = []
    for entry in manifest.read(config.parent / "beside"):
        if not entry.skipped:
            listed.append(entry)
    assert (
        sum(entry.split == "train" for entry in stored)
        == 2
        < sum(entry.split == "train" for entry in listed)
    )
    assert {e.id for e in stored if e.split != "train"} == {
        e.id for e in listed if e.split != "train"
    }
    evaluation = json.loads((uninterrupted / "evaluation.json").read_text())
    assert {row["id"] for row in evaluation["samples"]} == {
        e.id for e in listed if e.split != "train"
    }
    assert evaluation["run"]["training_samples"] == 24


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_a_signal_ends_the_wait_for_a_sample_with_a_checkpoint(
    config, directory, tmp_path, monkeypatch, taken
):
    """The fourth specimen, two samples, is simulated for as long as the job lasts."""
    prepare = drawn.prepare_samples
    asked = []

    def endless(settings, material, entries, on_progress):
        while "-d3-" in entries[0].id:
            # the batches before the next ones are read together
            if not asked and len(rows(tmp_path)) == 16:
                asked.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            on_progress("probes", 0, 1)
        return prepare(settings, material, entries, on_progress)

    monkeypatch.setattr(drawn, "prepare_samples", endless)
    with pytest.raises(Stopped, match="stopped by SIGINT after step 16, its checkpoint is written"):
        train(config, [*settings(), *directory], tmp_path)
    assert time.monotonic() - asked[0] < 30
    assert newest(tmp_path)[0] == "step-000000016.npz"
    monkeypatch.undo()
    taken.clear()
    train(config, [*settings(), *directory, "training.epochs=1"], tmp_path)
    assert [row["step"] for row in rows(tmp_path)] == list(range(1, 25))
    assert taken == []


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_a_simulating_process_that_is_killed_ends_the_job(config, directory, tmp_path, monkeypatch):
    simulate = Simulator._simulate

    def killing(simulator, maker, draw, first):
        if draw == 5:
            os.kill(maker.pid, signal.SIGKILL)
        simulate(simulator, maker, draw, first)

    monkeypatch.setattr(Simulator, "_simulate", killing)
    with pytest.raises(
        WorkError, match=r"draw 5 of data.source: the simulating process \d+ has ended \(SIGKILL"
    ):
        train(config, [*settings(1), *directory], tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_samples_that_fail_are_written_down_once(config, directory, tmp_path, monkeypatch, capsys):
    prepare = drawn.prepare_samples

    def failing(settings, material, entries, on_progress):
        if "-d2-" in entries[0].id:
            raise InputError("no such specimen")
        return prepare(settings, material, entries, on_progress)

    monkeypatch.setattr(drawn, "prepare_samples", failing)
    for run in ("a", "b"):
        train(config, [*settings(), *directory, "training.epochs=1"], tmp_path / run)
        printed = " ".join(capsys.readouterr().out.split())
        assert "data.source: 2 samples failed (reasons: " in printed
        assert "0 had no supercell; further specimens were drawn in their place" in printed
        assert len(rows(tmp_path / run)) == 24
    (path,) = (config.parent / "beside" / "drawn").glob("failed-*.jsonl")
    assert [json.loads(line)["reason"] for line in path.read_text().splitlines()] == 2 * [
        "no such specimen"
    ]


WRONG = {
    "data.source.samples_per_epoch=25": "samples_per_epoch is 25, no multiple of reuse 3: set it "
    "to 27",
    "training.samples=4": "does not go with training.samples: it has "
    "data.source.samples_per_epoch: unset it",
    "training.split.ways=2": "does not go with training.split.ways",
    "training.inputs.redraw_epochs=2": "does not go with training.inputs.redraw_epochs: a sample "
    "is gone after",
    "split={train: 0, dev: 0.5, test: 0.5}": "draws materials of the training split: raise "
    "split.train",
    "data.source.reuse=0": "data.source.reuse: must be at least 1",
}


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "fault"), WRONG.items())
def test_a_configuration_that_does_not_fit_is_refused_in_one_line(config, setting, fault):
    with pytest.raises(InputError) as caught:
        load(config, [*settings(), setting])
    assert fault in str(caught.value)


def opened(config, overrides, nodes, **training):
    """Result or error of `open` on each rank; the sources are closed."""
    job = load(config, overrides)

    def on_rank(rank):
        source = source_of(job)
        source._rank = rank.rank()
        source._log_line = lambda line: None
        values = {
            "dataset": None,
            "entries": (),
            "first": (0, 0),
            "ranks": rank,
            "division": None,
        } | training
        try:
            return source.open(TrainingSet(**values))
        finally:
            source.close()

    return thread_ranks.run(nodes, on_rank)


@pytest.mark.slow
def test_a_job_that_cannot_begin_says_why(config, directory):
    overrides = [*settings(), *directory]
    (error,) = opened(config, overrides, [[0]], first=(1, 6), ranks_before=2)
    assert (
        "stopped within epoch 2 on 2 ranks, each of which has draws of its own, and continues "
        "with as many, not 1" in (str(error))
    )
    (error,) = opened(config, [*settings(memory_gib=1e-4), *directory], [[0]])
    assert "data.source.memory_gib is 0.0001, and a window of 6 samples takes about 0.000" in str(
        error
    )
    (error,) = opened(config, [*settings(new_materials=5), *directory], [[0]])
    assert "all crystals are in the list" in str(error)
    source = source_of(load(config, overrides))
    with pytest.raises(
        InputError,
        match="is 24; 5 ranks with one specimen each, of 2 samples used 3 times, need 30",
    ):
        source.epoch_samples(5, 5)
    with pytest.raises(
        InputError,
        match="has 1 sample of the training split, .* fewer than the 2 ranks: raise data.s",
    ):
        source.epoch_samples(1, 2)
