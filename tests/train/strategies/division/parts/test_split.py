"""Samples divided over two ranks, and over two groups of two, against one rank that knows of no
parts.
"""

import json

import launch
import numpy as np
import pytest
import split_ranks
import tiny

from train.experiment.experiment import Experiment
from train.experiment.sections import Training
from train.main import train
from train.ranks import connection
from train.strategies.division.parts.division import divide
from train.strategies.division.parts.section import SampleSplit

JOBS = {"x, recomputed": 2, "pooled": 4}  # ranks of each case; two ways


@pytest.fixture(scope="module", params=JOBS)
def job(request, tmp_path_factory):
    """(case, groups, folder, what each rank has found)."""
    name = request.param
    ranks = JOBS[request.param]
    out = tmp_path_factory.mktemp("split_ranks")
    more = ["restart", *split_ranks.NETWORKS] if ranks == 2 else ["fcdensenet"]
    results, _ = launch.on_ranks("split_ranks.py", out, 2, name, *more, ranks=ranks)
    return name, ranks // 2, out, results


@pytest.mark.slow
def test_parts_train_as_whole_samples(job):
    name, groups, out, results = job
    connection.start()
    wanted, rows, _ = split_ranks.train(name, 2, groups)
    with np.load(out / f"{name}.npz") as arrays:
        assert arrays.keys() == wanted.keys()
        found_differences = np.concatenate(
            [np.abs(arrays[path] - array).ravel() for path, array in wanted.items()]
        )
    # Adam divides a gradient by its own size: where it nearly cancels, rounding moves the weight by
    # a part of the rate.
    assert np.quantile(found_differences, 0.995) < 2e-6
    assert found_differences.max() < 2e-5
    for rank in results:
        np.testing.assert_allclose(rank["rows"][name], rows, rtol=2e-5)


@pytest.mark.slow
def test_parts_of_every_network_of_local_layers_train_as_whole_samples_to_rounding_of_float64(job):
    _, groups, _, results = job
    for rank in results:
        assert set(rank["float64"]) == (
            set(split_ranks.NETWORKS) if groups == 1 else {"fcdensenet"}
        )
        assert max(rank["float64"].values()) < 1e-12


@pytest.mark.slow
def test_all_ranks_have_the_same_state_and_a_restart_the_same_bits(job):
    name, _, _, results = job
    digests = results[0]["digests"]
    for rank in results:
        assert rank["digests"] == digests
    assert digests.get("restart", digests[name]) == digests[name]


@pytest.mark.slow
def test_messages_have_the_bytes_that_the_count_states(job):
    for rank in job[3]:
        sent, wanted = rank["bytes"]
        assert sent == wanted > 0, rank
        per_step, traced, unique, exchanges = rank["messages"]
        assert per_step == traced == unique == exchanges


def test_ranks_that_do_not_form_groups_are_refused():
    connection.start(Training(epochs=1, split=SampleSplit(ways=2)))
    with pytest.raises(
        Exception,
        match=r"split.ways is 2, and 1 rank do not form groups.*start a multiple of 2 ranks",
    ):
        divide(SampleSplit(ways=2), (3, 32, 48))


@pytest.mark.parametrize(
    ("split", "source", "message"),
    [
        ({"ways": 3}, {}, "an extent of 32 is not divisible by 3 ways: use fewer ways, at most 2"),
        (
            {"ways": 48, "axis": "x"},
            {},
            "td1_pool halves its maps, and a part has 1 rows of them: .*, at most 24",
        ),
        ({"further": {"x": 2}}, {}, "ways, along y, is 1: raise it to 2 or more"),
        ({"ways": 2, "further": {"y": 2}}, {}, "are divided further along x: set it to x"),
        (
            {"ways": 2, "further": {"x": 48}},
            {},
            "along x, layer td1_pool halves its maps, and a part has 1 rows of them: use fewer "
            "ways, at most 24",
        ),
        (
            {"ways": 2},
            {"kind": "staged", "node_local": True, "folder": "."},
            "data.source gives different samples",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused_with_what_would(split, source, message):
    sections = {"training": tiny.CONFIG["training"] | {"split": split}, "data": {"source": source}}
    with pytest.raises(ValueError, match=message):
        Experiment.model_validate(tiny.CONFIG | sections)


@pytest.mark.slow
@pytest.mark.parametrize("ways", [4, 8])
def test_cosmoflow_over_more_ranks_than_rows_of_its_last_maps_is_the_whole_network(ways, tmp_path):
    results, _ = launch.on_ranks("split_ranks.py", tmp_path, ways, "cosmoflow", ranks=ways)
    assert max(rank["float64"]["cosmoflow"] for rank in results) < 1e-12


@pytest.mark.slow
def test_parts_along_two_axes_are_whole_samples_to_rounding_of_float64(tmp_path):
    cases = ["fcdensenet", "strided", "deeplabv3plus", "unet3d"]
    results, _ = launch.on_ranks("split_ranks.py", tmp_path, "2x2", *cases, ranks=4)
    for rank in results:
        assert set(rank["float64"]) == set(cases)
        assert max(rank["float64"].values()) < 1e-12


MOMENTUM = {
    "optimizer": {"kind": "momentum", "learning_rate": 1e-2, "lars": "none"},
    "exchange": {"groups": 1},
    "validation": {"every_epochs": 1},
}
SEGMENT = {
    "split": {"train": 0.6, "dev": 0.4, "test": 0},
    "specimen": tiny.CONFIG["specimen"]
    | {"zone_axes": [[0, 0, 1], [1, 1, 0]], "thickness_angstrom": [4.0]},
    "scan": {"shape": [8, 12], "step_angstrom": [0.8, 0.8]},
    "detector": {"shape": [4, 4], "pixel_mrad": 10},
    "target": {"at": "scan"},
    "network": {
        "input_shape": [16, 8, 12],
        "output_channels": 3,
        "layers": [1, 1, 1],
        "growth": 4,
        "kernel": 3,
        "dropout": 0.0,
        "block_norm": True,
    },
    "training": {
        "task": "segment",
        "epochs": 2,
        "batch_size": 2,
        "segment": {
            "grain": {"fraction": 0.2, "diameter_positions": [2, 4]},
            "phase": {"fraction": 0.1, "diameter_positions": [2, 3]},
            "draws": 1,
        },
        "inputs": {"layout": "scan", "augment": True},
        **MOMENTUM,
    },
}
DEPTH = {
    "split": {"train": 0.6, "dev": 0.4, "test": 0},
    "specimen": tiny.CONFIG["specimen"] | {"thickness_angstrom": [16.0]},
    "scan": {"shape": [8, 12], "step_angstrom": [0.8, 0.8]},
    "detector": {"shape": [4, 4], "pixel_mrad": 10},
    "target": {"at": "scan", "depth_bins": 4},
    "network": {
        "kind": "unet3d",
        "input_shape": [16, 4, 8, 12],
        "output_channels": 1,
        "levels": 1,
        "first_filters": 2,
    },
    "training": {
        "epochs": 2,
        "batch_size": 2,
        "inputs": {"layout": "depth", "augment": True},
        "loss": {"relative": True},
        **MOMENTUM,
    },
}


@pytest.fixture(scope="module")
def whole_jobs(tmp_path_factory, no_reports):
    """By task the configuration, which has its samples beside it, and the job of one rank."""
    jobs = {}
    for name, sections in (("segment", SEGMENT), ("depth", DEPTH)):
        config = tiny.write_config(tmp_path_factory.mktemp(name), **sections)
        train(config, [], config.parent / "whole")
        jobs[name] = config, config.parent / "whole"
    return jobs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "axis", "further"),
    [
        ("segment", "y", ""),
        ("segment", "x", ""),
        ("segment", "y", "x"),
        ("depth", "z", ""),
        ("depth", "y", ""),
        ("depth", "x", ""),
        ("depth", "z", "y"),
    ],
)
def test_a_job_of_classes_or_of_depths_in_parts_is_that_of_whole_samples(
    tmp_path, whole_jobs, task, axis, further
):
    config, whole_dir = whole_jobs[task]
    more = f", further: {{{further}: 2}}" if further else ""
    split = f"training.split={{ways: 2, axis: {axis}{more}}}"
    parts_dir = tmp_path / "parts"
    launch.job(config, "--set", split, "--run-dir", parts_dir, ranks=4 if further else 2)
    name, undivided = tiny.newest(whole_dir)
    same_name, divided = tiny.newest(parts_dir)
    assert name == same_name
    for key, array in undivided.items():
        np.testing.assert_allclose(divided[key], array, atol=2e-5, err_msg=key)
    errors = []
    for run_dir in (whole_dir, parts_dir):
        rows = (run_dir / "validation.jsonl").read_text().splitlines()
        errors.append([json.loads(row) for row in rows])
    for one, other in zip(*errors, strict=True):
        assert one.keys() == other.keys()
        for key, value in one.items():
            assert other[key] == pytest.approx(value, rel=1e-3, abs=1e-3), key


@pytest.mark.slow
def test_a_job_of_volumes_in_parts_is_that_of_whole_ones(tmp_path):
    """Scan rows in four parts, of two rows, then of one, and gathered twice. All ranks drop the
    same behind that.
    """
    training = {
        "task": "estimate",
        "epochs": 2,
        "batch_size": 2,
        "inputs": {"layout": "volume", "augment": True},
    }
    sections = {
        "specimen": tiny.CONFIG["specimen"] | {"thickness_angstrom": [8.0]},
        "scan": {"shape": [8, 3], "step_angstrom": [0.8, 0.6]},
        "target": {"at": "scan"},
        "detector": {"shape": [8, 12], "pixel_mrad": 6},
        "variation": {"rule": "random", "configurations": 2, "defocus_angstrom": [-40, 40]},
        "network": {
            "kind": "cosmoflow",
            "input_shape": [3, 8, 8, 12],
            "filters": [4, 6],
            "strides": [1, 1],
        }
        | {"dense": [8], "outputs": 1, "norm": True, "dropout": 0.2},
        "training": training
        | {"estimate": {"quantities": ["defocus_angstrom"]}, "validation": {"every_epochs": 1}}
        | {
            "optimizer": {"kind": "momentum", "learning_rate": 1e-2, "lars": "none"},
            "exchange": {"groups": 1},
        },
    }
    config = tiny.write_config(tmp_path, **sections)
    train(config, [], tmp_path / "whole")
    overrides = ["--set", "training.split={ways: 4, axis: z}", "--run-dir", tmp_path / "parts"]
    ended = launch.horovodrun("-m", "train", config, *overrides, ranks=4)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "every rank reads whole samples: training has layout volume" in " ".join(
        ended.stdout.split()
    )
    (name, undivided), (same_name, divided) = (
        tiny.newest(tmp_path / "whole"),
        tiny.newest(tmp_path / "parts"),
    )
    assert name == same_name
    for key, array in undivided.items():
        np.testing.assert_allclose(divided[key], array, atol=1e-5, err_msg=key)
    undivided, divided = (
        json.loads((tmp_path / run / "evaluation.json").read_text()) for run in ("whole", "parts")
    )
    for one, other in zip(undivided["samples"], divided["samples"], strict=True):
        assert other["estimate"] == pytest.approx(one["estimate"], rel=1e-4)
