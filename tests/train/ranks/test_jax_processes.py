"""Processes of JAX: they learn as one does, go on after a kill, and name the one that is lost."""

import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from paths import ROOT
from tiny import CONFIG, lines, numbers, rows, write_config

from namsa.base.errors import InputError
from train.experiment.sections import Training
from train.ranks import connection, coordinator, jax_processes, local_launcher

pytest.importorskip("jax")

LIMIT_S = 240  # for the end of a job on a machine that others use, too


def training(**sections):
    return Training.model_validate({"epochs": 1} | sections)


# ---- Where the processes meet


def test_a_slurm_list_begins_with_the_host_of_process_0():
    hosts = {
        "node1": "node1",
        "node1,other2": "node1",
        "node[001,007-015],other": "node001",
        "node[003-010]": "node003",
        "rack2-node[12-13]-ib": "rack2-node12-ib",
    }
    for node_list, first_host in hosts.items():
        assert coordinator.first_slurm_host(node_list) == first_host


SLURM = {"SLURM_PROCID": "3", "SLURM_JOB_ID": "71", "SLURM_STEP_ID": "0", "SLURM_LOCALID": "1"}


@pytest.mark.parametrize(
    ("environment", "host"),
    [
        (SLURM | {"SLURM_TASKS_PER_NODE": "2(x2)", "SLURM_STEP_NODELIST": "n[07-08]"}, "n07"),
        (SLURM | {"SLURM_TASKS_PER_NODE": "4", "SLURM_STEP_NODELIST": "n07"}, "127.0.0.1"),
        ({"OMPI_MCA_orte_hnp_uri": "15.0;tcp://10.96.0.1,10.148.0.1:34911"}, "10.96.0.1"),
        ({"JSM_NAMESPACE_RANK": "1", "LSB_MCPU_HOSTS": "batch2 1 h11 42 h12 42"}, "h11"),
    ],
)
def test_the_launcher_tells_the_host_and_the_job_the_port(environment, host):
    address = coordinator.coordinator_address(4, environment)
    chosen_host, _, port = address.rpartition(":")
    assert chosen_host == host
    assert 1024 < int(port) < 32768  # Linux gives higher ones to outgoing connections
    assert coordinator.coordinator_address(4, environment) == address


def test_an_unknown_launcher_is_told_what_to_set():
    with pytest.raises(InputError, match="set JAX_COORDINATOR_ADDRESS=HOST:PORT"):
        coordinator.coordinator_address(4, {"PMI_RANK": "1", "PMI_SIZE": "4"})
    given = {"JAX_COORDINATOR_ADDRESS": "h3:7777"}
    assert coordinator.coordinator_address(4, given) == "h3:7777"


def test_gpus_of_a_node_are_shared_out_equally():
    shares = [jax_processes.device_share(4, rank, 2) for rank in range(2)]
    assert shares == [[0, 1], [2, 3]]
    assert jax_processes.device_share(4, 0, 1) is None
    with pytest.raises(InputError, match="4 processes on a node with 2 GPUs: start at most 2"):
        jax_processes.device_share(2, 0, 4)


# ---- What is Horovod's alone


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"exchange": {"compression": "fp16"}}, "exchange.compression fp16 needs Horovod, .*leave"),
        ({"exchange": {"groups": 4}}, "exchange.groups 4 needs Horovod"),
        ({"exchange": {"hierarchical": True}}, "exchange.hierarchical True needs Horovod"),
        ({"ranks": {"cache_capacity": 0}}, "ranks.cache_capacity 0 needs Horovod"),
        ({"exchange": {"kind": "lag"}}, "exchange.kind lag needs Horovod"),
        ({"split": {"ways": 2}}, "split.ways 2 needs Horovod"),
    ],
)
def test_what_horovod_does_alone_is_refused_for_processes_of_jax(sections, message, monkeypatch):
    monkeypatch.setattr(connection.backend, "name", lambda: "jax")
    monkeypatch.setattr(connection, "rank_and_size", lambda: (0, 2))
    with pytest.raises(InputError, match=message):
        connection.start(training(**sections))


def test_one_group_is_what_xla_does_by_itself():
    assert connection._need_under_jax(training(exchange={"groups": 1}), 2) is None
    assert connection._need_under_jax(training(exchange={"groups": 4}), 1) is None


# ---- The launcher of one machine


def test_the_launcher_ends_the_others_when_one_fails(monkeypatch, tmp_path):
    monkeypatch.setattr(local_launcher, "GRACE_S", 0.2)
    script = "import os, sys, time; time.sleep(0 if os.environ['NAMSA_RANK'] == '1' else 60)"
    command = [sys.executable, "-c", f"{script}; sys.exit(2)"]
    assert local_launcher.launch(command, 3) == 2
    program = f"import os; open({str(tmp_path / 'rank')!r} + os.environ['NAMSA_RANK'], 'w')"
    assert local_launcher.launch([sys.executable, "-c", program], 2) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank0", "rank1"]


# ---- Jobs


def environment(cache):
    """The environment of jobs that find no GPU, and may not import TensorFlow or Horovod."""
    return os.environ | {
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": f"{ROOT / 'tests/support/without_tensorflow'}{os.pathsep}{ROOT}",
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("processes")


# Jobs of the tests end by a signal, without an evaluation and a report, which take longer than all
# else. Checkpoints come at the end alone, unless a test asks for more.
LONG = ("training.epochs=100000", "training.checkpoints.every_steps=1000000")
STEPS = 6  # of the runs that are compared with one process


@pytest.fixture(scope="module")
def config(folder):
    network = CONFIG["network"] | {"dropout": 0.0}
    schedule = {"scale_with_ranks": False}
    section = CONFIG["training"] | {"schedule": schedule}
    return write_config(folder, network=network, training=section)


def start(config, run, *words, sets=()):
    """Starts a job of up to 100,000 epochs."""
    sets = [f"--set={override}" for override in (*LONG, *sets)]
    line = [sys.executable, "-m", "train", config, "--run-dir", config.parent / run, *words, *sets]
    return subprocess.Popen(
        [*map(str, line)],
        cwd=ROOT,
        env=environment(config.parent / "cache"),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_for_steps(process, run, steps):
    while len(lines(run)) < steps:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def children(pid):
    """The pids of a process's children by their rank, by Linux' list."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        pids = file.read().split()
    ranks = {}
    for child in pids:
        with open(f"/proc/{child}/environ") as file:
            for variable in file.read().split("\0"):
                if variable.startswith("NAMSA_RANK="):
                    ranks[int(variable.partition("=")[2])] = int(child)
    return ranks


class Lost(NamedTuple):
    """End of a job of which a process was killed."""

    code: int
    output: str
    errors: str
    seconds: float
    left: list[int]  # ranks that are still there


def killed(process, victim):
    """Kills a rank, and returns how the job ends."""
    ranks = children(process.pid)
    os.kill(ranks[victim], signal.SIGKILL)
    began = time.monotonic()
    output, errors = process.communicate(timeout=LIMIT_S)
    seconds = time.monotonic() - began
    left = []
    for rank, pid in ranks.items():
        if os.path.exists(f"/proc/{pid}"):
            left.append(rank)
    return Lost(process.returncode, output, errors, seconds, left)


def assert_names_alone(lost, victim):
    """One line names the rank, nothing else is an error, and no process is left."""
    assert lost.code == 1
    errors = []
    for line in lost.errors.splitlines():
        if not line.startswith("warning:"):
            errors.append(line)
    assert errors == [f"error: died: rank {victim} on {platform.node()}, by SIGKILL"]
    assert lost.seconds < 20
    assert lost.left == []


def losses(run):
    return [row["loss"] for row in rows(run)[:STEPS]]


def checkpoint(run, step):
    """The arrays of the checkpoint of a step."""
    (path,) = [path for path in (run / "checkpoints").glob("step-*.npz") if step_of(path) == step]
    with np.load(path) as file:
        return {name: array for name, array in file.items() if name != "header"}


def step_of(path):
    return int(path.stem.partition("-")[2])


@pytest.fixture(scope="module")
def alone(config):
    process = start(config, "alone", sets=["training.batch_size=4"])
    run = config.parent / "alone"
    wait_for_steps(process, run, STEPS)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, errors
    return run


@pytest.mark.slow
def test_four_processes_learn_as_one_and_end_when_one_is_killed(config, alone):
    process = start(config, "four", "--processes", "4")
    run = config.parent / "four"
    wait_for_steps(process, run, STEPS)
    assert_names_alone(killed(process, 2), 2)
    np.testing.assert_allclose(losses(run), losses(alone), rtol=1e-5)


class Supervised(NamedTuple):
    """A job of two processes that lost rank 0, was started again, and ended by a signal."""

    run: Path
    code: int
    output: str
    errors: str
    seconds: float  # from the kill to the end of the first start
    left: list[int]  # its ranks that were there then


@pytest.fixture(scope="module")
def supervised(config):
    run = config.parent / "supervised"
    sets = ["training.batch_size=2", "training.checkpoints={every_steps: 2}"]
    process = start(config, run.name, "--supervise", "--processes", "2", sets=sets)
    wait_for_steps(process, run, STEPS + 1)
    (launcher,) = launchers(process.pid)
    ranks = children(launcher)
    os.kill(ranks[0], signal.SIGKILL)
    began = time.monotonic()
    while launchers(process.pid) == [launcher]:
        time.sleep(0.05)
    seconds = time.monotonic() - began
    left = []
    for rank, pid in ranks.items():
        if os.path.exists(f"/proc/{pid}"):
            left.append(rank)
    while not launchers(process.pid):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    wait_for_steps(process, run, len(lines(run)) + 2)
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=LIMIT_S)
    return Supervised(run, process.returncode, output, errors, seconds, left)


def launchers(supervisor):
    """The launchers that a supervisor has started, and that have not ended."""
    with open(f"/proc/{supervisor}/task/{supervisor}/children") as file:
        return [int(pid) for pid in file.read().split()]


@pytest.mark.slow
def test_the_loss_of_rank_0_is_one_line_and_its_job_starts_again_and_ends_by_a_signal(supervised):
    died = []
    for line in supervised.errors.splitlines():
        if line.startswith("error:"):
            died.append(line)
    assert died == [f"error: died: rank 0 on {platform.node()}, by SIGKILL"]
    assert "starting it again with 2 ranks" in supervised.errors
    assert "Traceback" not in supervised.errors
    assert supervised.seconds < 20
    assert supervised.left == []
    assert supervised.code == 130
    assert "its checkpoint is written" in supervised.output + supervised.errors
    newest = max(map(step_of, supervised.run.glob("checkpoints/step-*.npz")))
    assert newest == len(rows(supervised.run))


@pytest.mark.slow
def test_two_processes_learn_as_one_and_go_on_after_a_kill_to_the_same_bits(
    config, alone, supervised
):
    """The job that is compared with the one that went on ends by the loss of rank 1."""
    sets = ["training.batch_size=2", "training.checkpoints={every_steps: 1, keep: 100000}"]
    process = start(config, "two", "--processes", "2", sets=sets)
    two = config.parent / "two"
    steps = len(rows(supervised.run))
    wait_for_steps(process, two, steps + 2)  # the checkpoint of this step is then written
    lost = killed(process, 1)
    assert_names_alone(lost, 1)
    assert "2 ranks" in lost.output
    assert "Gloo" not in lost.output
    np.testing.assert_allclose(losses(two), losses(alone), rtol=1e-5)
    assert numbers(supervised.run) == numbers(two)[:steps]
    resumed, expected = checkpoint(supervised.run, steps), checkpoint(two, steps)
    assert resumed.keys() == expected.keys()
    for name, array in expected.items():
        assert resumed[name].tobytes() == array.tobytes(), name


def test_the_launcher_names_a_process_that_is_killed(monkeypatch, capsys):
    monkeypatch.setattr(local_launcher, "GRACE_S", 0.2)
    script = (
        "import os, signal, time\n"
        "rank = os.environ['NAMSA_RANK']\n"
        "time.sleep(60) if rank == '0' else os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert local_launcher.launch([sys.executable, "-c", script], 2) == 1
    assert "error: died: rank 1 on" in capsys.readouterr().err
