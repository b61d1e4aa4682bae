"""Addresses at which the ranks of a job reach each other beside Horovod."""

import socket
from contextlib import suppress


def outgoing_address() -> str:
    """Returns this host's address for outgoing packets, for hosts that cannot look up its name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return str(probe.getsockname()[0])
    return "127.0.0.1"


def look_up(host: str) -> str:
    """Returns the address of `host`, or this host's own if the name is unknown."""
    try:
        return socket.gethostbyname(host)
    except OSError:
        return "127.0.0.1"
