"""Stands in for the processes in which `namsa.io.confined_library` reads HDF5 files, each of which starts
Python.

That takes most of the time of a case. Here each is forked from one that has imported h5py and no
more (`fork_server`).
"""  # noqa: E501

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import launch

from namsa.io import confined_library


@contextmanager
def forked_readers() -> Iterator[None]:
    """Lets `namsa.io.confined_library` take its processes from a server, which runs as long as this
    process.
    """
    launch.forked_python("namsa.io.hdf5_process")
    real_subprocess = confined_library.subprocess
    replaced = {
        name: getattr(real_subprocess, name) for name in ("PIPE", "DEVNULL", "TimeoutExpired")
    }
    confined_library.subprocess = SimpleNamespace(Popen=ForkedReader, **replaced)
    try:
        yield
    finally:
        confined_library.subprocess = real_subprocess


class ForkedReader:
    """Stands in for the `subprocess.Popen` of `namsa.io.confined_library`."""

    def __init__(
        self, command: Sequence[str], pass_fds: Sequence[int], env: Mapping[str, str], **_: Any
    ) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._received = b""
        self._connection.connect(os.environ["FORK_SERVER"])
        requests, stdin = os.pipe()
        stdout, replies = os.pipe()
        files = {0: requests, 1: replies} | {descriptor: descriptor for descriptor in pass_fds}
        request = {
            "arguments": command[1:],
            "environment": dict(env),
            "directory": os.getcwd(),
            "files": list(files),
        }
        text = json.dumps(request).encode() + b"\n"
        self._connection.sendall(
            text[socket.send_fds(self._connection, [text], list(files.values())) :]
        )
        os.close(requests)
        os.close(replies)
        self.stdin = os.fdopen(stdin, "wb", 0)
        self.stdout = os.fdopen(stdout, "rb", 0)
        self._pid = self._answer()
        self._code = None

    def _answer(self, timeout: float | None = None) -> int:
        self._connection.settimeout(timeout)
        while b"\n" not in self._received:
            self._received += self._connection.recv(64) or b"9\n"
        line, _, self._received = self._received.partition(b"\n")
        return int(line)

    def kill(self) -> None:
        """Ends the process."""
        if self._code is None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit code, or minus the number of a signal."""
        if self._code is None:
            try:
                self._code = os.waitstatus_to_exitcode(self._answer(timeout))
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
