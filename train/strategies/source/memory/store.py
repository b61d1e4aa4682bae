"""Bytes by name in the memory of all ranks. Every name has one owner, which loads its bytes once and serves them."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from namsa.errors import InputError, WorkError

from ....ranks.peers import Peers
from ....ranks.protocol import Ranks

Buffer = bytes | bytearray | memoryview

_FAILURES = (InputError, WorkError, MemoryError, OSError)


class MemoryStore:
    """Bytes in the memory of all ranks, for several threads.

    Collective: all ranks make one together, and close it when none needs it any more.

    Args:
        owners: The rank that owns each name, in the order in which they are first needed.
        load: Returns the bytes of a name that this rank owns.
    """

    def __init__(self, ranks: Ranks, owners: Mapping[str, int], load: Callable[[str], Buffer]) -> None:
        self._rank, self.owners, self._load = ranks.rank(), owners, load
        self._own: dict[str, Future[Buffer]] = {}
        self._lock, self._closed = threading.Lock(), False
        self.peers = Peers(ranks, self._own_content)
        self._loader = threading.Thread(target=self._load_all, name="memory-store", daemon=True)
        self._loader.start()

    def close(self) -> None:
        """Ends loading and connections, and frees the memory. What was returned must not be used afterwards."""
        self._closed = True
        self.peers.close()
        self._loader.join()
        self._own.clear()

    def finish_loading(self) -> None:
        """Waits until all that this rank owns is in its memory. Raises WorkError if something cannot be loaded."""
        self._loader.join()
        for future in list(self._own.values()):
            future.result()

    def content(self, name: str) -> Buffer:
        """Returns the bytes of a name, from this rank's memory or from its owner."""
        owner = self.owners[name]
        return self._own_content(name) if owner == self._rank else self.peers.fetch(owner, name)

    def _own_content(self, name: str) -> Buffer:
        """Returns the bytes of a name that this rank owns. The first thread that asks for it loads it, others wait."""
        if self.owners.get(name) != self._rank:
            raise WorkError(f"rank {self._rank} does not own {name!r}")
        with self._lock:
            is_first = name not in self._own
            future = self._own.setdefault(name, Future())
        if is_first:
            try:
                future.set_result(self._load(name))
            except _FAILURES as error:
                future.set_exception(error)
        return future.result()

    def _load_all(self) -> None:
        for name, owner in self.owners.items():
            if self._closed:
                return
            if owner == self._rank:
                try:
                    self._own_content(name)
                except _FAILURES:
                    return  # whoever needs it raises it
