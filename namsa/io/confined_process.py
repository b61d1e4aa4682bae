"""A process that lends a library to another one: limits on what it may take, requests and replies.

A script beside this module makes an object whose methods answer requests about one file, and calls
`serve`. Requests and replies are lines of JSON; arrays pass through shared memory. Memory is
limited on Linux, processor time everywhere but on Windows. It imports nothing of the package, so
that it starts fast. `namsa.io.confined_library` is the other side.
"""

import json
import math
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

# beyond what the process has at its start, and beyond the chunks that it unpacks
MEMORY_BYTES = 2**29
CPU_SECONDS = 4  # of a request, and more for many bytes
BYTES_PER_SECOND = 5e6  # that the slowest filter unpacks


class Refused(Exception):
    """The file asks for what is not done; the message is for the user."""


class Changed(Exception):
    """The file is not what it was when it was opened; the message is for the user."""


def serve(open_reader: Callable[[str, mmap.mmap], Any], open_files: int | None = 0) -> None:
    """Opens the file that the arguments name and answers requests until stdin ends.

    Args:
        open_reader: Returns an object whose methods answer the requests, from the file and the
            shared memory.
        open_files: How many files it may have open once it is made; `None` for as many as the
            system allows.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says what an interrupt means
    limit("CORE", 0)
    path = sys.argv[1]
    memory = sys.argv[2]
    length = int(sys.argv[3])
    shared = mmap.mmap(int(memory) if memory.isdigit() else os.open(memory, os.O_RDWR), length)
    start_bytes = _address_space_bytes()
    reader: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            with _limits(start_bytes, request.pop("unpacked")):
                if reader is None:
                    reader = open_reader(path, shared)
                limit("NOFILE", open_files)
                reply = {"reply": getattr(reader, request.pop("do"))(**request)}
        except Refused as error:
            reply = {"refused": str(error)}
        except Changed as error:
            reply = {"changed": str(error)}
        except Exception as error:  # what libraries raise for a file that they cannot read
            reply = {"damaged": reason(error)}
        print(json.dumps(reply), flush=True)


def reason(error: BaseException) -> str:
    """Returns what a library says, in one line."""
    return " ".join(str(error.args[-1] if error.args else type(error).__name__).split())


def limit(kind: str, value: int | None) -> None:
    """Sets a soft limit to `value`, or to the hard one if that is lower or `value` is None."""
    if resource is None:
        return
    kind_of_limit = getattr(resource, f"RLIMIT_{kind}")
    hard = resource.getrlimit(kind_of_limit)[1]
    if value is None:
        soft = hard
    elif hard == resource.RLIM_INFINITY:
        soft = value
    else:
        soft = min(value, hard)
    resource.setrlimit(kind_of_limit, (soft, hard))


@contextmanager
def _limits(start_bytes: int | None, unpacked: int) -> Iterator[None]:
    """Limits memory and processor time; a process that takes more is ended or gets an error."""
    limit("CPU", math.ceil(time.process_time() + CPU_SECONDS + unpacked / BYTES_PER_SECOND))
    if start_bytes is not None:
        limit("AS", start_bytes + MEMORY_BYTES + 4 * unpacked)
    yield
    limit("CPU", None)


def _address_space_bytes() -> int | None:
    """Returns the size of this process' address space; `None` where the system does not say it."""
    with suppress(FileNotFoundError), open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * mmap.PAGESIZE
    return None
