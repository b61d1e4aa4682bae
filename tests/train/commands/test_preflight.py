"""The preflight: what one rank lacks ends the job with one line, which names ranks, nodes and the
remedy.
"""

import json
import re
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from paths import ROOT

from namsa.cli import doctor
from namsa.dataset import manifest
from train.__main__ import main
from train.commands import preflight
from train.commands.preflight_verdict import Fault, RankReport, ranges, verdict, who

CONFIG = ROOT / "tests/data/tiny.yaml"
HEALTHY = {  # no JAX: a job of several ranks does not ask for it
    doctor._TENSORFLOW: {"tensorflow": "2.18.1", "keras": "3.15.1", "cuda": True, "gpus": ["V100"]},
    doctor._HOROVOD: {"version": "0.28.1", "gloo": True, "mpi": True, "nccl": True},
}


def cupy(bus, memory_gib=16.0):
    return {
        "version": "13.6.0",
        "cuda": 12090,
        "devices": [{"name": "V100", "memory_gib": memory_gib, "bus": bus}],
    }


@pytest.fixture
def ranks(tmp_path, monkeypatch, capsys):
    """Runs four ranks, two on each of two nodes, and rank 0 last; returns its exit code, stdout and
    stderr.

    `answers` are those of the probes by rank, `overrides` further `section.key=value` by rank.
    """
    monkeypatch.setattr(preflight, "bind_to_share", lambda *local: "")
    monkeypatch.setattr(preflight, "WAIT_S", 5.0)
    monkeypatch.setenv("HOROVOD_CONTROLLER", "gloo")
    (tmp_path / "exchange").mkdir()
    (tmp_path / "exchange" / preflight.STARTED).write_text(json.dumps(time.time()))

    def run(*options, answers=None, overrides=None, order=(3, 2, 1, 0)):
        for rank in order:
            node = f"node{rank // 2:02d}"
            names = {
                "RANK": rank,
                "SIZE": 4,
                "LOCAL_RANK": rank % 2,
                "LOCAL_SIZE": 2,
                "HOSTNAME": node,
            }
            for name, value in names.items():
                monkeypatch.setenv(f"HOROVOD_{name}", str(value))
            replies = (
                HEALTHY
                | {doctor._CUPY: cupy(f"0004:0{rank % 2}:00.0")}
                | (answers or {}).get(rank, {})
            )
            monkeypatch.setattr(
                doctor,
                "probe",
                lambda code, timeout_s, replies=replies: doctor.Probe(replies[code], "gone"),
            )
            changes = [f"data.directory={tmp_path / node}", *(overrides or {}).get(rank, [])]
            words = []
            for change in changes:
                for word in ("--set", change):
                    words.append(word)
            code = main(
                [
                    "preflight",
                    str(CONFIG),
                    "--exchange",
                    str(tmp_path / "exchange"),
                    *options,
                    *words,
                ]
            )
            assert rank == 0 or (code, *capsys.readouterr()) == (0, "", "")
        return code, *capsys.readouterr()

    return run


def test_a_job_that_has_all_it_needs_may_start(ranks, tmp_path):
    code, stdout, stderr = ranks("--gpu")
    assert (code, stderr) == (0, "")
    assert stdout.startswith(
        "preflight: 4 ranks on 2 nodes with a GPU each and the same list of 6 training samples, in "
    )
    assert len(manifest.read(tmp_path / "node01")) == 10


def test_equal_faults_are_one_part_of_the_line(ranks):
    blind = HEALTHY[doctor._TENSORFLOW] | {"gpus": []}
    plain = {doctor._HOROVOD: HEALTHY[doctor._HOROVOD] | {"nccl": False}}
    answers = {
        0: plain,
        1: plain,
        2: plain | {doctor._TENSORFLOW: blind},
        3: plain | {doctor._TENSORFLOW: blind},
    }
    answers[3] = answers[3] | {doctor._CUPY: None}
    code, stdout, stderr = ranks("--gpu", answers=answers)
    assert (code, stdout) == (2, "")
    (line,) = stderr.splitlines()
    assert line.startswith("error: preflight: ")
    assert set(line.removeprefix("error: preflight: ").split("; ")) == {
        f"all 4 ranks without NCCL (not built in): {doctor.REBUILD_GPU}",
        f"ranks 2 and 3 on node01 without GPUs (no device): {doctor.SHOW_GPU}",
        f"rank 3 on node01 without CuPy (gone): {doctor.SYNC_GPU}",
    }


FEWER = "materials.builtin=[Al-225-cF4, Si-227-cF8, Cu-225-cF4, NaCl-225-cF8]"
ONE_FOLDER = ("data.directory={tmp}/shared", "data.source.node_local=true")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gpus", "overrides", "message"),
    [
        (
            {1: cupy("0004:00:00.0")},
            {},
            "ranks 0 and 1 on node00 have one GPU, 0004:00:00.0: start at most",
        ),
        (
            {1: cupy("0004:01:00.0", 0.5)},
            {},
            r"rank 1 on node00 without the memory for a step \(0.537 GB for a rank, a step takes "
            r"1.2.*libraries 1.07 GB"
            r"\): set training.batch_size lower",
        ),
        (
            {},
            {2: [FEWER], 3: [FEWER]},
            r"\(ranks 2 and 3 on node01: 4 materials; the others: 5 materials\)",
        ),
        (
            {},
            dict.fromkeys(range(4), ONE_FOLDER),
            r"data.directory is one folder for 2 nodes \(node00, node01\)",
        ),
        (
            {},
            {2: ["data.directory={tmp}/file/bb"]},
            r"rank 2 on node01 without a folder .*cannot make .*/file/bb",
        ),
        (
            {},
            dict.fromkeys(range(4), ("scan.shapes=[8, 12]",)),
            r"all 4 ranks without a valid configuration \(",
        ),
    ],
)
def test_what_ranks_lack_or_have_otherwise_ends_the_job(ranks, tmp_path, gpus, overrides, message):
    (tmp_path / "file").touch()
    written = {}
    for rank, words in overrides.items():
        written[rank] = [word.replace("{tmp}", str(tmp_path)) for word in words]
    overrides = written
    answers = {rank: {doctor._CUPY: answer} for rank, answer in gpus.items()}
    options = ("--gpu",) if gpus else ()
    code, stdout, stderr = ranks(*options, answers=answers, overrides=overrides)
    assert (code, stdout) == (2, "")
    assert re.match(rf"error: preflight: .*{message}.*\n$", stderr)


def test_a_simulation_after_the_preflight_refuses_another_list(ranks, tmp_path):
    assert (
        ranks(answers={rank: {doctor._CUPY: None} for rank in range(4)})[0] == 0
    )  # on CPUs no GPU is asked for
    from namsa.cli.parser import main as namsa

    assert (
        namsa(
            [
                "dataset",
                str(CONFIG),
                "--out",
                str(tmp_path / "node01"),
                "--set",
                FEWER,
                "--rank=3",
                "--size=4",
            ]
        )
        == 2
    )


def test_a_disk_that_is_full_ends_the_job(ranks, monkeypatch):
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda path: usage)
    code, _, stderr = ranks()
    assert code == 2
    assert "all 4 ranks without room for samples (" in stderr
    assert "has 1e-06 GB free, a step's samples and checkpoints take" in stderr


@pytest.mark.parametrize(("off_s", "text"), [(60.0, "ahead of"), (-60.0, "behind")])
def test_a_clock_that_is_off_ends_the_job(off_s, text, ranks, monkeypatch):
    clock = time.time
    monkeypatch.setattr(
        preflight.time,
        "time",
        lambda: clock() + off_s * (preflight.os.environ["HOROVOD_RANK"] == "2"),
    )
    code, _, stderr = ranks()
    assert code == 2
    (line,) = stderr.splitlines()
    assert line.startswith("error: preflight: rank 2 on node01 with a clock up to ")
    assert f" s or more {text} that of rank 0" in line


def test_a_rank_that_does_not_report_ends_the_job(ranks, monkeypatch):
    monkeypatch.setattr(preflight, "WAIT_S", 0.3)
    code, _, stderr = ranks(order=(3, 1, 0))
    assert code == 2
    assert (
        "rank 2 of 4 did not report" in stderr
    )  # rank 3, of the group that rank 2 would speak for, did


def test_each_of_27600_ranks_writes_into_a_folder_of_a_few_and_rank_0_reads_few_files(
    tmp_path, monkeypatch
):
    size = 27_600
    members = 167
    read: list[Path] = []

    def counted(kind: object, path: Path, remedy: str) -> object:
        read.append(path)
        return json.loads(path.read_text())

    monkeypatch.setattr(preflight, "read_typed", counted)
    for group in range(1, 166):
        reports = [
            asdict(RankReport(rank, f"n{rank // 6}")) | {"clock": 0.0}
            for rank in range(group * members, min((group + 1) * members, size))
        ]
        (tmp_path / f"group-{group:05d}.json").write_text(json.dumps(reports))
    for rank in reversed(range(members)):
        reports = preflight.meet(tmp_path, RankReport(rank, "n0"), size)
    assert [report.rank for report in reports] == list(range(size))
    assert verdict(reports, size, 1) == []
    assert len(read) == 167 + 166
    assert len(list((tmp_path / "group-00000").iterdir())) == 167


def test_several_ranks_need_a_folder_that_they_share(monkeypatch, capsys):
    monkeypatch.setenv("HOROVOD_RANK", "1")
    monkeypatch.setenv("HOROVOD_SIZE", "2")
    assert main(["preflight", str(CONFIG)]) == 2
    assert "the preflight of 2 ranks needs --exchange" in capsys.readouterr().err


def test_more_ranks_than_samples_are_refused_before_anything_is_simulated():
    reports = [RankReport(rank, "a", manifest="x", training_samples=7) for rank in range(4)]
    assert verdict(reports, 4, 1) == []
    (line,) = verdict(reports, 4, 2)
    assert line.startswith("7 training samples are too few for 4 ranks with batches of 2")


def test_ranks_and_nodes_in_words():
    assert ranges([3]) == "rank 3"
    assert ranges([7, 6, 0, 2, 9, 8]) == "ranks 0, 2, 6 to 9"
    assert ranges([0, 1]) == "ranks 0 and 1"
    reports = [RankReport(rank, f"h{rank // 6:02d}", (Fault("a", "b", "c"),)) for rank in range(60)]
    assert who(reports, 60) == "all 60 ranks"
    assert who(reports[6:], 60) == "ranks 6 to 59 on h01, h02, h03, h04 and 5 more nodes"


@pytest.mark.slow
def test_this_machine_has_no_gpu_and_says_so_in_one_line(monkeypatch, tmp_path, capsys):
    """With the real probes: TensorFlow, Horovod and CuPy are imported, in processes of their
    own.
    """
    for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CONTROLLER", "HOSTNAME"):
        monkeypatch.delenv(f"HOROVOD_{name}", raising=False)
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    monkeypatch.setattr(preflight, "bind_to_share", lambda *local: "")
    assert main(["preflight", str(CONFIG), "--gpu", "--set", f"data.directory={tmp_path}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: preflight: rank 0 on ")
    for lacking in ("CuPy", "GPUs", "NCCL"):
        assert f"without {lacking} (" in line


def test_a_gpu_that_is_missing_is_said_before_crystals_are_listed(monkeypatch, capsys, tmp_path):
    """The list of the paper's crystals takes minutes."""

    def listed(*arguments):
        raise AssertionError("the samples were listed first")

    blind = HEALTHY | {doctor._CUPY: None, doctor._JAX: None}
    monkeypatch.setattr(preflight, "list_samples", listed)
    monkeypatch.setattr(doctor, "probe", lambda code, timeout_s: doctor.Probe(blind[code], "gone"))
    words = ("preflight", str(ROOT / "configs/paper.yaml"), "--gpu")
    assert main([*words, "--set", f"data.directory={tmp_path}/data"]) == 2
    assert "without CuPy (gone)" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
