"""Training on the files of the authors' programs, which are written here with lmdb and h5py
alone.
"""

import json
import os
import shutil
from contextlib import nullcontext

import h5py
import numpy as np
import pytest
import thread_ranks
import yaml
from stemdl_files import write_db
from tiny import CONFIG, numbers

from namsa import InputError, SimulationWarning
from namsa.base import provenance_values
from namsa.base.identity import digest_of_file
from namsa.dataset import manifest
from namsa.dataset.shards import Dataset
from namsa.dataset.sharing import RankLayout
from namsa.exchange.stemdl import open_stemdl
from train.commands import preflight
from train.experiment.experiment import load
from train.input.source import Preparation, source_of
from train.main import train
from train.scaling.forecast import Samples, count_samples
from train.strategies.source.stemdl import file_digests
from train.strategies.source.stemdl.conversion import as_sample
from train.strategies.source.stemdl.source import batch_files, list_samples

SIZE = (32, 48)


def standard(values):
    mean, deviation = (of(values, axis=(-2, -1), keepdims=True) for of in (np.mean, np.std))
    return ((values - mean) / deviation).astype(np.float16)


def samples(count, seed):
    """Standardised patterns of twice the network's pixels, and potentials that their brightness
    tells.
    """
    rng = np.random.default_rng(seed)
    potentials = rng.normal(size=(count, 1, *SIZE))
    patterns = np.kron(potentials * rng.uniform(0.5, 2, (count, 6, 1, 1)), np.ones((2, 2)))
    patterns += 0.1 * rng.normal(size=patterns.shape)
    return {"patterns": standard(patterns), "potentials": standard(potentials), "count": count}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    write_db(folder / "batch_train_0.db", **samples(5, 0))
    write_db(folder / "batch_train_1.db", **samples(4, 1))
    (folder / "held_out").mkdir()
    write_db(folder / "held_out" / "batch_eval_0.db", **samples(2, 2))
    return folder


@pytest.fixture(scope="module")
def config(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("job") / "job.yaml"
    inputs = {"normalisation": "standardised"}
    data = {
        "directory": str(path.parent / "data"),
        "source": {"kind": "stemdl", "folder": str(folder)},
    }
    training = CONFIG["training"] | {"inputs": inputs, "epochs": 2, "batch_size": 3}
    left_out = ("materials", "split")
    job = {}
    for key, value in CONFIG.items():
        if key not in left_out:
            job[key] = value
    path.write_text(
        yaml.safe_dump(
            job | {"target": {"kind": "standardised_potential"}, "training": training, "data": data}
        )
    )
    return path


@pytest.fixture(scope="module")
def run_dir(config):
    train(config, run_dir=config.parent / "run")
    return config.parent / "run"


@pytest.mark.slow
def test_a_folder_of_lmdb_files_is_trained_and_evaluated_on_with_its_own_split(
    run_dir, config, capsys
):
    evaluation = json.loads((run_dir / "evaluation.json").read_text())
    assert (evaluation["split"], evaluation["target"]) == ("dev", "standardised_potential")
    assert evaluation["run"]["training_samples"] == 9
    held_out = samples(2, 2)["potentials"].astype(float)[:, 0]
    mean = (
        np.concatenate([samples(5, 0)["potentials"], samples(4, 1)["potentials"]])
        .astype(float)
        .mean(0)[0]
    )
    assert [row["id"] for row in evaluation["samples"]] == ["batch_eval_0-0", "batch_eval_0-1"]
    for row, truth in zip(evaluation["samples"], held_out, strict=True):
        assert row["mean_predictor"]["mae"] == pytest.approx(np.abs(truth - mean).mean(), rel=2e-3)
    page = " ".join((run_dir / "report.html").read_text().split())
    assert (
        "of materials that the files do not name, the network reconstructs the standardised "
        "projected" in page
    )
    assert "training never saw" not in page
    losses = [row["huber"] for row in numbers(run_dir)]
    assert len(losses) == 2 * 3
    assert np.isfinite(losses).all()


def test_samples_are_averaged_to_the_detector_and_keep_their_numbers(run_dir):
    experiment = load(run_dir / "config.yaml")
    with Dataset(experiment.data.directory) as dataset:
        assert len(dataset) == 11
        record = dataset.read("batch_train_1-3")
    patterns = samples(4, 1)["patterns"][3]
    potential = samples(4, 1)["potentials"][3, 0]
    expected = patterns.astype(float).reshape(6, 32, 2, 48, 2).mean((2, 4))
    np.testing.assert_allclose(record.patterns(), expected, atol=2e-3)
    np.testing.assert_array_equal(record.projected_potential, potential)


@pytest.mark.usefixtures("no_report", "run_dir")
def test_a_job_that_is_started_again_takes_no_sample_again_and_refuses_other_files(
    config, tmp_path, folder, capsys
):
    train(config, ["training.epochs=1"], tmp_path / "again")
    assert "samples: 0 taken from 3 files" in capsys.readouterr().out.replace("\n", " ")
    write_db(tmp_path / "batch_train_0.db", **samples(5, 3))
    with pytest.raises(InputError, match="give it a directory of its own"):
        train(config, [f"data.source.folder={tmp_path}"], tmp_path / "other")


@pytest.mark.usefixtures("no_report", "run_dir")
def test_files_that_are_replaced_by_others_of_the_same_size_are_refused(
    config, tmp_path, folder, capsys
):
    shutil.copytree(folder, tmp_path / "files")
    where = [f"data.source.folder={tmp_path / 'files'}", "training.epochs=1"]
    train(config, where, tmp_path / "copied")  # the same contents in another place
    assert "samples: 0 taken from 3 files" in capsys.readouterr().out.replace("\n", " ")
    replaced = tmp_path / "files" / "batch_train_0.db" / "data.mdb"
    status = replaced.stat()
    data = bytearray(replaced.read_bytes())
    place = data.rindex(samples(5, 0)["patterns"][2, 3].tobytes())
    data[place] ^= 1
    replaced.write_bytes(data)
    os.utime(replaced, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert replaced.stat().st_size == status.st_size
    with pytest.raises(InputError, match="was made differently:") as error:
        train(config, where, tmp_path / "other")
    lines = str(error.value).splitlines()
    assert len(lines) == 3
    assert lines[1].strip().startswith("batch_train_0.db: was ")
    assert "give it a directory of its own, or delete" in lines[2]


@pytest.mark.usefixtures("no_report", "run_dir")
def test_a_dataset_without_digests_gets_those_of_its_files(config, folder, tmp_path):
    experiment = load(config)
    (experiment.data.directory / file_digests.FILE_NAME).unlink()
    with pytest.warns(SimulationWarning, match="does not say the digests of the files"):
        train(config, ["training.epochs=1"], tmp_path / "again")
    known = json.loads((experiment.data.directory / file_digests.FILE_NAME).read_text())
    contents = folder / "batch_train_1.db" / "data.mdb"
    assert known["batch_train_1.db"]["digest"] == digest_of_file(contents)


@pytest.mark.usefixtures("no_report")
def test_without_held_out_files_samples_are_held_out_and_a_broken_one_is_left_out_with_its_reason(
    config, tmp_path
):
    broken = samples(8, 4)
    broken["patterns"][5, 2, 3, 4] = np.nan
    small = {**broken, "potentials": standard(np.random.default_rng(4).normal(size=(8, 1, 16, 24)))}
    write_db(tmp_path / "batch_train_0.db", **{**small, "count": 20})
    where = [
        f"data.directory={tmp_path / 'data'}",
        f"data.source.folder={tmp_path}",
        "training.epochs=1",
    ]
    train(config, where, tmp_path / "run")
    entries = manifest.read(tmp_path / "data")
    splits = [entry.split for entry in entries]
    assert len(splits) == 20
    assert {"train", "dev", "test"} == set(splits)
    failures = []
    for line in (tmp_path / "data" / "failed-00000.jsonl").read_text().splitlines():
        failures.append(json.loads(line))
    assert [failure["id"] for failure in failures] == ["batch_train_0-5", "batch_train_0-13"]
    assert "cbed holds numbers that are not finite" in failures[0]["reason"]
    with Dataset(tmp_path / "data") as dataset:
        assert len(dataset) == 18
        resized = dataset.read("batch_train_0-0").projected_potential
    assert resized.shape == SIZE
    inner = resized.reshape(16, 2, 24, 2).mean((1, 3))
    assert np.corrcoef(inner.ravel(), small["potentials"][0, 0].astype(float).ravel())[0, 1] > 0.95


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["training.inputs.normalisation=power"], "batch_train_0-0 has negative numbers"),
        (
            ["scan.shape=[2, 2]", "network.input_shape=[4, 32, 48]"],
            r"6 patterns, and scan.shape \[2, 2\] has 4",
        ),
        (
            ["simulation.grid_shape=[32, 40]", "network.input_shape=[6, 32, 40]"],
            "no squares of the detector's 32×40",
        ),
        (["target.kind=density"], "set it to standardised_potential"),
        (["training.inputs.augment=true"], "inputs.augment needs"),
        (["data.source.folder=/nowhere"], "has no batch_"),
    ],
)
def test_what_does_not_fit_the_files_is_one_line(config, tmp_path, overrides, message):
    with pytest.raises(InputError, match=message):
        train(config, [f"data.directory={tmp_path / 'data'}", *overrides], tmp_path / "run")


def test_pairs_in_hdf5_are_split_by_the_material_that_they_name_and_keep_attributes(
    config, tmp_path
):
    rng = np.random.default_rng(6)
    materials = [f"m {n}" for n in range(12)]
    with h5py.File(tmp_path / "batch_train_0.h5", "w") as file:
        for material in materials:
            group = file.create_group(material)
            group.attrs["space_group"], group.attrs["formula"] = "229", "Fe"
            for n in range(2):
                pair = group.create_group(f"sample_{n}")
                pair["CBED"], pair["potential"] = (
                    rng.normal(size=(2, 3, *SIZE)),
                    rng.normal(size=SIZE),
                )
                pair.attrs["energy"] = 100.0
    experiment = load(config, ["split={train: 0.5, dev: 0.25, test: 0.25}"])
    listed = list_samples(batch_files(tmp_path), experiment)
    assert [listed_sample.entry.id for listed_sample in listed[:2]] == [
        "batch_train_0-m-0-sample_0",
        "batch_train_0-m-0-sample_1",
    ]
    assert {
        (listed_sample.entry.space_group, listed_sample.entry.formula) for listed_sample in listed
    } == {("Im-3m", "Fe")}
    splits = {listed_sample.entry.material: set() for listed_sample in listed}
    for listed_sample in listed:
        splits[listed_sample.entry.material].add(listed_sample.entry.split)
    for names in splits.values():
        assert len(names) == 1
    assert set.union(*splits.values()) == {"train", "dev", "test"}
    with open_stemdl(listed[3].file) as file:
        stored = file.read(listed[3].name)
    sample = as_sample(stored, listed[3].entry, experiment, set())
    assert sample.cbed.shape == (6, *SIZE)
    np.testing.assert_array_equal(sample.projected_potential, stored.potential.astype(np.float32))
    assert sample.provenance["attributes"] == {
        "space_group": "229",
        "formula": "Fe",
        "energy": 100.0,
    }
    provenance_values.check(sample.provenance)


def test_names_that_are_the_same_as_names_of_samples_are_refused(config, tmp_path):
    with h5py.File(tmp_path / "batch_test_0.h5", "w") as file:
        for name in ("a b", "a?b"):
            file[f"{name}/cbed_stack"] = np.zeros((3, 4, 4))
    with pytest.raises(InputError, match="2 samples of 1 names"):
        list_samples(batch_files(tmp_path), load(config))


def test_a_dry_run_and_the_preflight_count_the_samples_of_the_files_and_write_no_list(
    config, tmp_path
):
    directory = tmp_path / "data"
    experiment = load(config, [f"data.directory={directory}"])
    assert count_samples(experiment, ranks=2) == Samples(training=9, held_out=2, simulation=None)
    report = preflight.RankReport(0, "node00")
    faults = []
    report = preflight._look_at_data(experiment, None, report, 1, faults)
    assert faults == []
    assert (report.training_samples, report.materials) == (9, 1)
    assert list(directory.iterdir()) == []


def test_ranks_that_see_other_files_list_different_samples(config, tmp_path):
    write_db(tmp_path / "batch_train_0.db", **samples(5, 0))
    digests = set()
    for folder in ([], [f"data.source.folder={tmp_path}"]):
        experiment = load(config, folder)
        digests.add(preflight._listed_samples(experiment, None).digest)
    assert len(digests) == 2


def test_two_ranks_list_and_take_what_one_does(config, tmp_path):
    """Each lists its part of the files, and rank 0 writes the list of all."""
    lists = []
    for size in (1, 2):
        directory = tmp_path / str(size)
        experiment = load(config, [f"data.directory={directory}"])

        def prepared(rank, experiment=experiment):
            job = Preparation(
                ranks=rank,
                run_dir=tmp_path,
                layout=RankLayout(rank.rank(), rank.size()),
                simulate=True,
                force=False,
                check_listed=lambda entries: None,
                progress=lambda what: nullcontext(lambda *_: None),
                log_line=lambda line: None,
            )
            source_of(experiment).prepare(job)

        assert thread_ranks.run([[rank] for rank in range(size)], prepared) == [None] * size
        lists.append(manifest.read(directory))
        with Dataset(directory) as dataset:
            assert sorted(dataset.ids) == sorted(entry.id for entry in lists[-1])
    assert lists[0] == lists[1]
    assert len(lists[0]) == 11


def test_the_preflight_names_a_folder_without_files(config, tmp_path):
    experiment = load(config, [f"data.source.folder={tmp_path}", f"data.directory={tmp_path}/data"])
    faults = []
    preflight._look_at_data(experiment, None, preflight.RankReport(0, "node00"), 1, faults)
    assert [fault.name for fault in faults] == ["a list of samples"]
    assert "no batch_<mode>_<rank>.db" in faults[0].found
