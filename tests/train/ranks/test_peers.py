"""Bytes by name between ranks: what is served arrives, faults are named, and a wrong key gets
nothing.
"""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import thread_ranks

from namsa.base.errors import WorkError
from train.ranks import peers


def content(rank, name):
    return np.random.default_rng([rank, len(name)]).bytes(200_000 if name == "large" else len(name))


def together(work, ranks=3, serve=content):
    """`work(peers, rank)` on every rank; connections end when all ranks are done."""
    done = threading.Barrier(ranks, timeout=30)

    def on_rank(rank):
        connected = peers.Peers(rank, lambda name: serve(rank.rank(), name))
        try:
            return work(connected, rank.rank())
        finally:
            done.wait()
            connected.close()

    return thread_ranks.run([list(range(ranks))], on_rank)


def test_every_rank_fetches_from_every_other_in_several_threads():
    def work(connected, rank):
        names = ["", "a name", "large", "Å" * 9] * 5
        with ThreadPoolExecutor(4) as pool:
            for other in {0, 1, 2} - {rank}:
                assert list(pool.map(partial(connected.fetch, other), names)) == [
                    content(other, name) for name in names
                ]
        return connected.received_bytes

    assert together(work) == [2 * 5 * (200_000 + 6 + 9)] * 3


def test_the_reason_of_a_fault_arrives_and_the_connection_goes_on():
    def serve(rank, name):
        if name == "bad":
            raise WorkError("its record is damaged")
        return b"good"

    def work(connected, rank):
        with pytest.raises(WorkError, match=f"rank {1 - rank}: its record is damaged"):
            connected.fetch(1 - rank, "bad")
        return bytes(connected.fetch(1 - rank, "other"))

    assert together(work, 2, serve) == [b"good", b"good"]


def test_bytes_that_change_on_their_way_are_noticed(monkeypatch):
    monkeypatch.setattr(
        peers.xxhash, "xxh3_128_digest", lambda data: bytes([isinstance(data, bytearray)] * 16)
    )

    def work(connected, rank):
        with pytest.raises(
            WorkError, match=f"what rank {1 - rank} sent of it has changed on its way"
        ):
            connected.fetch(1 - rank, "it")

    assert together(work, 2) == [None, None]


def test_a_rank_that_has_ended_is_named():
    connected = thread_ranks.run([[0, 1]], lambda rank: peers.Peers(rank, lambda name: b"x"))
    assert connected[0].fetch(1, "name") == b"x"
    connected[1].close()
    for _ in range(2):
        with pytest.raises(WorkError, match=f"rank 1 on {socket.gethostname()} does not answer"):
            connected[0].fetch(1, "name")
    connected[0].close()


def test_a_wrong_key_gets_no_answer():
    def work(connected, rank):
        if rank:
            return None
        with socket.create_connection(
            ("127.0.0.1", connected._peers[1]["port"]), timeout=5
        ) as stranger:
            assert len(peers._receive(stranger, 32)) == 32
            stranger.sendall(bytes(32) + peers._NAME.pack(4) + b"name")
            with pytest.raises((EOFError, ConnectionError)):
                peers._receive(stranger, 1)
        connected._key = bytes(32)
        with pytest.raises(WorkError, match="rank 1 .* does not answer"):
            connected.fetch(1, "name")

    assert together(work, 2) == [None, None]
