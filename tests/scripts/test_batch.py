"""The batch scripts themselves, run on this machine: `jsrun` and `srun` are the stand-ins beside
this file.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from batch_scripts import job_environment, started
from local_ranks import NODE_DISK
from paths import ROOT

pytestmark = pytest.mark.slow  # jobs of ranks

SCRIPTS = ("scripts/summit.lsf", "scripts/slurm.sh")

# In place of Python: notes what it was asked to do by which rank, and fails or hangs in a phase as
# it is told.
RECORDER = """#!/bin/bash
who="$HOROVOD_RANK/$HOROVOD_SIZE local $HOROVOD_LOCAL_RANK/$HOROVOD_LOCAL_SIZE gpus $CUDA_VISIBLE_DEVICES"
if [[ "$*" == *--manifest-only* ]]; then
    mkdir -p "$6" && touch "$6/manifest.jsonl" && echo "$who: $*" >> "$LOG.list"
    exit
fi
echo "$who: $*" >> "$LOG"
if [ "$2 $3" = "${FAIL_PHASE:-}" ] && [ "$HOROVOD_RANK" = "$FAIL_RANK" ]; then exit 3; fi
if [ "$2 $3" = "${HANG_PHASE:-}" ]; then echo $$ >> "$LOG.hung"; exec sleep 60; fi
"""  # noqa: E501

# Prints the files outside of a node's unpacked environment that Python has opened, and how many it
# looked at.
IMPORTS = """
import importlib.util, os, sqlite3, ssl, sys, of_the_environment

files = [module.__file__ for module in sys.modules.values() if getattr(module, "__file__", None)]
files += [sys.executable, importlib.util.find_spec("train").origin]
files += [line.split()[-1] for line in open("/proc/self/maps") if "python" in line]
own = f"{os.environ['NODE_DISKS']}/{os.environ['HOROVOD_HOSTNAME']}/env/"
outside = [file for file in map(os.path.realpath, files) if not file.startswith(own)]
print(f"{outside} {len(files)}\\n", end="", flush=True)
"""


@pytest.fixture
def job(tmp_path):
    """Environment of a job on two nodes of two ranks whose PYTHON is the recorder."""
    recorder = tmp_path / "python"
    recorder.write_text(RECORDER)
    recorder.chmod(0o755)
    return job_environment(tmp_path, nodes=2, ranks_per_node=2) | {
        "PYTHON": str(recorder),
        "CONFIG": "some.yaml",
    }


def _phases(job):
    """Commands of each rank, in the order of phases; "*" for what differs between runs."""
    lines = Path(job["LOG"]).read_text().splitlines()
    lines = [re.sub(r"(preflight)-\w+", r"\1-*", line) for line in lines]
    return [sorted(lines[start : start + 4]) for start in range(0, len(lines), 4)]


@pytest.mark.parametrize("script", SCRIPTS)
def test_looks_at_all_ranks_then_simulates_then_trains_with_a_rank_a_gpu(script, job, tmp_path):
    done = started(["bash", script, "--set", "seed=2"], job | {"SIM_SECONDS": "7"})
    assert done.returncode == 0, done.stderr
    place = f"--set data.directory={tmp_path}/bb --set data.source.node_local=true"
    preflight = (
        f"-m train preflight some.yaml --gpu --exchange {tmp_path}/run.preflight-* {place} --set "
        "seed=2"
    )
    simulate = f"-m namsa dataset some.yaml --out {tmp_path}/bb --time-limit 7 --set seed=2"
    train = (
        f"-m train some.yaml --run-dir {tmp_path}/bb-run --home {tmp_path}/run {place}"
        " --set training.simulate_seconds=1 --set seed=2"
    )
    own_gpu = [f"{rank}/4 local {rank % 2}/2 gpus {rank % 2}: " for rank in range(4)]
    all_gpus = [f"{rank}/4 local {rank % 2}/2 gpus 0,1: " for rank in range(4)]
    assert _phases(job) == [
        [rank + preflight for rank in own_gpu],
        [rank + simulate for rank in own_gpu],
        [rank + train for rank in all_gpus],
    ]
    assert not list(tmp_path.glob("run.preflight-*"))
    # by one process; all ranks read it
    (listed,) = Path(f"{job['LOG']}.list").read_text().splitlines()
    assert re.match(
        r"0/1 .* -m namsa dataset some.yaml --out \S+/list --manifest-only --set seed=2$", listed
    )
    assert (tmp_path / "bb/manifest.jsonl").exists()


@pytest.mark.parametrize(("site", "gpu"), [("perlmutter", " --gpu"), ("frontier", "")])
def test_scripts_of_sites_are_the_slurm_script_with_jax_and_their_settings(site, gpu, job):
    done = started(["bash", f"scripts/{site}.sh", "--set", "seed=2"], job | {"USER": "me"})
    assert done.returncode == 0, done.stderr
    preflight, _, training = _phases(job)
    for line in preflight:
        assert f"-m train preflight some.yaml{gpu} --exchange" in line
    for line in training:
        assert "-m train some.yaml --run-dir" in line
    for line in training:
        assert line.endswith("--set seed=2")


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("phase", ["train preflight", "namsa dataset"])
def test_a_failed_rank_ends_all_others_and_the_job(script, phase, job):
    start = time.monotonic()
    failing = {"FAIL_RANK": "1", "FAIL_PHASE": phase, "HANG_PHASE": phase}
    done = started(["bash", script], job | failing)
    assert done.returncode == 128 + signal.SIGTERM  # of the ranks that were ended
    assert time.monotonic() - start < 30
    assert f"-m {phase}" in _phases(job)[-1][0]


@pytest.mark.parametrize("launcher", ["jsrun -n 2 -r 2", "srun --nodes 1 --ntasks-per-node 2"])
def test_ranks_outlive_a_failed_one_unless_the_launcher_is_told(launcher, job):
    command = [
        *launcher.split(),
        "bash",
        "-c",
        'if [ "$HOROVOD_RANK" = 1 ]; then exit 3; fi; sleep 0.5; echo alive',
    ]
    done = started(command, job)
    assert (done.stdout, done.returncode) == ("alive\n", 3)
    options = {"jsrun": ["-X", "1"], "srun": ["--kill-on-bad-exit=1"]}[command[0]]
    done = started([command[0], *options, *command[1:]], job)
    assert (done.stdout, done.returncode) == ("", 128 + signal.SIGTERM)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("before", [False, True])
def test_samples_are_fetched_where_there_are_any_and_kept(script, job, tmp_path, before):
    keep = tmp_path / "keep"
    if before:
        keep.mkdir()
        (keep / "manifest.jsonl").touch()
    assert started(["bash", script], job | {"KEEP": str(keep), "PREFLIGHT": ""}).returncode == 0
    asked = []
    for phase in _phases(job):
        for line in phase:
            asked.append(line.partition(": -m ")[2].split(" --set")[0])
    phases = [
        "train preflight some.yaml --exchange "
        f"{tmp_path}/run.preflight-*{f' --manifest {keep}' * before}",
        *[f"train stage {keep} {tmp_path}/bb --partition"] * before,
        f"namsa dataset some.yaml --out {tmp_path}/bb --time-limit 1800",
        f"train keep {tmp_path}/bb {keep}",
        f"train some.yaml --run-dir {tmp_path}/bb-run --home {tmp_path}/run",
    ]
    assert asked == [phase for phase in phases for _ in range(4)]


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_warning_before_the_time_limit_ends_all_ranks(script, job):
    hanging = job | {"HANG_PHASE": "train some.yaml"}
    running = subprocess.Popen(
        ["bash", script], cwd=ROOT, env=hanging, stderr=subprocess.PIPE, text=True
    )
    hung = Path(job["LOG"] + ".hung")
    deadline = time.monotonic() + 60
    while not (hung.exists() and len(hung.read_text().splitlines()) == 4):
        assert running.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    running.send_signal(signal.SIGTERM)
    _, stderr = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "submit again with RUN=" in stderr
    for pid in hung.read_text().split():
        assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("script", SCRIPTS)
def test_without_the_packed_environment_nothing_starts(script, job, tmp_path):
    done = started(
        ["bash", script], job | {"PYTHON": "", "ENVIRONMENT": str(tmp_path / "gone.tar")}
    )
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"error: there is no {tmp_path}/gone.tar: make it with scripts/environment.sh pack"
    )
    old = tmp_path / "old.tar"
    old.touch()
    os.utime(old, (0, 0))
    done = started(["bash", script], job | {"PYTHON": "", "ENVIRONMENT": str(old)})
    assert done.returncode == 2
    assert f"is newer than {old}" in done.stderr


def test_slurm_script_removes_the_samples_that_it_placed(job, tmp_path):
    environment = {key: value for key, value in job.items() if key != "BB"} | {
        "TMPDIR": str(tmp_path)
    }
    assert (
        started(["bash", "scripts/slurm.sh"], environment | {"SLURM_JOB_ID": "5"}).returncode == 0
    )
    assert f"--out {tmp_path}/namsa-5-" in Path(job["LOG"]).read_text()
    assert not list(tmp_path.glob("namsa-5*"))


def test_summit_counts_the_compute_nodes(job, tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("batch3\n" + "h41n07\n" * 42 + "h41n08\n" * 42)
    environment = {key: value for key, value in job.items() if key != "NODES"} | {
        "LSB_DJOB_HOSTFILE": str(hosts)
    }
    assert started(["bash", "scripts/summit.lsf"], environment).returncode == 0
    assert "3/4 local 1/2 gpus 0,1: -m train" in Path(job["LOG"]).read_text()


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ("-n 1 -r 1 --gpus 1 true", "unrecognized arguments: --gpus"),
        ("-n 6 -r 6 -g 2 true", "6 resource sets of 2 GPUs do not fit a node's 6"),
        ("-n 1 -r 1 -b all true", "'all' is not"),
        ("-n 0 -r 1 true", "'0' is not a positive number"),
        ("-n 1 -r 1", "no command"),
    ],
)
def test_jsrun_refuses_what_summit_would(arguments, fault, job):
    done = started(["jsrun", *arguments.split()], job)
    assert done.returncode == 2
    assert fault in done.stderr


def test_ranks_read_the_real_variables_of_either_launcher(job):
    """Those of Horovod's own launcher, which only the stand-ins set, are removed."""
    show = (
        "import namsa.base.launcher as l; print('%d %d %d %d\\n' % (*l.rank_and_size(), "
        "*l.local_rank_and_size()), end='')"
    )
    command = ["bash", "-c", 'unset ${!HOROVOD_@}; exec "$0" -c "$1"', sys.executable, show]
    expected = [f"{rank} 4 {rank % 2} 2" for rank in range(4)]
    for launcher in (["jsrun", "-n2", "-r1", "-a2"], ["srun", "--nodes=2", "--ntasks-per-node=2"]):
        assert sorted(started([*launcher, *command], job).stdout.splitlines()) == expected


def test_each_node_reads_one_archive_and_imports_from_its_own_disk(job, tmp_path):
    """A small environment is packed, unpacked on two nodes by either launcher, and nothing else is
    imported.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    archive = tmp_path / "environment.tar"
    site = (
        tmp_path
        / "venv"
        / "lib"
        / f"python{sys.version_info[0]}.{sys.version_info[1]}"
        / "site-packages"
    )
    (site / "of_the_environment.py").touch()
    (site / "_editable_impl_namsa.pth").write_text(str(ROOT))
    packed = started(["bash", "scripts/environment.sh", "pack", str(archive), str(python)], job)
    assert packed.returncode == 0, packed.stderr
    disks = job | {"NODE_DISKS": str(tmp_path / "disks")}
    disks.pop("PYTHONPATH", None)  # the caller's packages would be imported, too
    on_each_node = ["jsrun", "-X", "1", "-n2", "-r1", "-a1"]
    command = ["bash", "scripts/environment.sh", "unpack", str(archive), f"{NODE_DISK}/env"]
    assert started([*on_each_node, *command], disks).returncode == 0
    libraries = f"LD_LIBRARY_PATH={NODE_DISK}/env/libpython"  # as phases.sh has it
    python = ["env", "PYTHONSAFEPATH=1", libraries, f"{NODE_DISK}/env/bin/python"]
    shown = started(["srun", "--nodes=2", "--ntasks-per-node=2", *python, "-c", IMPORTS], disks)
    lines = shown.stdout.splitlines()
    assert len(lines) == 4, shown.stderr
    for line in lines:
        assert line.startswith("[] "), lines
        assert int(line.split()[1]) > 20, lines


def test_a_node_without_gpus_runs_a_rank_per_task(tmp_path):
    """With a stand-in for horovodrun, which prints its words and the threads of a rank."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "horovodrun").write_text('#!/bin/sh\necho "$OMP_NUM_THREADS" "$@"\n')
    (programs / "horovodrun").chmod(0o755)
    script = ["bash", str(ROOT / "scripts" / "slurm_cpu.sh")]
    slurm = {"SLURM_NTASKS": "4", "SLURM_CPUS_PER_TASK": "8", "PATH": os.environ["PATH"]}

    def run(*words, **more):
        return subprocess.run(
            [*script, *words],
            cwd=tmp_path,
            env=slurm | more,
            capture_output=True,
            text=True,
            check=False,
        )

    shown = run("own.yaml", "--set", "seed=1").stdout
    assert shown.startswith("8 -np 4 --gloo namsa-train own.yaml --set seed=1 ")
    assert (run().returncode, run("own.yaml", SLURM_JOB_NUM_NODES="2").returncode) == (2, 2)
