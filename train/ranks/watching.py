"""The watchdogs of a job's ranks: each knows where its parent is, and ends with the job."""

import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from namsa.base.launcher import started_here

from .datagrams import FAILED, KEY_BYTES, LEFT, look_up, outgoing_address, watch_tree
from .interface import Ranks
from .watchdog import Watchdog

RECEIVE_BUFFER_BYTES = 4 * 2**20  # for the datagrams that arrive while the process computes


@contextmanager
def watch(ranks: Ranks, warning_s: float, radix: int = 0) -> Iterator[Watchdog]:
    """Yields a watchdog that runs inside the context. Collective: all ranks enter it together.

    Args:
        warning_s: Time without progress after which rank 0 warns; the job ends after `STALL_LIMIT`
            times that.
        radix: Children per rank of the tree; 0: see `watch_tree`.
    """
    rank = ranks.rank()
    host = socket.gethostname()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp_socket:
        # As large as the system allows.
        udp_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        udp_socket.bind(("", 0))
        port = udp_socket.getsockname()[1]
        key = secrets.token_hex(KEY_BYTES)
        contact: dict[str, object] = {"host": host, "address": outgoing_address(), "port": port}
        if rank == 0:
            contact["key"] = key
        contacts = ranks.gather_json(contact)
        parent = contacts[watch_tree(len(contacts), radix).parent(rank) or 0]
        if parent["host"] == host:
            addresses = {"127.0.0.1"}
        else:
            addresses = {look_up(parent["host"]), parent["address"]}
        watchdog = Watchdog(
            rank,
            [contact["host"] for contact in contacts],
            udp_socket,
            [(address, parent["port"]) for address in addresses],
            bytes.fromhex(contacts[0]["key"]),
            warning_s,
            radix=radix,
        )
        watchdog.start()
        try:
            yield watchdog
        except BaseException as error:
            lost = isinstance(error, Exception) and ranks.lost_another_rank(error)
            # the launcher of --processes has named a rank that was killed
            named_by_another = started_here() or rank > 1
            text = None
            if lost and not named_by_another:
                text = watchdog.describe_lost_rank()
            if text:
                print(f"error: {text}", file=sys.stderr, flush=True)
            # Without a farewell: a rank that others still wait for must be missed.
            watchdog.close(None if lost else FAILED)
            raise
        watchdog.close(LEFT)
