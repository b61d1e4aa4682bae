"""Common code of the stand-ins for `jsrun` and `srun`: a job's ranks as processes of this machine.

Both give every process what their original gives it, and beside that the variables by which a
Horovod built without MPI finds its peers, as `horovodrun --gloo` does it: a rendezvous server of
this process and one set of numbers a rank.

Where NODE_DISKS names a folder, each emulated node has a disk of its own there, which its ranks,
and they alone, have open as `NODE_DISK`: the same path on every node, as on a real one.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from horovod.runner.common.util.hosts import SlotInfo, get_host_assignments, parse_hosts
from horovod.runner.gloo_run import create_run_env_vars, create_slot_env_vars
from horovod.runner.http.http_server import RendezvousServer

GRACE_S = 5.0
DISK_FILE = 63
NODE_DISK = f"/proc/self/fd/{DISK_FILE}"


def slots(size: int, per_node: int) -> list[SlotInfo]:
    """Ranks packed on emulated nodes of `per_node` ranks; the last node may hold fewer."""
    nodes = range(-(-size // per_node))
    hosts = ",".join(f"node{node}:{min(per_node, size - node * per_node)}" for node in nodes)
    return get_host_assignments(parse_hosts(hosts), size)


def gloo_variables(slot: SlotInfo, port: int) -> dict[str, str]:
    """Variables that horovodrun sets for a rank, where a rendezvous server of this machine listens
    at `port`.
    """
    return create_slot_env_vars(slot) | create_run_env_vars("127.0.0.1", ["lo"], str(port))


def launch(
    command: Sequence[str],
    plan: Sequence[SlotInfo],
    environment: Callable[[SlotInfo], dict[str, str]],
    *,
    end_all: bool,
) -> int:
    """Runs `command` once a slot, and returns the job's status: that of a signal before that of an
    exit, the highest.

    Args:
        command: The command.
        plan: The slots.
        environment: What the launcher sets for a slot.
        end_all: Whether the first rank that fails ends all others. Without it, they go on. A signal
            ends all anyway.
    """
    server = RendezvousServer()
    port = server.start()
    server.init(plan)
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda received, _frame: sys.exit(128 + received))
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        for slot in plan:
            variables = os.environ | gloo_variables(slot, port) | environment(slot)
            disk = _open_disk(slot)
            ranks.append(
                subprocess.Popen(command, env=variables, start_new_session=True, pass_fds=disk)
            )
        while None in (codes := [rank.poll() for rank in ranks]):
            if end_all and any(codes):
                _end(ranks)
            time.sleep(0.05)
        return status([rank.returncode for rank in ranks])
    except FileNotFoundError as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        return 127
    finally:
        _end(ranks)
        server.stop()


def status(returncodes: Sequence[int]) -> int:
    """Returns the job's status for those of its processes, which are negative for a signal.

    This is srun's rule (src/srun/launch.c): the highest signal of any process, also of one that
    srun itself has ended, comes before the highest exit code.
    """
    signals = []
    for code in returncodes:
        if code < 0:
            signals.append(-code)
    return 128 + max(signals) if signals else max(returncodes)


def _open_disk(slot: SlotInfo) -> tuple[int, ...]:
    """The file that stands for the node's disk in the process that is started next."""
    if "NODE_DISKS" not in os.environ:
        return ()
    path = Path(os.environ["NODE_DISKS"], slot.hostname)
    path.mkdir(parents=True, exist_ok=True)
    folder = os.open(path, os.O_RDONLY)
    os.dup2(folder, DISK_FILE)
    os.close(folder)
    return (DISK_FILE,)


def _end(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    running = []
    for rank in ranks:
        if rank.poll() is None:
            running.append(rank)
    for rank in running:
        os.killpg(rank.pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    for rank in running:
        try:
            rank.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(rank.pid, signal.SIGKILL)
            rank.wait()
