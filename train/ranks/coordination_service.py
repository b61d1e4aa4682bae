"""JAX's coordination service in a process of its own, beside rank 0.

    python -m train.ranks.coordination_service PORT PROCESSES HEARTBEAT_S RECOVERABLE PARENT

JAX aborts a process that loses its connection to the service, with a stack trace. By default, the
service is in rank 0 and ends with it. Here it outlives rank 0: when rank 0 is killed, the others
find out by their messages and end in order. The service ends when rank 0 has ended and no process
is connected to it, or `LONGEST_S` after rank 0.
"""

import os
import subprocess
import sys
import time

import psutil

from namsa.base.errors import InputError

from .coordinator import VARIABLE
from .signals import ignore

READY = b"ready\n"
LONGEST_S = 60.0  # that the service outlives rank 0
POLL_S = 0.2


def start(port: int, processes: int, heartbeat_s: int, recoverable: bool) -> None:
    """Starts the service as a child of this process, rank 0, and waits until it listens.

    Args:
        port: Port of this machine.
        processes: Number of processes of the job.
        heartbeat_s: Time without a sign of a process after which it counts as lost, s.
        recoverable: Whether the service leaves the others alone when a process is lost.

    Raises:
        InputError: If the service cannot listen on the port.
    """
    words = [str(port), str(processes), str(heartbeat_s), str(int(recoverable)), str(os.getpid())]
    child = subprocess.Popen(
        [sys.executable, "-m", __name__, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert child.stdout
    with child.stdout as output:
        if output.readline() != READY:
            raise InputError(
                f"JAX's coordination service cannot listen on port {port}: set "
                f"{VARIABLE}=HOST:PORT, with a free port of rank 0's host, for all ranks"
            )
    # Nothing waits for the child, which ends after this process.
    child.returncode = 0


def serve(port: int, processes: int, heartbeat_s: int, recoverable: bool, parent: int) -> None:
    """Runs the service until the process `parent` and all connections have ended."""
    from jaxlib import _jax  # takes half a second

    service = _jax.get_distributed_runtime_service(
        f"[::]:{port}", processes, heartbeat_timeout=heartbeat_s, recoverable=recoverable
    )
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    while os.getppid() == parent:
        time.sleep(POLL_S)
    ended = time.monotonic()
    while time.monotonic() - ended < LONGEST_S and _connections(port):
        time.sleep(POLL_S)
    service.shutdown()


def _connections(port: int) -> int:
    """Returns the number of connections that other processes have to a port of this one."""
    count = 0
    for connection in psutil.Process().net_connections(kind="tcp"):
        local = connection.laddr and connection.laddr.port == port
        if local and connection.status == psutil.CONN_ESTABLISHED:
            count += 1
    return count


if __name__ == "__main__":
    ignore()
    first, second, third, fourth, fifth = map(int, sys.argv[1:])
    serve(first, second, third, bool(fourth), fifth)
