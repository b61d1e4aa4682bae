"""A Python process that has imported TensorFlow, and forks a process for every command that a test
starts.

Importing TensorFlow takes most of the time of a short job, and a job of four ranks does it four
times. The server imports everything and runs nothing: TensorFlow and Horovod have started no thread
and opened no device when it forks. A forked process has the arguments, environment, working
directory, open files and exit code that `python` would have. `forked_python` stands in for `python`
on any command line; it waits for the process and passes on its signals.

A process does not outlive its `forked_python`. The server ends with its standard input, that is
with the tests.

    python tests/support/fork_server.py SOCKET [MODULE ...]     modules to import in place of TensorFlow and all else
"""  # noqa: E501

import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from typing import Any

IMPORTS = (
    "horovod.tensorflow",
    "matplotlib.pyplot",
    "namsa.cli.parser",
    "train.__main__",
    "train.main",
    # What a job of the default task imports later: SciPy's statistics take longer than its network.
    "train.tasks.density.evaluate",
    "train.tasks.density.task",
)
MOST_FILES = 64
REQUEST_BYTES = 2**20
SPARE_FD = 200  # above every file descriptor that a command expects


def receive(connection: socket.socket) -> dict[str, Any]:
    """A command of `forked_python`: what follows `python` and all variables, the working directory,
    and open files.

    `files` are the descriptors received, by the number that each must have.
    """
    text, descriptors, _, _ = socket.recv_fds(connection, REQUEST_BYTES, MOST_FILES)
    while not text.endswith(b"\n"):
        text += connection.recv(REQUEST_BYTES)
    request: dict[str, Any] = json.loads(text)
    return request | {"files": dict(zip(request["files"], descriptors, strict=True))}


def serve(listener: socket.socket) -> None:
    """Forks a process for each connection, which is told its PID and its wait status, until
    standard input ends.
    """
    with selectors.DefaultSelector() as ready:
        ready.register(listener, selectors.EVENT_READ)
        ready.register(sys.stdin, selectors.EVENT_READ)
        running: dict[int, socket.socket] = {}
        while True:
            for key, _ in ready.select():
                if key.fileobj is sys.stdin:
                    for pid in running:
                        kill(pid)
                    return
                if key.fileobj is listener:
                    connection, _ = listener.accept()
                    request = receive(connection)
                    pid = os.fork()
                    if not pid:
                        ready.close()
                        for inherited in (listener, connection, *running.values()):
                            inherited.close()
                        become(request)  # exits
                    for descriptor in request["files"].values():
                        os.close(descriptor)
                    connection.sendall(f"{pid}\n".encode())
                    running[pid] = connection
                    ready.register(connection, selectors.EVENT_READ, pid)
                    ready.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)
                elif isinstance(key.fileobj, socket.socket):  # `forked_python` has ended
                    if key.data in running:
                        ready.unregister(key.fileobj)
                        kill(key.data)
                else:
                    ready.unregister(key.fileobj)
                    os.close(key.fd)
                    connection = running.pop(key.data)
                    with suppress(KeyError):
                        ready.unregister(connection)
                    with suppress(OSError), connection:
                        connection.sendall(f"{os.waitpid(key.data, 0)[1]}\n".encode())


def kill(pid: int) -> None:
    """Kills a process and what it has started."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        os.killpg(pid, signal.SIGKILL)


def become(request: dict[str, Any]) -> None:
    """Runs `-m MODULE`, `-c CODE` or a script as the interpreter would, and exits."""
    os.setsid()
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # it may have been found in the server's environment
    sys.executable = os.environ.get(
        "FORKED_PYTHON", sys.executable
    )  # of processes that this one starts
    held = {SPARE_FD + index: descriptor for index, descriptor in enumerate(request["files"])}
    for spare, received in zip(held, request["files"].values(), strict=True):
        os.dup2(received, spare)
        os.close(received)
    for spare, descriptor in held.items():
        os.dup2(spare, descriptor)
        os.close(spare)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    kind, *rest = arguments = [word for word in request["arguments"] if word not in ("-P", "-S")]
    if kind == "-m":
        sys.path[0], sys.argv = request["directory"], rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.path[0], sys.argv = "", ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.path.insert(
            0, os.path.dirname(os.path.abspath(kind))
        )  # before this folder, which tests have on their path
        sys.argv = arguments
        runpy.run_path(kind, run_name="__main__")
    sys.exit()


def main(path: str, *imports: str) -> None:
    for name in imports or IMPORTS:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # collections would copy the pages that forked processes share
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(MOST_FILES)
        print("ready", flush=True)
        serve(listener)


if __name__ == "__main__":
    main(*sys.argv[1:])
