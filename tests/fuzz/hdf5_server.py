"""Forks a process for each HDF5 file that a command opens, from a process that has imported h5py and no more.

The package starts Python for every file (`namsa.io.safe_hdf5`), which takes most of the time of a case. A forked
process does the same as that one, by the same function and with the same limits.

    python tests/fuzz/hdf5_server.py SOCKET
"""

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn

from namsa.io import hdf5_process, safe_hdf5

REQUEST_BYTES = 2**16


@contextmanager
def replaced_processes() -> Iterator[None]:
    """Lets `namsa.io.safe_hdf5` take its processes from a server, which runs meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"{folder}/socket"
        command = [sys.executable, __file__, address]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            own = safe_hdf5.subprocess
            replaced = {name: getattr(own, name) for name in ("PIPE", "DEVNULL", "TimeoutExpired")}
            safe_hdf5.subprocess = SimpleNamespace(Popen=partial(ForkedReader, address), **replaced)
            try:
                yield
            finally:
                safe_hdf5.subprocess = own
                server.kill()


class ForkedReader:
    """Stands in for the `subprocess.Popen` of `namsa.io.safe_hdf5`.

    Args:
        address: The server's socket.
        line: The command line: the script, the file, the number of the shared memory's descriptor, and its length.
    """

    def __init__(self, address: str, line: Sequence[str], **_: Any) -> None:
        path, memory, length = line[-3:]
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.connect(address)
        requests, stdin = os.pipe()
        stdout, replies = os.pipe()
        socket.send_fds(
            self._connection, [json.dumps([os.getcwd(), path, length]).encode()], [requests, replies, int(memory)]
        )
        os.close(requests)
        os.close(replies)
        self.stdin, self.stdout = os.fdopen(stdin, "wb", 0), os.fdopen(stdout, "rb", 0)
        self._pid = int(self._connection.recv(32))
        self._code: int | None = None

    def kill(self) -> None:
        """Ends the process."""
        if self._code is None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit code, or minus the number of a signal."""
        if self._code is None:
            self._connection.settimeout(timeout)
            try:
                self._code = int(self._connection.recv(32))
            except TimeoutError:
                raise subprocess.TimeoutExpired("reader", timeout or 0) from None
        return self._code

    def __enter__(self) -> "ForkedReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.stdin.close()
        self.stdout.close()
        self.wait()
        self._connection.close()


# ---- The server -----------------------------------------------------------------------------------------------------


def _serve(listener: socket.socket) -> None:
    """Forks for each connection, until standard input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that attend to connections
    while sys.stdin not in (ready := select.select([listener, sys.stdin], [], [])[0]):
        assert ready
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _attend(connection)
        connection.close()


def _attend(connection: socket.socket) -> NoReturn:
    """Forks the process that reads the file; sends its number and, when it has ended, its exit code."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        text, files, _, _ = socket.recv_fds(connection, REQUEST_BYTES, 3)
        child = os.fork()
        if child == 0:
            connection.close()
            folder, path, length = json.loads(text)
            os.chdir(folder)
            _read(path, files, length)
        for file in files:
            os.close(file)
        with suppress(OSError):  # the command may be killed meanwhile
            connection.send(str(child).encode())
            connection.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())
    finally:
        os._exit(0)


def _read(path: str, files: Sequence[int], length: str) -> NoReturn:
    """Does what `namsa.io.hdf5_process` does as a script."""
    code = 1
    try:
        requests, replies, memory = files
        os.dup2(requests, 0)
        os.dup2(replies, 1)
        sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
        sys.argv = [hdf5_process.__file__, path, str(memory), length]
        hdf5_process.main()
        code = 0
    finally:
        os._exit(code)


def main(address: str) -> None:
    """Listens on a socket; says so by a line."""
    gc.collect()
    gc.freeze()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen(64)
        print("ready", flush=True)
        _serve(listener)


if __name__ == "__main__":
    main(sys.argv[1])
