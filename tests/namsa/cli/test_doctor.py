"""A machine's report: complete, serialisable, and without an exception whatever is missing."""

import importlib
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from namsa.base.console import output_console
from namsa.cli import doctor

EVERYTHING = {
    doctor._TENSORFLOW: {"tensorflow": "2.18.1", "keras": "3.15.1", "cuda": True, "gpus": ["V100"]},
    doctor._JAX: {"version": "0.10.2", "devices": ["V100"]},
    doctor._HOROVOD: {"version": "0.28.1", "gloo": True, "mpi": True, "nccl": True},
    doctor._CUPY: {
        "version": "13.6.0",
        "cuda": 12090,
        "devices": [{"name": "V100", "memory_gib": 16.0, "bus": "0004:04:00.0"}],
    },
}


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    for name in ("HOROVOD_CONTROLLER", "KERAS_BACKEND"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOROVOD", "OMPI_COMM_WORLD", "JSM_NAMESPACE", "PMI", "PMIX", "SLURM"):
        for key in ("RANK", "SIZE", "PROCID"):
            monkeypatch.delenv(f"{name}_{key}", raising=False)


def probed(monkeypatch, answers):
    probes = {
        code: doctor.Probe(answer, "" if answer else "gone") for code, answer in answers.items()
    }
    monkeypatch.setattr(doctor, "probe", lambda code, timeout_s: probes[code])


def _by_name(report):
    return {check.name: check for check in report.checks}


def test_everything_there(monkeypatch, tmp_path):
    probed(monkeypatch, EVERYTHING)
    monkeypatch.setenv("HOROVOD_RANK", "3")
    monkeypatch.setenv("HOROVOD_SIZE", "6")
    report = doctor.report(tmp_path)
    checks = _by_name(report)
    assert report.ok
    assert checks["CuPy"].devices == ("0004:04:00.0",)
    assert [name for name, check in checks.items() if not check.ok] == []
    assert checks["CuPy"].found == "13.6.0: V100 16.0 GiB"
    assert checks["launcher"].found == "rank 3 of 6"
    assert str(tmp_path) in checks["data disk"].found
    assert json.loads(json.dumps(report.as_json())) == report.as_json()
    assert report.as_json()["ok"]


def test_the_table_shows_marks_and_groups_without_markup(monkeypatch, tmp_path, capsys):
    probed(monkeypatch, EVERYTHING)
    output_console().print(doctor.table(doctor.report(tmp_path)))
    lines = capsys.readouterr().out.splitlines()
    assert "machine" in [line.strip() for line in lines]
    assert not [line for line in lines if "[bold]" in line or "[/]" in line]
    (python,) = (line for line in lines if "Python" in line)
    assert python.split()[0] == "ok"


def test_nothing_there(monkeypatch, tmp_path):
    def no_module(name):
        raise OSError(f"lib{name}.so.1: cannot open shared object file")

    monkeypatch.setattr(
        doctor, "probe", lambda code, timeout_s: doctor.Probe(None, "ModuleNotFoundError: [gone]")
    )
    monkeypatch.setattr(importlib, "import_module", no_module)
    report = doctor.report(tmp_path / "nowhere")
    missing = []
    for check in report.checks:
        if not check.ok:
            missing.append(check)
    assert not report.ok
    assert {
        "TensorFlow",
        "JAX",
        "Horovod (several ranks)",
        "CuPy",
        "data disk",
        *doctor.LIBRARIES,
    } <= {check.name for check in missing}
    for check in missing:
        assert check.remedy
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(doctor.table(report))
    assert "[gone]" in console.export_text()
    assert {f"{check.name}: {check.remedy}" for check in missing} == {
        *doctor.remedies(report).splitlines()
    }


def test_what_is_not_needed_is_no_fault(monkeypatch):
    answers = EVERYTHING | {
        doctor._HOROVOD: EVERYTHING[doctor._HOROVOD] | {"mpi": False, "nccl": False}
    }
    answers[doctor._CUPY] = None
    probed(monkeypatch, answers)
    report = doctor.report()
    checks = _by_name(report)
    assert report.ok
    for name in ("CuPy", "MPI", "NCCL", "launcher"):
        assert not checks[name].ok


@pytest.mark.parametrize(("there", "ok"), [("_TENSORFLOW", True), ("_JAX", True), (None, False)])
def test_one_of_tensorflow_and_jax_is_enough(monkeypatch, there, ok):
    lacking = set()
    for name in ("_TENSORFLOW", "_JAX"):
        if name != there:
            lacking.add(getattr(doctor, name))
    probed(monkeypatch, EVERYTHING | dict.fromkeys(lacking))
    assert doctor.report().ok is ok


def test_a_job_on_gpus_needs_a_gpu_and_the_libraries_for_it(monkeypatch):
    answers = EVERYTHING | {doctor._HOROVOD: EVERYTHING[doctor._HOROVOD] | {"nccl": False}}
    answers[doctor._TENSORFLOW] = answers[doctor._TENSORFLOW] | {"gpus": []}
    answers[doctor._CUPY] = answers[doctor._CUPY] | {"devices": []}
    probed(monkeypatch, answers)
    assert doctor.report().ok
    report = doctor.report(gpu=True)
    assert not report.ok
    lacking = {}
    for check in report.checks:
        if check.needed and not check.ok:
            lacking[check.name] = check.remedy
    assert lacking == {"CuPy": doctor.SHOW_GPU, "GPUs": doctor.SHOW_GPU, "NCCL": doctor.REBUILD_GPU}


def test_ranks_that_mpi_connects_need_a_horovod_with_mpi(monkeypatch):
    answers = EVERYTHING | {doctor._HOROVOD: EVERYTHING[doctor._HOROVOD] | {"mpi": False}}
    probed(monkeypatch, answers)
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    assert not doctor.report().ok
    monkeypatch.setenv("HOROVOD_CONTROLLER", "gloo")
    assert doctor.report().ok


def test_ranks_of_jax_need_neither_tensorflow_nor_horovod(monkeypatch):
    answers = EVERYTHING | {doctor._TENSORFLOW: None, doctor._HOROVOD: None}
    probed(monkeypatch, answers)
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    assert not doctor.report().ok
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    report = doctor.report(gpu=True)
    assert report.ok
    assert not {"TensorFlow", "Horovod (several ranks)", "MPI", "NCCL"} & _by_name(report).keys()
    assert _by_name(report)["GPUs"].found == "V100"

    probed(monkeypatch, answers | {doctor._JAX: {"version": "0.10.2", "devices": ["cpu"]}})
    assert doctor.report().ok
    assert not doctor.report(gpu=True).ok
    probed(monkeypatch, answers | {doctor._JAX: None})
    assert not doctor.report().ok


def test_probe_answers_whatever_happens():
    assert doctor.probe("print('noise'); print('[1, 2]')") == doctor.Probe([1, 2])
    assert doctor.probe("import no_such_module") == (
        None,
        "ModuleNotFoundError: No module named 'no_such_module'",
    )
    assert doctor.probe("import os; os._exit(7)") == (None, "ended with status 7")
    assert doctor.probe("import time; time.sleep(60)", timeout_s=0.2) == (
        None,
        "no answer in 0.2 s",
    )


def test_file_system_is_that_of_the_deepest_and_last_mount(tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "rootfs / ext4 rw 0 0\nnvme /mnt/bb xfs rw 0 0\ngpfs /mnt gpfs rw 0 0\nover /mnt/bb tmpfs "
        "rw 0 0\n"
        "disk /a\\040b btrfs rw 0 0\n"
    )
    kinds = {"/mnt/bb/user": "tmpfs", "/mnt/bbb": "gpfs", "/home": "ext4", "/a b/c": "btrfs"}
    assert {path: doctor._file_system(Path(path), mounts) for path in kinds} == kinds


@pytest.mark.slow
def test_this_environment_can_train():
    checks = _by_name(doctor.report())
    assert checks["TensorFlow"].ok
    assert checks["Gloo"].ok
