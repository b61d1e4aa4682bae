"""Signals, and starting again: with jobs that take no time, small scripts that leave what a real
one would.
"""

import os
import signal
import subprocess
import sys
import time

import pytest
from paths import ROOT

from namsa.base.errors import InputError, WorkError
from train.ranks.signals import STOPPING, listen
from train.ranks.supervise import (
    RestartPolicy,
    launcher_command,
    progress_marker,
    supervise,
    write_exit_code,
)

AT_ONCE = {"pause_s": 0.0}


class Job:
    """Its n-th start runs codes[n]: an exit code for its own line and, after a comma, a file that
    it makes.
    """

    def __init__(self, place, *endings):
        self.ended = place / "ended"
        self.place = place
        self.endings = list(endings)
        self.ranks = []
        self.reports = []

    def __call__(self, ranks):
        self.ranks.append(ranks)
        code, _, made = str(self.endings[min(len(self.ranks), len(self.endings)) - 1]).partition(
            ","
        )
        leaves = f"""echo '{{"exit_code": {code}}}' > {self.ended}; """ if code != "killed" else ""
        makes = f"touch {self.place / made}; " if made else ""
        return ["sh", "-c", f"{makes}{leaves}exit 1"]

    def supervised(self, **policy):
        seen = lambda: sorted(path.name for path in self.place.glob("step-*"))  # noqa: E731
        return supervise(
            self, RestartPolicy(**AT_ONCE | policy), self.ended, seen, self.reports.append
        )


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_a_job_that_gets_on_is_started_until_it_is_done(tmp_path):
    job = Job(tmp_path, "killed,step-1", "1,step-2", "killed,step-3", 0)
    assert job.supervised() == 0
    assert len(job.ranks) == 4
    assert job.reports[0] == "the job ended with exit code 1; starting it again in 0 s (1 of 10)"


@pytest.mark.parametrize("code", [2, 130])
def test_input_at_fault_and_interrupts_are_final(tmp_path, code):
    job = Job(tmp_path, code)
    assert job.supervised() == code
    assert len(job.ranks) == 1


def test_one_that_gets_no_further_twice_is_given_up(tmp_path):
    job = Job(tmp_path, "1,step-1", "killed")
    with pytest.raises(WorkError, match="exit code 1, for the second time without getting further"):
        job.supervised()
    assert len(job.ranks) == 3


def test_with_fewer_ranks_down_to_the_least(tmp_path):
    job = Job(tmp_path, "killed")
    with pytest.raises(WorkError, match="second time"):
        job.supervised(ranks=12, min_ranks=4, fewer_by=4)
    assert job.ranks == [12, 12, 8, 8, 4, 4]
    assert "starting it again with 8 ranks" in job.reports[1]


def test_restarts_are_counted(tmp_path):
    job = Job(tmp_path, *(f"1,step-{n}" for n in range(9)))
    with pytest.raises(WorkError, match="exit code 1 after 2 restarts"):
        job.supervised(max_restarts=2)
    assert len(job.ranks) == 3


def test_a_launcher_that_is_not_there_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="cannot start /nowhere/horovodrun: No such file"):
        supervise(
            lambda ranks: ["/nowhere/horovodrun"], RestartPolicy(), tmp_path / "ended", lambda: 0
        )


def test_the_number_of_ranks_goes_into_the_launchers_words():
    assert launcher_command(["horovodrun", "-np", "{ranks}"], 3) == ["horovodrun", "-np", "3"]
    assert launcher_command(["srun", "-n4"], None) == ["srun", "-n4"]
    for words, ranks in ((["srun"], 3), (["srun", "-n{ranks}"], None)):
        with pytest.raises(InputError, match="--ranks N and {ranks}"):
            launcher_command(words, ranks)


def test_the_progress_marker_changes_with_checkpoints_and_samples(tmp_path):
    run_dir = tmp_path / "run"
    data = tmp_path / "data"
    markers = [progress_marker([run_dir], data)]
    (run_dir / "checkpoints").mkdir(parents=True)
    (run_dir / "checkpoints" / "step-000000003.npz").touch()
    markers.append(progress_marker([run_dir], data))
    data.mkdir()
    (data / "shard").write_bytes(bytes(10**5))
    markers.append(progress_marker([run_dir], data))
    assert len(set(markers)) == 3


def test_an_exit_code_that_cannot_be_written_is_no_further_fault(tmp_path):
    (tmp_path / "file").touch()
    write_exit_code(tmp_path / "file" / "ended", 1)
    write_exit_code(None, 1)
    write_exit_code(tmp_path / "new" / "ended", 130)
    assert (tmp_path / "new" / "ended").read_text() == '{"exit_code": 130}'


@pytest.mark.parametrize("failed", [True, False])
def test_the_launchers_traceback_about_a_rank_that_failed_is_left_out(tmp_path, capsys, failed):
    if failed:
        message = (
            "Horovod detected that one or more processes exited with non-zero status, and so on"
        )
    else:
        message = "no host"
    launcher = tmp_path / "horovodrun"
    ended = tmp_path / "ended"
    launcher.write_text(
        f"#!{sys.executable}\nimport sys\nprint('[0]<stderr>:error: no such file', "
        "file=sys.stderr)\n"
        f"open({str(ended)!r}, 'w').write('{{\"exit_code\": 2}}')\nraise RuntimeError({message!r})"
    )
    launcher.chmod(0o755)
    assert supervise(lambda ranks: [str(launcher)], RestartPolicy(), ended, lambda: 0) == 2
    first, *rest = capsys.readouterr().err.splitlines()
    assert first == "[0]<stderr>:error: no such file"
    assert (rest == []) if failed else rest[-1] == "RuntimeError: no host"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "handed_on"), [("horovodrun", "SIGTERM"), ("mpiexec", "SIGUSR1")]
)
def test_a_signal_reaches_the_job_once_and_ends_the_supervisor(tmp_path, launcher, handed_on):
    (tmp_path / launcher).symlink_to(sys.executable)
    job = (
        "import signal, sys, time; from pathlib import Path\n"
        "def come(number, _): print(signal.Signals(number).name, flush=True)\n"
        "for number in (signal.SIGTERM, signal.SIGUSR1): signal.signal(number, come)\n"
        f"Path({str(tmp_path / 'ready')!r}).touch()\n"
        "time.sleep(0.5); time.sleep(0.5)\n"
        "print('stopped', file=sys.stderr)\n"
        "print('Process 0 exit with status code 137.')\n"
    )
    script = (
        "import sys; from pathlib import Path; from train.ranks.supervise import RestartPolicy, "
        "supervise\n"
        f"line, ended = [{str(tmp_path / launcher)!r}, '-c', {job!r}], "
        f"Path({str(tmp_path / 'ended')!r})\n"
        "sys.exit(supervise(lambda _: line, RestartPolicy(), ended, int))"
    )
    line = [sys.executable, "-c", script]
    with subprocess.Popen(
        line,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        while not (tmp_path / "ready").exists():
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        printed, errors = process.communicate(timeout=20)
    lines = printed.splitlines()
    assert lines[0] == handed_on
    assert errors == "stopped\n"
    assert process.returncode == 130
    if launcher == "horovodrun":  # whose own lines about its ranks say nothing new
        assert len(lines) == 1


@pytest.fixture(params=STOPPING)
def stop_signal(request):
    """A signal with its default action: one that is ignored, as SIGHUP under nohup, stays so."""
    handler = signal.signal(request.param, signal.SIG_DFL)
    yield request.param
    signal.signal(request.param, handler)


def test_a_signal_interrupts_unless_it_is_deferred(stop_signal):
    handler = signal.getsignal(stop_signal)
    with listen() as request:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), stop_signal)
        with request.deferred():
            request.signal_name = None
            os.kill(os.getpid(), stop_signal)
        assert request.signal_name == stop_signal.name
        with pytest.raises(KeyboardInterrupt):
            request.check()
        request.agreed = True
        request.check()
    assert signal.getsignal(stop_signal) is handler


def test_a_second_ctrl_c_interrupts_always():
    with listen() as request, request.deferred():
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
